"""Votes of classifiers: Bagging and VotingClassifier, by their members' chances or labels.

Source: scikit-learn, `sklearn.ensemble.BaggingClassifier` and `sklearn.ensemble.VotingClassifier`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxtool.conversion.sklearn.converters.members import classified
from onnxtool.conversion.sklearn.converters.node_writer import DOUBLE, NodeWriter
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
    "skl2onnx 1.20 takes the most frequent vote of all rows together, and linear discriminants for logistic ones",
    extension("sklearn.ensemble:BaggingClassifier", _convert_bagging),
    extension("sklearn.ensemble:VotingClassifier", _convert_voting),
)
