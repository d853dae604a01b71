"""Estimators inside others, as operators of their own in the graph that skl2onnx builds."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.sklearn.converters.node_writer import DOUBLE, NodeWriter
from onnxtool.conversion.sklearn.converters.register import number_type
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

    if type(estimator).__name__ == "FrozenEstimator":
        estimator = getattr(estimator, "estimator", estimator)
    # Options are kept by the estimator's id, and one estimator may be asked for both.
    inner = member(write, copy.copy(estimator), inputs)
    texts = np.asarray(estimator.classes_).dtype.kind in "OU"
    labels = write.variable("member_label", (StringTensorType if texts else Int64TensorType)())
    scores = write.variable("member_scores", number_type(inputs[0].type)())
    inner.outputs.append(labels)
    inner.outputs.append(scores)
    options: dict[str, Any] = {"zipmap": False}
    if raw and hasattr(estimator, "predict_proba"):
        options["raw_scores"] = True
    for place in (write.scope, write.container):
        known = {name: value for name, value in options.items() if write.container.has_options(estimator, name)}
        if known.keys() != options.keys() - ({"zipmap"} - known.keys()):
            raise UnsupportedError(f"{type(estimator).__name__}: skl2onnx has no form of its decision_function.")
        place.add_options(id(inner.raw_operator), known)
    return labels.full_name, write.cast(scores.full_name, DOUBLE)


def score_columns(write: NodeWriter, estimator: Estimator, methods: Sequence[str]) -> str:
    """[rows, classes]: what the first method that a classifier has gives, in doubles."""
    method = next(name for name in methods if hasattr(estimator, name))
    return classified(write, estimator, write.inputs, raw=method == "decision_function")[1]


def predicted(write: NodeWriter, estimator: Estimator, inputs: Sequence[Any]) -> str:
    """[rows, 1]: what a regressor predicts, in doubles."""
    inner = member(write, estimator, inputs)
    value = write.variable("member_target", number_type(inputs[0].type)([None, 1]))
    inner.outputs.append(value)
    return write.add("Reshape", write.cast(value.full_name, DOUBLE), np.array([-1, 1]))


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
