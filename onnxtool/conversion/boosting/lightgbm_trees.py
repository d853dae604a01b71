"""LightGBM models that onnxmltools does not write: linear functions in the leaves, and zeros that are missing values.

Source: LightGBM 4, src/io/tree.cpp and include/LightGBM/tree.h: a leaf adds its constant and its coefficients times the
features, and its plain value where one of them is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxtool.conversion.boosting.catboost_trees import EnsembleAttributes
from onnxtool.conversion.boosting.dropped_options import text_of
from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.sklearn.patches.exact_trees import of_lightgbm
from onnxtool.errors import UnsupportedError

if TYPE_CHECKING:
    import onnx

_ZERO = float(np.float32(1e-35))  # kZeroThreshold: smaller numbers are zero
_LINKS = {**dict.fromkeys(("poisson", "gamma", "tweedie"), "Exp"), "cross_entropy": "Sigmoid"}
_PLAIN = (
    *("", "regression", "regression_l1", "huber", "fair", "quantile", "mape", "lambdarank", "rank_xendcg"),
    *("binary", "multiclass", "multiclassova"),
)
_ZERO_IS_MISSING = 1  # bits 2 and 3 of a decision


def is_written(estimator: Estimator) -> bool:
    """Whether a model of LightGBM has linear leaves, or takes zero for a missing value."""
    text = text_of(estimator)
    decisions = [w for line in text.splitlines() if line.startswith("decision_type=") for w in line[14:].split()]
    return "\nis_linear=1" in text or any(int(d) >> 2 & 3 == _ZERO_IS_MISSING for d in decisions)


def export_lightgbm(estimator: Estimator, kind: int) -> onnx.ModelProto:
    """Write the trees by their dump: each leaf's coefficients are targets of an ensemble, one for each feature.

    Args:
        estimator: fitted, or a Booster.
        kind: ONNX's number of the element type of the input.

    Raises:
        UnsupportedError: categories, means of trees, or an objective without a form here.
    """
    from onnx import TensorProto, helper, numpy_helper

    dump = getattr(estimator, "booster_", estimator).dump_model()
    count, width = int(dump["num_tree_per_iteration"]), int(dump["max_feature_idx"]) + 1
    if dump.get("average_output"):
        raise UnsupportedError("LightGBM: a forest with linear_tree or zero_as_missing has no ONNX form here.")
    linear = "\nis_linear=1" in text_of(estimator)
    trees, kinds = EnsembleAttributes(), {"Zero": np.zeros((1, width), bool), "None": np.zeros((1, width), bool)}
    for number, tree in enumerate(dump["tree_info"]):
        _add_tree(trees, number, tree["tree_structure"], (number % count) * (1 + width if linear else 1), kinds)
    nodes: list[Any] = []
    constants: dict[str, np.ndarray] = {}

    def add(operator: str, *inputs: str | np.ndarray, **attributes: Any) -> str:
        names = [i if isinstance(i, str) else f"constant_{len(nodes)}_{n}" for n, i in enumerate(inputs)]
        constants.update({n: i for n, i in zip(names, inputs, strict=True) if not isinstance(i, str)})
        nodes.append(helper.make_node(operator, names, [f"value_{len(nodes)}"], **attributes))
        return f"value_{len(nodes) - 1}"

    x = add("Cast", "X", to=TensorProto.DOUBLE)
    compared = x
    if kinds["Zero"].any():
        zeros = add("And", add("LessOrEqual", add("Abs", x), np.array([_ZERO])), kinds["Zero"])
        compared = add("Where", zeros, np.array([np.nan]), x)
    if kinds["None"].any():
        compared = add("Where", add("And", add("IsNaN", compared), kinds["None"]), np.array([0.0]), compared)
    if linear:  # leaves ask for missing values, whatever the splits take them for
        compared = add("Concat", compared, x, axis=1)
    targets = count * (1 + width if linear else 1)
    domain = "ai.onnx.ml"
    sums = add("TreeEnsembleRegressor", compared, domain=domain, n_targets=targets, **trees.of_doubles())
    sums = add("Cast", sums, to=TensorProto.DOUBLE)
    if linear:
        sums = add("Reshape", sums, np.array([-1, count, 1 + width]))
        slopes = add("Gather", sums, np.arange(1, 1 + width), axis=2)
        rows = add("Unsqueeze", x, np.array([1]))
        # A feature that no leaf multiplies may be missing.
        steps = add("Where", add("Equal", slopes, np.array([0.0])), np.array([0.0]), add("Mul", slopes, rows))
        start = add("Gather", sums, np.array(0), axis=2)
        sums = add("Add", start, add("ReduceSum", steps, np.array([2]), keepdims=0))
    outputs = _outputs(add, nodes, sums, str(dump.get("objective", "")), getattr(estimator, "classes_", None))
    given = helper.make_tensor_value_info("X", kind, [None, width])
    initializers = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    graph = helper.make_graph(nodes, "lightgbm", [given], outputs, initializers)
    opsets = [helper.make_opsetid("", 15), helper.make_opsetid(domain, 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _outputs(add: Any, nodes: list[Any], sums: str, objective: str, classes: Any) -> list[Any]:
    """What the objective makes of the sums [rows, targets], as outputs of the graph."""
    from onnx import TensorProto, helper

    word, words = objective.split(" ")[0], dict(w.partition(":")[::2] for w in objective.split(" ")[1:])
    if word not in (*_PLAIN, *_LINKS):
        raise UnsupportedError(f"LightGBM: objective={word} with linear_tree or zero_as_missing has no ONNX form here.")
    value = helper.make_tensor_value_info

    def last(name: str) -> None:
        nodes[-1].output[0] = name

    if classes is None and word not in ("binary", "multiclass", "multiclassova"):
        if "sqrt" in words:
            sums = add("Mul", sums, add("Abs", sums))
        sums = add(_LINKS[word], sums) if word in _LINKS else sums
        add("Cast", sums, to=TensorProto.FLOAT)
        last("variable")
        return [value("variable", TensorProto.FLOAT, [None, None])]
    if word == "multiclass":
        chances = add("Softmax", sums, axis=1)
    else:
        chances = add("Sigmoid", add("Mul", sums, np.array([float(words.get("sigmoid") or 1.0)])))
    if word == "binary":
        chances = add("Concat", add("Sub", np.array([1.0]), chances), chances, axis=1)
    place = add("ArgMax", chances, axis=1, keepdims=0)
    labels = np.asarray(range(max(2, int(words.get("num_class") or 2))) if classes is None else classes)
    texts = labels.dtype.kind in "OU"
    add("Gather", labels.astype(object) if texts else labels.astype(np.int64), place, axis=0)
    last("label")
    add("Cast", chances, to=TensorProto.FLOAT)
    last("probabilities")
    kind = TensorProto.STRING if texts else TensorProto.INT64
    return [value("label", kind, [None]), value("probabilities", TensorProto.FLOAT, [None, len(labels)])]


def _add_tree(
    trees: EnsembleAttributes, tree: int, root: Mapping[str, Any], target: int, kinds: Mapping[str, np.ndarray]
) -> None:
    """One tree; features whose missing values go their own way are marked in `kinds`."""
    pending, following = [(0, root)], 1
    while pending:
        number, node = pending.pop()
        if "split_index" not in node:
            following = _add_leaf(trees, tree, number, following, node, target, kinds["None"].size)
            continue
        if node["decision_type"] != "<=":
            raise UnsupportedError(
                "LightGBM: categories with linear_tree or zero_as_missing have no ONNX form here; encode them before."
            )
        feature, missing = int(node["split_feature"]), node["missing_type"]
        if missing in kinds:
            kinds[missing][0, feature] = True
        low, high = following, following + 1
        following += 2
        trees.add_node(
            tree, number, featureids=feature, values=of_lightgbm(min(float(node["threshold"]), np.inf)),
            modes="BRANCH_LEQ", truenodeids=low, falsenodeids=high,
            missing_value_tracks_true=int(missing != "None" and node["default_left"]),
        )  # fmt: skip
        pending += [(low, node["left_child"]), (high, node["right_child"])]


def _add_leaf(
    trees: EnsembleAttributes, tree: int, number: int, following: int, leaf: Mapping[str, Any], target: int, width: int
) -> int:
    """A leaf; in front of linear ones, a question for each feature whether it is missing. Gives the next number.

    The features as they were given stand behind the `width` that splits compare.
    """
    features = [int(f) for f in leaf.get("leaf_features") or ()]
    for feature in features:
        trees.add_node(
            tree, number, featureids=width + feature, values=np.inf, modes="BRANCH_LEQ", truenodeids=following,
            falsenodeids=following + 1,
        )  # fmt: skip
        trees.add_leaf(tree, following + 1, {target: float(leaf["leaf_value"])})
        number, following = following, following + 2
    if not features:
        trees.add_leaf(tree, number, {target: float(leaf.get("leaf_const", leaf["leaf_value"]))})
        return following
    slopes = {target + 1 + f: float(c) for f, c in zip(features, leaf["leaf_coeff"], strict=True)}
    trees.add_leaf(tree, number, {target: float(leaf["leaf_const"]), **slopes})
    return following
