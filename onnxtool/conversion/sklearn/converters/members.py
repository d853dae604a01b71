"""Estimators inside others, as operators of their own in the graph that skl2onnx builds."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.sklearn.converters.node_writer import DOUBLE, FLOAT, NodeWriter
from onnxtool.conversion.sklearn.converters.register import number_type
from onnxtool.conversion.sklearn.prepare import plain
from onnxtool.errors import UnsupportedError


def classified(write: NodeWriter, estimator: Estimator, inputs: Sequence[Any], *, raw: bool = False) -> tuple[str, str]:
    """The labels [rows] and the scores [rows, classes] (double) of a classifier.

    Args:
        write: of the estimator around it.
        estimator: fitted.
        inputs: variables that it is given.
        raw: its decision function stands for probabilities; of two classes the second column counts.

    Raises:
        UnsupportedError: skl2onnx has no converter for it, or none that gives the decision function.
    """
    from skl2onnx.common.data_types import Int64TensorType, StringTensorType

    estimator, inputs = behind_steps(write, estimator, inputs)
    # Options are kept by the estimator's id, and one estimator may be asked for both.
    inner = member(write, copy.copy(estimator), inputs)
    texts = np.asarray(estimator.classes_).dtype.kind in "OU"
    labels = write.variable("member_label", (StringTensorType if texts else Int64TensorType)())
    scores = write.variable("member_scores", number_type(inputs[0].type)())
    inner.outputs.append(labels)
    inner.outputs.append(scores)
    options: dict[str, Any] = {"zipmap": False}
    if raw:
        options["raw_scores"] = True
        if hasattr(estimator, "predict_proba") and not write.container.has_options(estimator, "raw_scores"):
            raise UnsupportedError(f"{type(estimator).__name__}: skl2onnx has no form of its decision_function.")
    for place in (write.scope, write.container):
        place.add_options(id(inner.raw_operator), options)
    return labels.full_name, write.cast(scores.full_name, DOUBLE)


def behind_steps(write: NodeWriter, estimator: Estimator, inputs: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The last step of a pipeline, and what it is given there; any other estimator, with a matrix of all columns."""
    from skl2onnx._parse import _parse_sklearn

    given = list(inputs)
    estimator = plain(estimator)
    while steps := getattr(estimator, "steps", None):
        for _, step in steps[:-1]:
            if step is not None and not isinstance(step, str):
                given = list(_parse_sklearn(write.scope, step, given))
        estimator = steps[-1][1]
    if len(given) > 1:
        kind = number_type(given[0].type)
        merged = write.variable("merged", kind([None, None]))
        names = [write.cast(g.full_name, DOUBLE if kind.__name__ == "DoubleTensorType" else FLOAT) for g in given]
        write.add("Concat", *names, axis=1, name=merged.full_name)
        merged.init_status(is_fed=True)
        given = [merged]
    return estimator, given


def score_columns(write: NodeWriter, estimator: Estimator, methods: Sequence[str]) -> str:
    """[rows, classes]: what the first method that a classifier has gives, in doubles."""
    method = next(name for name in methods if hasattr(estimator, name))
    return classified(write, estimator, write.inputs, raw=method == "decision_function")[1]


def scores_of_pairs(write: NodeWriter, chosen: str, confidences: str, count: int) -> str:
    """[rows, classes]: votes, and less than a vote for how sure they are.

    Args:
        write: adds nodes.
        chosen: [rows, pairs], doubles: 0 where a pair's first class is chosen, 1 where its second is.
        confidences: [rows, pairs], doubles: the larger, the more for the second.
        count: of classes.

    Source: scikit-learn, `sklearn.utils.multiclass._ovr_decision_function`.
    """
    first, second = sides_of_pairs(count)
    against = write.add("MatMul", write.add("Sub", 1.0, chosen), first)
    votes = write.add("Add", write.add("MatMul", chosen, second), against)
    total = write.add("MatMul", confidences, second - first)
    small = write.add("Mul", write.add("Add", write.add("Abs", total), 1.0), 3.0)
    return write.add("Add", votes, write.add("Div", total, small))


def sides_of_pairs(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Two matrices [pairs, classes]: ones where a class is a pair's first, and where it is its second."""
    first, second = zip(*combinations(range(count), 2), strict=True)
    return np.eye(count)[list(first)], np.eye(count)[list(second)]


def logistic_of(write: Any, scores: str) -> str:
    """1 / (1 + exp(-scores)) in doubles, as scipy's expit: right down to 1e-308, and 0 below."""
    return str(write.add("Div", 1.0, write.add("Add", write.add("Exp", write.add("Neg", scores)), 1.0)))


def give_posterior(write: NodeWriter, logs: str) -> None:
    """Make logarithms of likelihoods [rows, classes] the chances, or the decision function where that is asked for: of
    two classes how far the second is ahead.

    Source: scikit-learn, `sklearn.discriminant_analysis.DiscriminantAnalysisPredictionMixin`.
    """
    if not write.asks_scores:
        logs = write.add("Softmax", logs, axis=1)
    elif len(write.step.classes_) == 2:
        logs = write.add("Sub", logs, write.add("Gather", logs, np.array([1, 0]), axis=1))
    write.give(logs, write.outputs[1])


def predicted(write: NodeWriter, estimator: Estimator, inputs: Sequence[Any], targets: int = 1) -> str:
    """[rows, targets]: what a regressor predicts, in doubles."""
    estimator, inputs = behind_steps(write, estimator, inputs)
    inner = member(write, estimator, inputs)
    value = write.variable("member_target", number_type(inputs[0].type)([None, targets]))
    inner.outputs.append(value)
    return write.add("Reshape", write.cast(value.full_name, DOUBLE), np.array([-1, targets]))


def member(write: NodeWriter, estimator: Estimator, inputs: Sequence[Any]) -> Any:
    """An operator of skl2onnx's for an estimator inside another.

    Raises:
        UnsupportedError: skl2onnx has no converter for it.
    """
    from skl2onnx._parse import _get_sklearn_operator_name

    alias = _get_sklearn_operator_name(type(estimator))
    if alias is None:
        raise UnsupportedError(f"skl2onnx has no converter for {type(estimator).__name__}, which is inside another.")
    inner = write.scope.declare_local_operator(alias, estimator)
    inner.inputs = list(inputs)
    return inner
