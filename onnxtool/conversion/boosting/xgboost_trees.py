"""XGBoost's models -> ONNX: trees and linear functions, and what the objectives make of their sums.

Source: XGBoost 3, its JSON format, where a number below the threshold goes left and a category of the set right (one
below zero or unknown is in no set, and of others the fraction is dropped: src/common/categorical.h); the objectives'
PredTransform and ProbToMargin (src/objective), and src/gbm/gblinear.cc.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from onnxtool.conversion.boosting.boosters import booster_of, learner_of
from onnxtool.conversion.boosting.ensembles import OPSET, BoosterGraph, TreeEnsemble
from onnxtool.conversion.frameworks import Booster, Estimator
from onnxtool.errors import UnsupportedError

_EXPONENTIAL = ("count:poisson", "reg:gamma", "reg:tweedie", "survival:cox", "survival:aft")
_LOGISTIC = ("reg:logistic", "binary:logistic")
_SOFTMAX = ("multi:softprob", "multi:softmax")
_LINKS = {
    **dict.fromkeys(_EXPONENTIAL, "Exp"),
    **dict.fromkeys(_LOGISTIC, "Sigmoid"),
    **dict.fromkeys(_SOFTMAX, "Softmax"),
    **dict.fromkeys(("squarederror", "squaredlogerror", "pseudohubererror", "absoluteerror", "quantileerror"), ""),
    **dict.fromkeys(("pairwise", "ndcg", "map", "logitraw", "hinge"), ""),
}


def is_linear(estimator: Estimator) -> bool:
    """Whether a model of XGBoost is a linear one."""
    if type(estimator).__module__.partition(".")[0] != "xgboost":
        return False
    return bool(learner_of(booster_of(estimator))["gradient_booster"]["name"] == "gblinear")


def export_xgboost(estimator: Estimator, opset: int = OPSET) -> onnx.ModelProto:
    """Write the sums of a model, and what its objective makes of them.

    Args:
        estimator: a Booster, a regressor or a classifier, which gives probabilities whatever its objective gives.
        opset: of the standard operators.

    Raises:
        UnsupportedError: an objective without a form here.
    """
    booster = booster_of(estimator)
    objective, linear = learner_of(booster)["objective"]["name"], is_linear(estimator)
    link = _LINKS.get(objective, _LINKS.get(objective.partition(":")[2]))
    if link is None or (linear and objective.startswith("survival:")):
        what = f"XGBoost ({'booster=gblinear, ' if linear else ''}objective={objective})"
        raise UnsupportedError(f"{what}: has no ONNX form here.")
    graph = BoosterGraph()
    sums, targets = _linear_sums(graph, booster) if linear else _tree_sums(graph, estimator, objective)
    classes = getattr(estimator, "classes_", ())
    linked = graph.linked(sums, link)
    if objective == "binary:hinge":
        linked = graph.add("Cast", graph.add("Greater", sums, 0.0), to=TensorProto.FLOAT)
    if not len(classes):
        if objective == "multi:softmax":
            linked = graph.add("Cast", graph.add("ArgMax", linked, axis=1), to=TensorProto.FLOAT)
        graph.give_prediction(linked)
    elif link == "Softmax":
        graph.give_classes(linked, classes, graph.largest(sums))
    else:  # one label, or several that are independent
        place = graph.above(sums, 0.5 if objective == "binary:logitraw" else 0.0, targets)
        graph.give_classes(graph.both(linked) if targets == 1 else linked, [0, 1], place, targets)
    return graph.model(TensorProto.FLOAT, booster.num_features(), max(opset, 13))


def _linear_sums(graph: BoosterGraph, booster: Booster) -> tuple[str, int]:
    """The weighted features, of which missing ones add nothing; what is added is what the booster gives for zeros."""
    import xgboost

    features = booster.num_features()
    model = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]["model"]
    table = np.array(model["weights"], np.float64).reshape(features + 1, -1)
    none = xgboost.DMatrix(np.zeros((1, features), np.float32), feature_names=booster.feature_names)
    at_zero = booster.predict(none, output_margin=True, validate_features=False)
    filled = graph.add("Where", graph.add("IsNaN", "X"), 0.0, "X")
    weights, bias = table[:-1].astype(np.float32), np.asarray(at_zero, np.float32).reshape(-1)
    return graph.add("Gemm", filled, weights, bias), weights.shape[1]


def _tree_sums(graph: BoosterGraph, estimator: Estimator, objective: str) -> tuple[str, int]:
    """Of the rounds that count, where training was to stop."""
    booster, best = booster_of(estimator), getattr(estimator, "best_iteration", None)
    learner = json.loads(bytes((booster if best is None else booster[: best + 1]).save_raw("json")))["learner"]
    body, counts = learner["gradient_booster"], learner["learner_model_param"]
    weights = body.get("weight_drop")  # of DART, whose trees are those of a booster inside
    model = body.get("gbtree", body)["model"]
    ensemble, categories = TreeEnsemble(), np.zeros((1, booster.num_features()), bool)
    for number, (tree, target) in enumerate(zip(model["trees"], model["tree_info"], strict=True)):
        _add_tree(ensemble, number, tree, int(target), 1.0 if weights is None else weights[number])
        categories[0, [tree["split_indices"][node] for node in tree["categories_nodes"]]] = True
    targets = max(1, int(counts.get("num_class", "1")), int(counts.get("num_target", "1")))
    begin = np.atleast_1d(np.array(json.loads(counts["base_score"]), np.float32))
    with np.errstate(divide="ignore"):
        if objective in _EXPONENTIAL:
            begin = np.log(begin)
        elif objective in _LOGISTIC:
            begin = -np.log(np.float32(1) / begin - np.float32(1))
    x = "X"
    if categories.any():  # a category below zero is none
        x = graph.add("Where", categories, graph.add("Floor", x), x)
    return graph.trees(x, ensemble, np.broadcast_to(begin, targets).tolist()), targets


def _add_tree(ensemble: TreeEnsemble, number: int, tree: Mapping[str, Any], target: int, weight: float) -> None:
    left, right, numbers = tree["left_children"], tree["right_children"], np.array(tree["split_conditions"], np.float32)
    leaves, sets = _leaves_of(tree, numbers, target), _categories_of(tree)
    following, reached, pending = len(left), set[int](), [0]  # nodes that were taken out again are still listed
    while pending:
        node = pending.pop()
        reached.add(node)
        pending += [left[node], right[node]] if left[node] >= 0 else []
    for node in sorted(reached):
        if left[node] < 0:
            ensemble.add_leaf(
                number, node, {place: float(np.float32(weight * value)) for place, value in leaves[node].items()}
            )
            continue
        asked, missing = {"featureids": tree["split_indices"][node]}, bool(tree["default_left"][node])
        if node not in sets:
            ensemble.add_node(
                number, node, **asked, values=float(numbers[node]), modes="BRANCH_LT", truenodeids=left[node],
                falsenodeids=right[node], missing_value_tracks_true=int(missing),
            )  # fmt: skip
            continue
        following = ensemble.add_set(
            number, node, following, sets[node], right[node], left[node], **asked,
            missing_value_tracks_true=int(not missing),
        )  # fmt: skip


def _leaves_of(tree: Mapping[str, Any], numbers: np.ndarray, target: int) -> dict[int, dict[int, np.float32]]:
    """What each leaf adds to which target: one number, or one for each target."""
    count = int(tree["tree_param"].get("size_leaf_vector", "1"))
    leaves = [node for node, child in enumerate(tree["left_children"]) if child < 0]
    if count <= 1:
        return {node: {target: numbers[node]} for node in leaves}
    if "leaf_weights" not in tree:
        raise UnsupportedError("XGBoost: leaves of several numbers are read as XGBoost 3.2 and newer write them.")
    rows = np.array(tree["leaf_weights"], np.float32).reshape(-1, count)
    return {node: dict(enumerate(rows[tree["right_children"][node]])) for node in leaves}


def _categories_of(tree: Mapping[str, Any]) -> dict[int, list[int]]:
    """Of each node that asks for categories those that go right, never none."""
    spans = zip(tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"], strict=True)
    return {node: tree["categories"][start : start + size] for node, start, size in spans}
