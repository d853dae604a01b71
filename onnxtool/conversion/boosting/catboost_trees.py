"""CatBoost models that CatBoost 1.2 does not write as ONNX: trees of other growth than its own, and several targets.

Source: CatBoost, its JSON format (docs "JSON model tutorial"): a float feature above the border goes right; symmetric
trees have one split a level, and the first split is the lowest bit of the leaf's number.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxtool.conversion.frameworks import Estimator
from onnxtool.errors import UnsupportedError

if TYPE_CHECKING:
    import onnx

_OPSET, _ML_OPSET = 15, 3
_SEVERAL_LABELS = ("MultiLogloss", "MultiCrossEntropy")
_USUAL_BOUND = 0.5
_SIGMOIDS = ("Logloss", "CrossEntropy", "MultiClassOneVsAll")


@dataclass
class EnsembleAttributes:
    """The attributes of a TreeEnsembleRegressor, as they are filled."""

    nodes: dict[str, list[Any]] = field(default_factory=dict)
    leaves: dict[str, list[Any]] = field(default_factory=dict)

    def add_node(self, tree: int, number: int, **given: Any) -> None:
        """A node by its number in its tree, with the standard's attributes without "nodes_"; a leaf's are the usual."""
        usual = {"featureids": 0, "values": 0.0, "modes": "LEAF", "truenodeids": 0, "falsenodeids": 0}
        row = {**usual, "missing_value_tracks_true": 0, **given, "treeids": tree, "nodeids": number}
        for name, value in row.items():
            self.nodes.setdefault(f"nodes_{name}", []).append(value)

    def add_leaf(self, tree: int, number: int, values: Mapping[int, float]) -> None:
        """A leaf with what it adds to each target."""
        self.add_node(tree, number)
        for target, value in values.items():
            row = {"treeids": tree, "nodeids": number, "ids": target, "weights": float(value)}
            for name, entry in row.items():
                self.leaves.setdefault(f"target_{name}", []).append(entry)

    def of_doubles(self) -> dict[str, Any]:
        """All of them, with numbers as tensors of doubles."""
        from onnx import TensorProto, helper

        found = {**self.nodes, **self.leaves}
        for name in ("nodes_values", "target_weights"):
            numbers = found.pop(name)
            found[f"{name}_as_tensor"] = helper.make_tensor(name, TensorProto.DOUBLE, [len(numbers)], numbers)
        return found


def is_taken(estimator: Estimator) -> bool:
    """Whether CatBoost's own ONNX form leaves out what this model has."""
    try:
        options = estimator.get_all_params()
    except Exception:  # models read from a file know less
        return False
    other = options.get("grow_policy", "SymmetricTree") != "SymmetricTree"
    several = str(options.get("loss_function", "")).startswith(
        ("MultiRMSE", "MultiQuantile", "MultiClassOneVsAll", *_SEVERAL_LABELS)
    )
    return bool(other or several or estimator.get_scale_and_bias()[0] != 1 or _bound(estimator) != _USUAL_BOUND)


def _bound(estimator: Estimator) -> float:
    """The probability from which on a classifier gives the second of two classes."""
    try:
        return float(estimator.get_probability_threshold())
    except Exception:  # regressors have none
        return _USUAL_BOUND


