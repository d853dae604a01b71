"""Estimators inside others, as operators of their own in the graph that skl2onnx builds."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxtool.conversion.sklearn.converters.node_writer import DOUBLE, NodeWriter
from onnxtool.conversion.sklearn.converters.register import number_type
from onnxtool.errors import UnsupportedError


def classified(
    scope: Any, container: Any, estimator: Any, inputs: Sequence[Any], *, raw: bool = False
) -> tuple[str, str]:
    """The labels [rows] and the scores [rows, classes] (double) of a classifier.

    Args:
        scope, container: what a converter is given.
        estimator: fitted.
        inputs: variables that it is given.
        raw: its decision function stands for probabilities; of two classes the second column counts.

    Raises:
        UnsupportedError: skl2onnx has no converter for it, or none that gives the decision function.
    """
    from skl2onnx.common.data_types import Int64TensorType, StringTensorType

    estimator = (
        getattr(estimator, "estimator", estimator) if type(estimator).__name__ == "FrozenEstimator" else estimator
    )
    # Options are kept by the estimator's id, and one estimator may be asked for both.
    inner = _operator(scope, copy.copy(estimator), inputs)
    texts = np.asarray(estimator.classes_).dtype.kind in "OU"
    labels = scope.declare_local_variable("member_label", (StringTensorType if texts else Int64TensorType)())
    scores = scope.declare_local_variable("member_scores", number_type(inputs[0].type)())
    inner.outputs.append(labels)
    inner.outputs.append(scores)
    options: dict[str, Any] = {"zipmap": False}
    if raw and hasattr(estimator, "predict_proba"):
        options["raw_scores"] = True
    for place in (scope, container):
        known = {name: value for name, value in options.items() if container.has_options(estimator, name)}
        if known.keys() != options.keys() - ({"zipmap"} - known.keys()):
            raise UnsupportedError(f"{type(estimator).__name__}: skl2onnx has no form of its decision_function.")
        place.add_options(id(inner.raw_operator), known)
    return labels.full_name, NodeWriter(scope, container, "member").cast(scores.full_name, DOUBLE)


def score_columns(scope: Any, operator: Any, container: Any, estimator: Any, methods: Sequence[str]) -> str:
    """[rows, classes]: what the first method that a classifier has gives, in doubles."""
    method = next(name for name in methods if hasattr(estimator, name))
    return classified(scope, container, estimator, operator.inputs, raw=method == "decision_function")[1]


def predicted(scope: Any, container: Any, estimator: Any, inputs: Sequence[Any]) -> str:
    """[rows, 1]: what a regressor predicts, in doubles."""
    inner = _operator(scope, estimator, inputs)
    value = scope.declare_local_variable("member_target", number_type(inputs[0].type)([None, 1]))
    inner.outputs.append(value)
    write = NodeWriter(scope, container, "member")
    return write.add("Reshape", write.cast(value.full_name, DOUBLE), write.constant(np.array([-1, 1])))


def _operator(scope: Any, estimator: Any, inputs: Sequence[Any]) -> Any:
    from skl2onnx._parse import _get_sklearn_operator_name

    alias = _get_sklearn_operator_name(type(estimator))
    if alias is None:
        raise UnsupportedError(f"skl2onnx has no converter for {type(estimator).__name__}, which is inside another.")
    inner = scope.declare_local_operator(alias, estimator)
    inner.inputs = list(inputs)
    return inner
