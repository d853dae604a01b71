"""What exporters of boosted trees leave out: put right in the graph where operators allow, else named."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxtool.conversion.boosting.equivalent_booster import LINKS, objective_of
from onnxtool.conversion.boosting.linear_booster import booster_of, learner_of

if TYPE_CHECKING:
    import onnx

_TREES = ("TreeEnsembleClassifier", "TreeEnsembleRegressor")
_LIGHTGBM = {"linear_tree": "\nis_linear=1", "boosting=rf": "\naverage_output"}
# CatBoost 1.2's predict() gives the exponential of the sum of leaves for these; its ONNX form stops at the sum.
_EXPONENTIAL = ("Poisson", "Tweedie")


def put_right(proto: onnx.ModelProto, estimator: Any) -> None:
    """Change a graph with one ensemble of trees so that it computes what its booster does; others are left alone.

    Args:
        proto: as onnxmltools 1.16, skl2onnx 1.20 or CatBoost 1.2 left it; changed in place.
        estimator: what it was made of.
    """
    trees = [node for node in proto.graph.node if node.op_type in _TREES]
    if len(trees) != 1:
        return
    _drop_zero_base(trees[0])
    package = type(estimator).__module__.partition(".")[0]
    if package in ("lightgbm", "onnxmltools"):
        _lightgbm(proto, trees[0], estimator)
    elif package == "xgboost":
        _targets(trees[0], estimator)
    elif package == "catboost" and trees[0].op_type == "TreeEnsembleClassifier":
        _labels(proto, trees[0])
    elif (package == "catboost" and _loss_of(estimator) in _EXPONENTIAL) or (
        type(estimator).__name__ == "HistGradientBoostingRegressor" and estimator.loss in ("poisson", "gamma")
    ):
        _append(proto, "Exp")


def dropped_options(estimator: Any) -> list[str]:
    """Options that the exporters are known to drop, of a booster or an estimator: "linear_tree"."""
    package = type(estimator).__module__.partition(".")[0]
    if package == "lightgbm":
        text = _text(estimator)
        found = [name for name, mark in _LIGHTGBM.items() if mark in text]
        # Bits 2 and 3 of a decision say what stands for a missing value: 1 is zero (LightGBM, include/LightGBM/tree.h).
        decisions = [w for line in text.splitlines() if line.startswith("decision_type=") for w in line[14:].split()]
        found += ["zero_as_missing"] * any(int(d) >> 2 & 3 == 1 for d in decisions)
        return [*found, f"objective={objective_of(text)}"]
    if package == "xgboost":
        return _xgboost(estimator)
    if package == "catboost":
        return [f"loss_function={_loss_of(estimator)}"]
    return []


def missing_number(estimator: Any) -> float | None:
    """The number that an estimator of XGBoost takes for a missing value, besides NaN."""
    missing = getattr(estimator, "missing", None)
    return float(missing) if isinstance(missing, (int, float)) and not np.isnan(missing) else None


def category_notes(estimator: Any) -> list[str]:
    """How LightGBM numbers the categories of the table that it was fitted on: the ONNX file takes the numbers."""
    booster = getattr(estimator, "booster_", estimator)
    known = getattr(booster, "pandas_categorical", None) or ()
    shown = [", ".join(f"{value} is {code}" for code, value in enumerate(values[:5])) for values in known]
    return [f"categories are given to the ONNX file as numbers: {text}" for text in shown]


def _whole_categories(proto: onnx.ModelProto, node: Any, estimator: Any) -> None:
    """LightGBM 4 drops the fraction of a category before it looks it up (`CategoricalDecision` of its tree.h)."""
    from onnx import helper, numpy_helper

    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    pairs = zip(given["nodes_modes"], given["nodes_featureids"], strict=True)
    columns = sorted({feature for mode, feature in pairs if mode == b"BRANCH_EQ"})
    if not columns:
        return
    width = getattr(estimator, "booster_", estimator).num_feature()
    chosen = np.isin(np.arange(width), columns).reshape(1, -1)
    x, names = node.input[0], {n: f"{node.input[0]}.{n}" for n in ("size", "floor", "sign", "whole", "category", "is")}
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


def _lightgbm(proto: onnx.ModelProto, node: Any, estimator: Any) -> None:
    _whole_categories(proto, node, estimator)
    text = _text(estimator)
    objective = objective_of(text)
    words = dict(word.partition(":")[::2] for word in objective.split(" ")[1:])
    if node.op_type == "TreeEnsembleClassifier":
        if objective.startswith("multiclassova"):
            _set(node, "post_transform", "LOGISTIC")
        if objective.startswith(("binary", "multiclassova")):
            _scale(node, float(words.get("sigmoid") or 1.0))
    elif objective.startswith("regression") and "sqrt" in words:
        _append(proto, "Abs", "Mul")  # the sign times the square
    elif LINKS.get(objective.partition(" ")[0]):
        _append(proto, LINKS[objective.partition(" ")[0]])


def _targets(node: Any, estimator: Any) -> None:
    """Which target or class each tree is for: onnxmltools 1.16 gives all to the first target, and the trees of forests
    to the classes in turn.
    """
    booster = booster_of(estimator)
    counts = learner_of(booster)["learner_model_param"]
    if max(int(counts.get(name, "1")) for name in ("num_class", "num_target")) < 2:
        return  # not worth reading the trees
    model = json.loads(bytes(booster.save_raw("json")))["learner"]["gradient_booster"].get("model", {})
    owners = model.get("tree_info", [])
    if len(set(owners)) < 2:
        return
    given = {a.name: a for a in node.attribute}
    kind = "class" if node.op_type == "TreeEnsembleClassifier" else "target"
    given[f"{kind}_ids"].ints[:] = [owners[tree] for tree in given[f"{kind}_treeids"].ints]


def _labels(proto: onnx.ModelProto, node: Any) -> None:
    """ONNX Runtime 1.31 answers 0 and 1 to an ensemble with one score for two classes, whatever numbers they have."""
    from onnx import helper, numpy_helper

    given = {a.name: a for a in node.attribute}
    classes = list(given["classlabels_int64s"].ints) if "classlabels_int64s" in given else []
    if classes in ([], list(range(len(classes)))):
        return
    given["classlabels_int64s"].ints[:] = range(len(classes))
    label, place, table = node.output[0], f"{node.output[0]}.place", f"{node.output[0]}.classes"
    node.output[0] = place
    proto.graph.initializer.append(numpy_helper.from_array(np.array(classes, np.int64), table))
    proto.graph.node.append(helper.make_node("Gather", [table, place], [label]))


def _drop_zero_base(node: Any) -> None:
    """Sums that begin at zero need no numbers to begin at, of which skl2onnx 1.20 writes one for several classes."""
    for attribute in list(node.attribute):
        if attribute.name == "base_values" and not any(attribute.floats):
            node.attribute.remove(attribute)


def _scale(node: Any, factor: float) -> None:
    for attribute in node.attribute:
        if attribute.name in ("class_weights", "base_values") and factor != 1.0:
            attribute.floats[:] = [factor * w for w in attribute.floats]


def _set(node: Any, name: str, value: str) -> None:
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


def _text(estimator: Any) -> str:
    """A LightGBM model in its own file format."""
    booster = getattr(estimator, "booster_", estimator)
    return str(booster.model_to_string())


def _loss_of(estimator: Any) -> str:
    """CatBoost's loss function without its parameters."""
    try:
        return str(estimator.get_all_params().get("loss_function", "")).partition(":")[0]
    except Exception:  # models read from a file know less
        return ""


def _xgboost(estimator: Any) -> list[str]:
    learner = learner_of(booster_of(estimator))
    found = []
    kind = learner["gradient_booster"]["name"]
    if kind != "gbtree":
        found.append(f"booster={kind}")
    if int(learner["learner_model_param"].get("num_target", "1")) > 1:
        found.append("several targets")
    gap = missing_number(estimator)
    if gap is not None:
        found.append(f"missing={gap:g}")
    return [*found, f"objective={learner['objective']['name']}"]
