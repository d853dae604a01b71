"""Gradient boosting: what its sums begin with, and the trees of histograms, with their splits on categories.

Source: scikit-learn 1.8, `sklearn.ensemble._hist_gradient_boosting`: a number that is at most the threshold goes left,
a category of the set too; categories that the fit has not seen are missing values (`_predictor.pyx`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import numpy_helper

from onnxtool.conversion.boosting.ensembles import BoosterGraph, TreeEnsemble, add_as_step
from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.sklearn.converters.node_writer import DOUBLE, NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, extension


def _convert(write: NodeWriter, original: Callable[[], None]) -> None:
    start = len(write.container.nodes)
    original()
    for node in write.container.nodes[start:]:
        for attribute in [a for a in node.attribute if a.name == "base_values_as_tensor"]:
            if not numpy_helper.to_array(attribute.t).any():
                node.attribute.remove(attribute)


def _convert_histograms(write: NodeWriter, _original: Callable[[], None]) -> None:
    model, graph, trees = write.step, BoosterGraph(np.float64), TreeEnsemble()
    members = ((target, member) for stage in model._predictors for target, member in enumerate(stage))
    for number, (target, member) in enumerate(members):
        _add_tree(trees, number, member, target)
    sums = graph.trees("X", trees, np.asarray(model._baseline_prediction, np.float64).ravel().tolist())
    several = model.n_trees_per_iteration_ > 1
    if not hasattr(model, "classes_"):
        graph.give_prediction(graph.linked(sums, "Exp" if model.loss in ("poisson", "gamma") else ""))
    elif write.asks_scores:
        graph.give_decided(sums, model.classes_, several)
    else:
        chances = graph.linked(sums, "Softmax") if several else graph.both(graph.add("Sigmoid", sums))
        graph.give_decided(sums, model.classes_, several, chances)
    add_as_step(write, graph.model(DOUBLE, model.n_features_in_))


def _add_tree(trees: TreeEnsemble, number: int, member: Estimator, target: int) -> None:
    following = len(member.nodes)
    for place, node in enumerate(member.nodes):
        asked = {"featureids": int(node["feature_idx"]), "missing_value_tracks_true": int(node["missing_go_to_left"])}
        left, right = int(node["left"]), int(node["right"])
        if node["is_leaf"]:
            trees.add_leaf(number, place, {target: node["value"]})
        elif node["is_categorical"]:
            words = member.raw_left_cat_bitsets[node["bitset_idx"]]
            inside = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
            numbers = inside.tolist() or [-1]  # where missing values alone go left
            following = trees.add_set(number, place, following, numbers, left, right, **asked)
        else:
            trees.add_node(
                number, place, **asked, values=float(node["num_threshold"]), modes="BRANCH_LEQ", truenodeids=left,
                falsenodeids=right,
            )  # fmt: skip


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 writes one zero to begin at for several classes; of histograms it rounds what the sums begin with "
    "to float32, stops at the sum of leaves, and takes categories for numbers",
    *(extension(f"sklearn.ensemble:GradientBoosting{of}", _convert) for of in ("Classifier", "Regressor")),
    *(
        extension(f"sklearn.ensemble:HistGradientBoosting{of}", _convert_histograms)
        for of in ("Classifier", "Regressor")
    ),
)
