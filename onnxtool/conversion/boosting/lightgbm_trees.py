"""LightGBM's models -> ONNX, by their dump.

Source: LightGBM 4, src/io/tree.cpp and include/LightGBM/tree.h: a leaf of a linear tree adds its constant and its
coefficients times the features, and its plain value where one of them is missing; of a category the fraction is dropped
before it is looked up. What the objectives make of the sums: src/objective, ConvertOutput.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from onnxtool.conversion.boosting.boosters import text_of
from onnxtool.conversion.boosting.ensembles import BoosterGraph, TreeEnsemble
from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.sklearn.converters.node_writer import FLOAT
from onnxtool.conversion.sklearn.raw_thresholds import of_lightgbm
from onnxtool.errors import UnsupportedError

_ZERO = float(np.float32(1e-35))  # kZeroThreshold: smaller numbers are zero
_LINKS = {
    **dict.fromkeys(("poisson", "gamma", "tweedie"), "Exp"),
    "cross_entropy": "Sigmoid",
    "cross_entropy_lambda": "Softplus",
    **dict.fromkeys(("", "regression", "regression_l1", "huber", "fair", "quantile", "mape"), ""),
    **dict.fromkeys(("lambdarank", "rank_xendcg", "binary", "multiclass", "multiclassova"), ""),
}


def export_lightgbm(
    estimator: Estimator, kind: int, classes: Sequence[Any] = (), *, raw: bool = False
) -> onnx.ModelProto:
    """Write the trees; each coefficient of a linear leaf is a target of the ensemble, one for each feature.

    Args:
        estimator: fitted, or a Booster.
        kind: ONNX's number of the element type of the input.
        classes: labels, for a Booster that is to give them.
        raw: the sums stand for the probabilities.

    Raises:
        UnsupportedError: categories beside linear leaves, or an objective without a form here.
    """
    dump, text = getattr(estimator, "booster_", estimator).dump_model(), text_of(estimator)
    count, width = int(dump["num_tree_per_iteration"]), int(dump["max_feature_idx"]) + 1
    linear = "\nis_linear=1" in text
    # A forest gives the mean of its trees; its scores are their sum.
    weight = count / len(dump["tree_info"]) if dump.get("average_output") and not raw else 1.0
    trees = _Trees(linear, width, weight)
    for number, tree in enumerate(dump["tree_info"]):
        trees.add(number, tree["tree_structure"], (number % count) * (1 + width if linear else 1))
    plain = kind == FLOAT and not linear and not trees.zeros.any()
    graph = BoosterGraph(np.float32 if plain else np.float64)
    x = compared = "X" if plain else graph.add("Cast", "X", to=onnx.TensorProto.DOUBLE)
    if trees.zeros.any():
        zeros = graph.add("And", graph.add("LessOrEqual", graph.add("Abs", x), _ZERO), trees.zeros)
        compared = graph.add("Where", zeros, np.nan, x)
    if trees.categories.any():
        whole = graph.add("Mul", graph.add("Floor", graph.add("Abs", x)), graph.add("Sign", x))
        compared = graph.add("Where", trees.categories, whole, compared)
    if linear:  # leaves ask for missing values, whatever the splits take them for
        compared = graph.add("Concat", compared, x, axis=1)
    sums = graph.trees(compared, trees.ensemble, [0.0] * count * (1 + width if linear else 1))
    if linear:
        sums = graph.add("Reshape", sums, np.array([-1, count, 1 + width]))
        slopes = graph.add("Gather", sums, np.arange(1, 1 + width), axis=2)
        rows = graph.add("Unsqueeze", x, np.array([1]))
        # A feature that no leaf multiplies may be missing.
        steps = graph.add("Where", graph.add("Equal", slopes, 0.0), 0.0, graph.add("Mul", slopes, rows))
        start = graph.add("Gather", sums, np.array(0), axis=2)
        sums = graph.add("Add", start, graph.add("ReduceSum", steps, np.array([2]), keepdims=0))
    _give(graph, sums, str(dump.get("objective", "")), getattr(estimator, "classes_", classes), raw)
    return graph.model(kind, width)


def _give(graph: BoosterGraph, sums: str, objective: str, classes: Sequence[Any], raw: bool) -> None:
    """What the objective makes of the sums [rows, targets], as outputs of the graph."""
    word, words = objective.split(" ")[0], dict(w.partition(":")[::2] for w in objective.split(" ")[1:])
    if word not in _LINKS or (not word and len(classes)):
        raise UnsupportedError(f"LightGBM: objective={word} has no ONNX form here.")
    several = word in ("multiclass", "multiclassova")
    if not len(classes) and word != "binary" and not several:
        if "sqrt" in words:
            sums = graph.add("Mul", sums, graph.add("Abs", sums))
        graph.give_prediction(graph.linked(sums, _LINKS[word]))
        return
    steep = float(words.get("sigmoid") or 1.0)
    if raw:
        chances = ""
    elif word == "multiclass":
        chances = graph.linked(sums, "Softmax")
    else:
        chances = graph.add("Sigmoid", sums if steep == 1 else graph.add("Mul", sums, steep))
        chances = chances if several else graph.both(chances)
    known = classes if len(classes) else range(max(2, int(words.get("num_class") or 2)))
    graph.give_decided(sums, known, several, chances)


class _Trees:
    """The trees of a model, as they are read.

    Attributes:
        ensemble: the trees.
        zeros, categories: bool[1, features]: of which zeros are missing values, and which are categories.
    """

    def __init__(self, linear: bool, width: int, weight: float) -> None:
        self.ensemble = TreeEnsemble()
        self.zeros, self.categories = np.zeros((1, width), bool), np.zeros((1, width), bool)
        self._linear, self._width, self._weight = linear, width, weight

    def add(self, tree: int, root: Mapping[str, Any], target: int) -> None:
        pending, following = [(0, root)], 1
        while pending:
            number, node = pending.pop()
            if "split_index" not in node:
                following = self._add_leaf(tree, number, following, node, target)
                continue
            low, high, following = following, following + 1, following + 2
            pending += [(low, node["left_child"]), (high, node["right_child"])]
            feature, missing = int(node["split_feature"]), node["missing_type"]
            if node["decision_type"] == "==":
                if self._linear:
                    raise UnsupportedError(
                        "LightGBM: categories with linear_tree have no ONNX form here; encode them before."
                    )
                self.categories[0, feature] = True
                sets = str(node["threshold"]).split("||")
                following = self.ensemble.add_set(tree, number, following, sets, low, high, featureids=feature)
                continue
            self.zeros[0, feature] |= missing == "Zero"
            threshold = of_lightgbm(float(node["threshold"]))
            # Where nothing is missing, NaN is taken for zero.
            goes_low = threshold >= 0 if missing == "None" else node["default_left"]
            self._ask(tree, number, feature, threshold, "BRANCH_LEQ", low, high, goes_low)

    def _ask(
        self, tree: int, number: int, feature: int, value: float, mode: str, low: int, high: int, gap: bool = False
    ) -> None:
        self.ensemble.add_node(
            tree, number, featureids=feature, values=value, modes=mode, truenodeids=low, falsenodeids=high,
            missing_value_tracks_true=int(gap),
        )  # fmt: skip

    def _add_leaf(self, tree: int, number: int, following: int, leaf: Mapping[str, Any], target: int) -> int:
        """A leaf; in front of a linear one, a question for each feature whether it is missing. Gives the next number.

        The features as they were given stand behind those that splits compare.
        """
        features = [int(f) for f in leaf.get("leaf_features") or ()]
        for feature in features:
            self._ask(tree, number, self._width + feature, np.inf, "BRANCH_LEQ", following, following + 1)
            self.ensemble.add_leaf(tree, following + 1, {target: self._weight * leaf["leaf_value"]})
            number, following = following, following + 2
        slopes = {target + 1 + f: self._weight * c for f, c in zip(features, leaf.get("leaf_coeff") or (), strict=True)}
        start = leaf["leaf_const"] if features else leaf.get("leaf_const", leaf["leaf_value"])
        self.ensemble.add_leaf(tree, number, {target: self._weight * start, **slopes})
        return following
