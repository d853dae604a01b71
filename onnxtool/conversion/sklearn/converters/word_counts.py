"""Counts of words, damped by 1 + log(count). skl2onnx 1.20 writes log(1 + count)."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import numpy as np

from onnxtool.conversion.sklearn.converters.node_writer import NodeWriter


@cache
def register() -> None:
    """Let skl2onnx convert TfidfTransformer, and what is made of one, by this converter."""
    from skl2onnx import update_registered_converter
    from skl2onnx.common._registration import get_shape_calculator
    from sklearn.feature_extraction.text import TfidfTransformer

    alias = "SklearnTfidfTransformer"
    options = {"nan": [True, False]}
    update_registered_converter(
        TfidfTransformer, alias, get_shape_calculator(alias), _convert, overwrite=True, options=options
    )


def _convert(scope: Any, operator: Any, container: Any) -> None:
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType
    from skl2onnx.operator_converters.tfidf_transformer import convert_sklearn_tfidf_transformer

    step, inputs = operator.raw_operator, operator.inputs
    if not step.sublinear_tf:
        convert_sklearn_tfidf_transformer(scope, operator, container)
        return
    doubles = isinstance(inputs[0].type, DoubleTensorType)
    kind = np.float64 if doubles else np.float32
    damped = scope.declare_local_variable(
        "damped", (DoubleTensorType if doubles else FloatTensorType)(inputs[0].type.shape)
    )
    write = NodeWriter(scope, container, "counts")
    zero, one = (write.constant(np.array([number], kind)) for number in (0, 1))
    counted = write.add("Less", zero, inputs[0].full_name)
    logarithm = write.add("Log", write.add("Where", counted, inputs[0].full_name, one))
    write.add("Where", counted, write.add("Add", logarithm, one), zero, name=damped.full_name)
    operator.inputs, operator.raw_operator = [damped], copy.copy(step)
    operator.raw_operator.sublinear_tf = False
    try:
        convert_sklearn_tfidf_transformer(scope, operator, container)
    finally:
        operator.inputs, operator.raw_operator = inputs, step
