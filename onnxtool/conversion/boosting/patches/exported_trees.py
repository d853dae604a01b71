"""Graphs of boosted trees that lack a part of what their booster computes, completed where operators allow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxtool.conversion.boosting.dropped_options import loss_of, text_of
from onnxtool.conversion.boosting.lightgbm_trees import is_written
from onnxtool.conversion.boosting.linear_booster import booster_of, learner_of
from onnxtool.conversion.boosting.patches.equivalent_booster import LINKS, gives_chances, objective_of, passes_of_forest
from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.patches import Patch, correct, replaced

if TYPE_CHECKING:
    import onnx

_TREES = ("TreeEnsembleClassifier", "TreeEnsembleRegressor")
_EXPONENTIAL = ("Poisson", "Tweedie")


def fix_exported_trees(proto: onnx.ModelProto, estimator: Estimator) -> None:
    """Change a graph with one ensemble of trees so that it computes what its booster does; others are left alone.

    Args:
        proto: as onnxmltools, skl2onnx or CatBoost left it; changed in place.
        estimator: what it was made of.
    """
    trees = [node for node in proto.graph.node if node.op_type in _TREES]
    if len(trees) == 1:
        correct(PATCHES, proto, trees[0], estimator)
        _exact_base(trees[0], estimator)


@contextmanager
def fixing_steps() -> Iterator[None]:
    """Inside the block, what skl2onnx writes for each step, and for each estimator inside another, is fixed."""
    topology = import_module("skl2onnx.common._topology").Topology
    plain = topology.call_converter

    def call_converter(self: Any, operator: Any, container: Any, *more: Any, **options: Any) -> None:
        start, estimator = len(container.nodes), operator.raw_operator
        plain(self, operator, container, *more, **options)
        if estimator is None or all(node.op_type not in _TREES for node in container.nodes[start:]):
            return
        from onnx import helper

        outputs = [helper.make_tensor_value_info(output.full_name, 1, None) for output in operator.outputs]
        proto = helper.make_model(helper.make_graph(container.nodes[start:], "step", [], outputs))
        asked = hasattr(estimator, "predict_proba") and _package(estimator) == "lightgbm"
        if asked and container.get_options(estimator, {"raw_scores": False})["raw_scores"]:
            for node in [n for n in proto.graph.node if n.op_type in _TREES]:
                _set(node, "post_transform", "NONE")
                _scale(node, passes_of_forest(text_of(estimator)))  # of which scores are the sum
                _whole_categories(proto, node, estimator)
        else:
            fix_exported_trees(proto, estimator)
        container.nodes[start:] = proto.graph.node
        container.initializers.extend(proto.graph.initializer)

    with replaced(topology, "call_converter", call_converter):
        yield


def _package(estimator: Estimator) -> str:
    name = type(estimator).__module__.partition(".")[0]
    return "lightgbm" if name == "onnxmltools" else name


def _whole_categories(proto: onnx.ModelProto, node: onnx.NodeProto, estimator: Estimator) -> None:
    """LightGBM 4 drops the fraction of a category before it looks it up (`CategoricalDecision` of its tree.h)."""
    from onnx import helper, numpy_helper

    if _package(estimator) != "lightgbm":
        return

    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    pairs = zip(given["nodes_modes"], given["nodes_featureids"], strict=True)
    columns = sorted({feature for mode, feature in pairs if mode == b"BRANCH_EQ"})
    if not columns:
        return
    width = getattr(estimator, "booster_", estimator).num_feature()
    chosen = np.isin(np.arange(width), columns).reshape(1, -1)
    x, names = node.input[0], {n: f"{node.output[0]}.{n}" for n in ("size", "floor", "sign", "whole", "category", "is")}
    make = helper.make_node
    nodes = [
        make("Abs", [x], [names["size"]]),
        make("Floor", [names["size"]], [names["floor"]]),
        make("Sign", [x], [names["sign"]]),
        make("Mul", [names["floor"], names["sign"]], [names["whole"]]),
        make("Where", [names["is"], names["whole"], x], [names["category"]]),
    ]
    proto.graph.initializer.append(numpy_helper.from_array(chosen, names["is"]))
    node.input[0] = names["category"]
    place = next(i for i, other in enumerate(proto.graph.node) if list(other.output) == list(node.output))
    for number, made in enumerate(nodes):
        proto.graph.node.insert(place + number, made)


def _link(proto: onnx.ModelProto, node: onnx.NodeProto, estimator: Estimator) -> None:
    """What objectives make of the sums, with the parameters of each."""
    if _package(estimator) == "xgboost" and gives_chances(estimator):
        _append(proto, "Sigmoid")
    if _package(estimator) != "lightgbm" or is_written(estimator):
        return
    objective = objective_of(text_of(estimator))
    words = dict(word.partition(":")[::2] for word in objective.split(" ")[1:])
    if node.op_type == "TreeEnsembleClassifier":
        if objective.startswith("multiclassova"):
            _set(node, "post_transform", "LOGISTIC")
        if objective.startswith(("binary", "multiclassova")):
            _scale(node, float(words.get("sigmoid") or 1.0))
    elif objective.startswith("regression") and "sqrt" in words:
        _append(proto, "Abs", "Mul")  # the sign times the square
    elif link := LINKS.get(objective.partition(" ")[0]):
        _append(proto, link)


def _targets(_proto: onnx.ModelProto, node: onnx.NodeProto, estimator: Estimator) -> None:
    """Which target or class each tree of XGBoost is for."""
    if _package(estimator) != "xgboost":
        return
    booster = booster_of(estimator)
    counts = learner_of(booster)["learner_model_param"]
    if max(int(counts.get(name, "1")) for name in ("num_class", "num_target")) < 2:
        return  # not worth reading the trees
    trees = json.loads(bytes(booster.save_raw("json")))["learner"]["gradient_booster"]
    owners = trees.get("gbtree", trees).get("model", {}).get("tree_info", [])  # DART's are a booster inside
    if len(set(owners)) < 2:
        return
    given = {a.name: a for a in node.attribute}
    kind = "class" if node.op_type == "TreeEnsembleClassifier" else "target"
    given[f"{kind}_ids"].ints[:] = [owners[tree] for tree in given[f"{kind}_treeids"].ints]


def _labels(proto: onnx.ModelProto, node: onnx.NodeProto, estimator: Estimator) -> None:
    """Labels that are other numbers than 0, 1, 2 are looked up behind the trees."""
    from onnx import helper, numpy_helper

    if _package(estimator) != "catboost" or node.op_type != "TreeEnsembleClassifier":
        return

    given = {a.name: a for a in node.attribute}
    classes = list(given["classlabels_int64s"].ints) if "classlabels_int64s" in given else []
    if classes in ([], list(range(len(classes)))):
        return
    given["classlabels_int64s"].ints[:] = range(len(classes))
    label, place, table = node.output[0], f"{node.output[0]}.place", f"{node.output[0]}.classes"
    node.output[0] = place
    proto.graph.initializer.append(numpy_helper.from_array(np.array(classes, np.int64), table))
    proto.graph.node.append(helper.make_node("Gather", [table, place], [label]))


def _drop_zero_base(_proto: onnx.ModelProto, node: onnx.NodeProto, _estimator: Any) -> None:
    """Sums that begin at zero need no numbers to begin at."""
    for attribute in list(node.attribute):
        if attribute.name.startswith("base_values") and not any(_numbers(attribute)):
            node.attribute.remove(attribute)


def _catboost_exponential(proto: onnx.ModelProto, _node: Any, estimator: Estimator) -> None:
    if _package(estimator) == "catboost" and loss_of(estimator) in _EXPONENTIAL:
        _append(proto, "Exp")


def _boosting_exponential(proto: onnx.ModelProto, _node: Any, estimator: Estimator) -> None:
    if type(estimator).__name__ == "HistGradientBoostingRegressor" and estimator.loss in ("poisson", "gamma"):
        _append(proto, "Exp")


def _exact_base(node: onnx.NodeProto, estimator: Estimator) -> None:
    """What the sums of histogram gradient boosting begin with, as its doubles: skl2onnx 1.20 rounds them to float32."""
    from onnx import numpy_helper

    begin = np.asarray(getattr(estimator, "_baseline_prediction", ()), np.float64).ravel()
    for attribute in node.attribute:
        if attribute.name == "base_values_as_tensor" and np.array_equal(
            np.array(_numbers(attribute), np.float32), begin.astype(np.float32)
        ):
            attribute.t.CopyFrom(numpy_helper.from_array(begin, attribute.t.name))


def _scale(node: onnx.NodeProto, factor: float) -> None:
    from onnx import helper

    for attribute in node.attribute:
        name = attribute.name.removesuffix("_as_tensor")
        if name not in ("class_weights", "base_values") or factor == 1.0:
            continue
        scaled = [factor * w for w in _numbers(attribute)]
        if attribute.floats:
            attribute.floats[:] = scaled
        else:
            attribute.t.CopyFrom(helper.make_tensor(attribute.t.name, attribute.t.data_type, [len(scaled)], scaled))


def _numbers(attribute: onnx.AttributeProto) -> list[float]:
    """Of an attribute of trees: floats, or a tensor of doubles."""
    from onnx import numpy_helper

    tensor = attribute.name.endswith("_as_tensor")
    return numpy_helper.to_array(attribute.t).tolist() if tensor else list(attribute.floats)


def _set(node: onnx.NodeProto, name: str, value: str) -> None:
    for attribute in node.attribute:
        if attribute.name == name:
            attribute.s = value.encode()


def _append(proto: onnx.ModelProto, operator: str, joined: str = "") -> None:
    """Apply an operator to the first output; with `joined`, that to the output and what the operator gives."""
    from onnx import helper

    name = proto.graph.output[0].name
    before = f"{name}.before"
    for node in proto.graph.node:
        for place, output in enumerate(node.output):
            if output == name:
                node.output[place] = before
    if joined:
        proto.graph.node.append(helper.make_node(operator, [before], [f"{name}.size"]))
        proto.graph.node.append(helper.make_node(joined, [before, f"{name}.size"], [name]))
    else:
        proto.graph.node.append(helper.make_node(operator, [before], [name]))


ZERO_BASE = Patch("skl2onnx", "1.21", "skl2onnx 1.20 writes one zero to begin at for several classes", _drop_zero_base)
CATEGORIES = Patch(
    "onnxmltools", "1.17", "onnxmltools 1.16 looks fractions of categories up as they are", _whole_categories
)
LINK = Patch("onnxmltools", "1.17", "onnxmltools 1.16 leaves parameters of LightGBM's objectives out", _link)
TARGETS = Patch(
    "onnxmltools",
    "1.17",
    "onnxmltools 1.16 gives all of XGBoost's trees to the first target or to classes in turn",
    _targets,
)
LABELS = Patch(
    "onnxruntime", "1.32", "ONNX Runtime 1.31 answers 0 and 1 where one score decides, whatever the labels are", _labels
)
EXPONENTIAL = Patch(
    "catboost",
    "1.3",
    "CatBoost 1.2 predicts the exponential of the sum of leaves for some losses; its ONNX form stops at the sum",
    _catboost_exponential,
)
BOOSTING_EXPONENTIAL = Patch(
    "skl2onnx", "1.21", "skl2onnx 1.20 stops at the sum of histogram gradient boosting's leaves", _boosting_exponential
)
# Given the graph, its node of trees and the estimator.
PATCHES: tuple[Patch[[onnx.ModelProto, Any, Any], None], ...] = (
    ZERO_BASE,
    CATEGORIES,
    LINK,
    TARGETS,
    LABELS,
    EXPONENTIAL,
    BOOSTING_EXPONENTIAL,
)