def export_trees(estimator: Estimator, folder: Path) -> onnx.ModelProto:
    """A model of CatBoost, by way of its JSON form, whose sums of trees become what it predicts.

    Args:
        estimator: fitted on numbers.
        folder: for the JSON file.

    Raises:
        UnsupportedError: it splits on categories or on texts.
    """
    from onnx import TensorProto, helper

    path = folder / "trees.json"
    estimator.save_model(str(path), format="json")
    model = json.loads(path.read_text())
    scale, bias = model["scale_and_bias"]
    attributes: dict[str, Any] = {
        **_attributes(model, scale),
        "n_targets": len(bias),
        "base_values": [float(b) for b in bias],
    }
    nodes = [helper.make_node("TreeEnsembleRegressor", ["features"], ["sums"], domain="ai.onnx.ml", **attributes)]
    classes = list(getattr(estimator, "classes_", ()))
    constants: list[Any] = []
    value = helper.make_tensor_value_info
    if classes:
        loss = model["model_info"]["params"]["loss_function"]["type"]
        nodes += _classified(loss, len(bias), constants, classes, _bound(estimator))
        kind = TensorProto.STRING if isinstance(classes[0], str) else TensorProto.INT64
        labels = [None, len(bias)] if loss in _SEVERAL_LABELS else [None]
        outputs = [value("label", kind, labels), value("probabilities", TensorProto.FLOAT, [None, max(2, len(bias))])]
    else:
        nodes.append(helper.make_node("Identity", ["sums"], ["predictions"]))
        outputs = [value("predictions", TensorProto.FLOAT, [None, len(bias)])]
    inputs = [value("features", TensorProto.FLOAT, [None, estimator.n_features_in_])]
    graph = helper.make_graph(nodes, "catboost", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("ai.onnx.ml", _ML_OPSET)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _classified(loss: str, sums: int, constants: list[Any], classes: list[Any], bound: float) -> Iterator[Any]:
    """Labels and probabilities of sums; a bound other than a half is for the second of two classes."""
    from onnx import TensorProto, helper, numpy_helper

    texts = isinstance(classes[0], str)
    labels = np.array(classes, dtype=object if texts else np.int64)
    constants.append(
        helper.make_tensor("classes", TensorProto.STRING, [len(classes)], [c.encode() for c in classes])
        if texts
        else numpy_helper.from_array(labels, "classes")
    )
    if sums == 1:
        constants.append(numpy_helper.from_array(np.ones(1, np.float32), "one"))
        yield helper.make_node("Sigmoid", ["sums"], ["second"])
        yield helper.make_node("Sub", ["one", "second"], ["first"])
        yield helper.make_node("Concat", ["first", "second"], ["probabilities"], axis=1)
    elif loss in (*_SIGMOIDS, *_SEVERAL_LABELS):
        yield helper.make_node("Sigmoid", ["sums"], ["probabilities"])
    else:
        yield helper.make_node("Softmax", ["sums"], ["probabilities"], axis=1)
    if loss in _SEVERAL_LABELS or (sums == 1 and bound != _USUAL_BOUND):
        # The sum is compared with what gives the bound: the nearest float of a probability may lie on its other side.
        constants.append(numpy_helper.from_array(np.array(np.log(bound / (1 - bound)), np.float32), "bound"))
        yield helper.make_node("Greater", ["sums", "bound"], ["above"])
        yield helper.make_node("Cast", ["above"], ["places"], to=TensorProto.INT64)
        shape = [-1] if sums == 1 else [-1, sums]
        constants.append(numpy_helper.from_array(np.array(shape, np.int64), "labels"))
        yield helper.make_node("Reshape", ["places", "labels"], ["place"])
    else:
        yield helper.make_node("ArgMax", ["probabilities"], ["place"], axis=1, keepdims=0)
    yield helper.make_node("Gather", ["classes", "place"], ["label"])


def _attributes(model: Mapping[str, Any], scale: float) -> dict[str, list[Any]]:
    trees = EnsembleAttributes()
    floats = {f["feature_index"]: f for f in model["features_info"].get("float_features", ())}

    def split(given: Mapping[str, Any]) -> dict[str, Any]:
        if given.get("split_type") != "FloatFeature":
            raise UnsupportedError("CatBoost: splits on categories or texts have no ONNX form; encode them before.")
        feature = floats[given["float_feature_index"]]
        return {
            "featureids": feature["flat_feature_index"],
            "values": float(given["border"]),
            "modes": "BRANCH_GT",
            "missing_value_tracks_true": int(feature["nan_value_treatment"] == "AsTrue"),
        }

    for tree, root in enumerate(model.get("trees") or ()):
        _grown(trees, tree, root, split, scale)
    for tree, root in enumerate(model.get("oblivious_trees") or ()):
        _symmetric(trees, tree, root, split, scale)
    return {**trees.nodes, **trees.leaves}


def _grown(trees: EnsembleAttributes, tree: int, root: Mapping[str, Any], split: Any, scale: float) -> None:
    """A tree of nodes with a left and a right one."""
    pending, following = [(0, root)], 1
    while pending:
        number, node = pending.pop()
        if "split" not in node:
            values = node["value"] if isinstance(node["value"], list) else [node["value"]]
            trees.add_leaf(tree, number, {target: scale * v for target, v in enumerate(values)})
            continue
        left, right = following, following + 1
        following += 2
        trees.add_node(tree, number, **split(node["split"]), truenodeids=right, falsenodeids=left)
        pending += [(left, node["left"]), (right, node["right"])]


def _symmetric(trees: EnsembleAttributes, tree: int, root: Mapping[str, Any], split: Any, scale: float) -> None:
    """A tree with the same split in every node of a level, the last one at the top."""
    levels = [split(s) for s in reversed(root["splits"])]
    values = np.array(root["leaf_values"], dtype=np.float64).reshape(2 ** len(levels), -1) * scale
    for depth, level in enumerate(levels):
        first = 2**depth - 1
        for place in range(2**depth):
            child = 2 ** (depth + 1) - 1 + 2 * place
            trees.add_node(tree, first + place, **level, truenodeids=child + 1, falsenodeids=child)
    for leaf, row in enumerate(values):
        trees.add_leaf(tree, len(values) - 1 + leaf, dict(enumerate(row.tolist())))
