"""Votes of classifiers: Bagging, AdaBoost and VotingClassifier, by their members' chances or labels.

Source: scikit-learn, `sklearn.ensemble.BaggingClassifier`, `AdaBoostClassifier` and `VotingClassifier`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxtool.conversion.boosting.ensembles import TreeEnsemble
from onnxtool.conversion.sklearn.converters.members import classified
from onnxtool.conversion.sklearn.converters.node_writer import DOUBLE, INT64, NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, extension, number_type


def _convert_bagging(write: NodeWriter, _original: Callable[[], None]) -> None:
    model = write.step
    given, whole = write.inputs[0], np.arange(model.n_features_in_)
    soft = hasattr(model.estimators_[0], "predict_proba")
    votes, scores = [], []
    for member, columns in zip(model.estimators_, model.estimators_features_, strict=True):
        seen: Any = given
        if not np.array_equal(columns, whole):
            seen = write.variable("member_columns", number_type(given.type)([None, len(columns)]))
            write.add("Gather", given.full_name, np.asarray(columns, np.int64), axis=1, name=seen.full_name)
        votes.append(_vote(write, member, [seen], soft=soft))
        if write.asks_scores:
            scores.append(classified(write, member, [seen], raw=True)[1])
    _give_mean(write, votes, scores or votes, np.ones(len(votes)))


def _convert_adaboost(write: NodeWriter, original: Callable[[], None]) -> None:
    model, classes = write.step, np.asarray(write.step.classes_)
    if any(type(member).__name__ != "DecisionTreeClassifier" for member in model.estimators_):
        original()
        return
    sums = write.add("Div", _sum_of_trees(write, classes), float(model.estimator_weights_.sum()))
    if len(classes) > 2:
        place = write.add("ArgMax", sums, axis=1, keepdims=0)
        scores, logits = sums, write.add("Div", sums, len(classes) - 1.0)
    else:  # the second's
        place = write.cast(write.add("Reshape", write.add("Greater", sums, 0.0), np.array([-1])), INT64)
        logits = write.columns([write.add("Neg", sums), sums])
        scores = write.add("Add", logits, logits)
    write.give_labels(place, classes)
    write.give(scores if write.asks_scores else write.add("Softmax", logits, axis=1), write.outputs[1])


def _sum_of_trees(write: NodeWriter, classes: np.ndarray) -> str:
    """[rows, classes], or [rows, 1] of the second of two: a tree's weight for the class that it finds, a share of it
    against each other. One ensemble, whose leaves hold what they add.
    """
    model, trees = write.step, TreeEnsemble()
    weights = np.asarray(model.estimator_weights_, np.float64)[: len(model.estimators_)]
    # Sums are given in float32, so there are two: of multiples of the last place that such a sum has, and of the rest.
    place = 2.0 ** (np.ceil(np.log2(np.abs(weights).sum())) - 24)
    for number, (member, weight) in enumerate(zip(model.estimators_, weights, strict=True)):
        tree = member.tree_
        for node, (left, right) in enumerate(zip(tree.children_left, tree.children_right, strict=True)):
            if left >= 0:
                trees.add_node(
                    number, node, featureids=int(tree.feature[node]), values=float(tree.threshold[node]),
                    modes="BRANCH_LEQ", truenodeids=int(left), falsenodeids=int(right),
                    missing_value_tracks_true=int(tree.missing_go_to_left[node]),
                )  # fmt: skip
                continue
            found = classes == member.classes_[tree.value[node, 0].argmax()]
            votes = np.where(found, weight, -weight / (len(classes) - 1))[0 if len(classes) > 2 else 1 :]
            coarse = np.round(votes / place) * place
            trees.add_leaf(number, node, dict(enumerate([*coarse, *(votes - coarse)])))
    sums = write.add_of("ai.onnx.ml", 3, "TreeEnsembleRegressor", write.joined(), **trees.attributes)
    return write.add("Add", *write.split(write.cast(sums, DOUBLE), [trees.targets // 2] * 2))


def _convert_voting(write: NodeWriter, _original: Callable[[], None]) -> None:
    model = write.step
    votes = [_vote(write, member, write.inputs, soft=model.voting == "soft") for member in model.estimators_]
    weights = model._weights_not_none
    _give_mean(write, votes, votes, np.ones(len(votes)) if weights is None else np.asarray(weights, np.float64))


def _vote(write: NodeWriter, member: Any, inputs: Sequence[Any], *, soft: bool) -> str:
    """[rows, classes], doubles. Members know the classes by their places, and may not have seen all of them."""
    count = len(write.step.classes_)
    label, chances = classified(write, member, inputs)
    if not soft:
        places = write.add("Reshape", label, np.array([-1, 1]))
        return write.cast(write.add("Equal", places, np.arange(count)[None]), DOUBLE)
    seen = np.asarray(member.classes_, np.int64)
    return chances if len(seen) == count else write.add("MatMul", chances, np.eye(count)[seen])


def _give_mean(write: NodeWriter, votes: Sequence[str], scores: Sequence[str], weights: np.ndarray) -> None:
    """The label of the largest mean of votes, and the mean of scores."""
    mean = _mean(write, votes, weights)
    write.give_labels(write.add("ArgMax", mean, axis=1, keepdims=0), write.step.classes_)
    write.give(mean if scores is votes else _mean(write, scores, weights), write.outputs[1])


def _mean(write: NodeWriter, values: Sequence[str], weights: np.ndarray) -> str:
    parts = [v if w == 1 else write.add("Mul", v, float(w)) for v, w in zip(values, weights, strict=True)]
    total = parts[0]
    for part in parts[1:]:
        total = write.add("Add", total, part)
    return write.add("Div", total, float(weights.sum()))


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 takes the most frequent vote of all rows together, and linear discriminants for logistic ones; of "
    "AdaBoost it writes seven nodes for each tree",
    extension("sklearn.ensemble:BaggingClassifier", _convert_bagging),
    extension("sklearn.ensemble:AdaBoostClassifier", _convert_adaboost),
    extension("sklearn.ensemble:VotingClassifier", _convert_voting),
)
