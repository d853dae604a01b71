"""CatBoost's models -> ONNX, by their JSON form.

Source: CatBoost, its JSON format (docs "JSON model tutorial"): a float feature above the border goes right; symmetric
trees have one split a level, and the first split is the lowest bit of the leaf's number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from onnxtool.conversion.boosting.catboost_categories import CategoryFeatures, known_categories, model_json
from onnxtool.conversion.boosting.ensembles import BoosterGraph, TreeEnsemble
from onnxtool.conversion.frameworks import Estimator

_SEVERAL_LABELS = ("MultiLogloss", "MultiCrossEntropy")
_USUAL_BOUND = 0.5
_EXPONENTIAL = ("Poisson", "Tweedie")


def _bound(estimator: Estimator) -> float:
    """The probability from which on a classifier gives the second of two classes."""
    try:
        return float(estimator.get_probability_threshold())
    except Exception:  # regressors have none
        return _USUAL_BOUND


def export_catboost(estimator: Estimator) -> onnx.ModelProto:
    """Write the trees of a model; the graph is given the places of categories that are known.

    Raises:
        UnsupportedError: it splits on texts or embeddings, or on categories that are not known.
    """
    model = model_json(estimator)
    scale, bias = model["scale_and_bias"]
    loss = model["model_info"]["params"]["loss_function"]["type"]
    graph, classes = BoosterGraph(), list(getattr(estimator, "classes_", ()))
    features = CategoryFeatures(graph, model, known_categories(estimator))
    ensemble = _ensemble(model, features, scale)
    targets = max(len(bias), ensemble.targets)
    sums = graph.trees(features.matrix(), ensemble, np.broadcast_to(bias, targets).tolist())
    if not classes:
        if loss == "RMSEWithUncertainty":  # the second sum is the logarithm of the standard deviation
            variance = graph.add("Exp", graph.add("Mul", sums, 2.0))
            sums = graph.add("Where", np.array([[True, False]]), sums, variance)
        graph.give_prediction(graph.linked(sums, "Exp" if loss in _EXPONENTIAL else ""))
    elif targets == 1 or loss in _SEVERAL_LABELS:
        # The sum is compared with what gives the bound: the nearest float of a probability may lie on its other side.
        bound = _bound(estimator)
        place = graph.above(sums, float(np.log(bound / (1 - bound))), targets)
        chances = graph.add("Sigmoid", sums)
        graph.give_classes(graph.both(chances) if targets == 1 else chances, classes, place, targets)
    else:
        chances = graph.linked(sums, "Sigmoid" if loss == "MultiClassOneVsAll" else "Softmax")
        graph.give_classes(chances, classes, graph.largest(sums))
    return graph.model(TensorProto.FLOAT, len(estimator.feature_names_))


def _ensemble(model: Mapping[str, Any], features: CategoryFeatures, scale: float) -> TreeEnsemble:
    trees = TreeEnsemble()
    floats = {f["feature_index"]: f for f in model["features_info"].get("float_features", ())}

    def split(given: Mapping[str, Any]) -> dict[str, Any]:
        if given.get("split_type") != "FloatFeature":
            column, border = features.split(given)
            return {"featureids": column, "values": border, "modes": "BRANCH_GT"}
        feature = floats[given["float_feature_index"]]
        return {
            "featureids": feature["flat_feature_index"],
            "values": float(given["border"]),
            "modes": "BRANCH_GT",
            "missing_value_tracks_true": int(feature["nan_value_treatment"] == "AsTrue"),
        }

    for tree, root in enumerate(model.get("trees") or ()):
        _add_grown(trees, tree, root, split, scale)
    for tree, root in enumerate(model.get("oblivious_trees") or ()):
        _add_symmetric(trees, tree, root, split, scale)
    return trees


def _add_grown(trees: TreeEnsemble, tree: int, root: Mapping[str, Any], split: Any, scale: float) -> None:
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


def _add_symmetric(trees: TreeEnsemble, tree: int, root: Mapping[str, Any], split: Any, scale: float) -> None:
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
