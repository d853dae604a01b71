"""Functions of NumPy that a FunctionTransformer applies, which skl2onnx 1.20 has no converter for."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from onnxtool.conversion.sklearn.converters.node_writer import DOUBLE, FLOAT, NodeWriter
from onnxtool.errors import UnsupportedError

# Those that are one operator; all have a kernel for doubles.
_OPERATORS: dict[Any, str] = {
    np.abs: "Abs", np.exp: "Exp", np.log: "Log", np.negative: "Neg", np.sqrt: "Sqrt", np.sign: "Sign",
    np.floor: "Floor", np.ceil: "Ceil", np.reciprocal: "Reciprocal", np.tanh: "Tanh", np.sin: "Sin", np.cos: "Cos",
}  # fmt: skip


def written(write: NodeWriter, function: Any, value: str) -> str | None:
    """What a function makes of a double; None where it has no ONNX form here.

    Args:
        write: adds nodes.
        function: of NumPy; None is the identity.
        value: any shape.
    """
    further: dict[Any, Callable[[], str]] = {
        np.square: lambda: write.add("Mul", value, value),
        np.expm1: lambda: _expm1(write, value),
        np.exp2: lambda: write.add("Pow", write.constant(np.array([2.0])), value),
        np.log1p: lambda: _log1p(write, value),
        np.log2: lambda: _scaled_logarithm(write, value, np.log(2)),
        np.log10: lambda: _scaled_logarithm(write, value, np.log(10)),
        np.cbrt: lambda: _cube_root(write, value),
    }
    if function is None:
        return value
    try:
        if function in _OPERATORS:
            return write.add(_OPERATORS[function], value)
        return further[function]() if function in further else None
    except TypeError:  # what cannot be looked up is none of NumPy's
        return None


def _expm1(write: NodeWriter, value: str) -> str:
    """tanh(x / 2) (e^x + 1) is e^x - 1, and keeps the digits of small numbers."""
    half = write.add("Tanh", write.add("Mul", value, write.constant(np.array([0.5]))))
    return write.add("Mul", half, write.add("Add", write.add("Exp", value), write.constant(np.ones(1))))


def _log1p(write: NodeWriter, value: str) -> str:
    """In doubles log(1 + x) is right to 1e-16 of 1, which float32 does not show unless x is as small as that."""
    return write.add("Log", write.add("Add", value, write.constant(np.ones(1))))


def _scaled_logarithm(write: NodeWriter, value: str, by: float) -> str:
    return write.add("Div", write.add("Log", value), write.constant(np.array([by])))


def _cube_root(write: NodeWriter, value: str) -> str:
    root = write.add("Pow", write.add("Abs", value), write.constant(np.array([1 / 3])))
    return write.add("Mul", write.add("Sign", value), root)


@cache
def register() -> None:
    """Let skl2onnx convert FunctionTransformer by this converter."""
    from skl2onnx import update_registered_converter
    from sklearn.preprocessing import FunctionTransformer

    alias = "SklearnFunctionTransformer"  # the parser treats the identity by that name
    update_registered_converter(FunctionTransformer, alias, _shapes, _convert, overwrite=True)


def _shapes(operator: Any) -> None:
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType
    from skl2onnx.shape_calculators.function_transformer import calculate_sklearn_function_transformer_output_shapes

    step = operator.raw_operator
    operator.raw_operator = _identity(step)
    try:
        calculate_sklearn_function_transformer_output_shapes(operator)
    finally:
        operator.raw_operator = step
    if step.func is not None and not isinstance(operator.outputs[0].type, DoubleTensorType):
        operator.outputs[0].type = FloatTensorType(operator.outputs[0].type.shape)


def _identity(step: Any) -> Any:
    found = copy.copy(step)
    found.func = None
    return found


def _convert(scope: Any, operator: Any, container: Any) -> None:
    from skl2onnx.common.data_types import DoubleTensorType
    from skl2onnx.operator_converters.function_transformer import convert_sklearn_function_transformer

    step = operator.raw_operator
    if step.func is None:
        convert_sklearn_function_transformer(scope, operator, container)
        return
    write = NodeWriter(scope, container, "function")
    parts = [write.cast(given.full_name, DOUBLE) for given in operator.inputs]
    whole = parts[0] if len(parts) == 1 else write.add("Concat", *parts, axis=1)
    result = None if step.kw_args else written(write, step.func, whole)
    if result is None:
        name = getattr(step.func, "__name__", repr(step.func))
        raise UnsupportedError(
            f"FunctionTransformer: its function {name!r} has no ONNX form here; numpy's log, log1p, log2, log10, exp, "
            "expm1, sqrt, cbrt, square, abs, sign, floor, ceil, tanh, sin, cos, negative and reciprocal have."
        )
    kind = DOUBLE if isinstance(operator.outputs[0].type, DoubleTensorType) else FLOAT
    write.cast(result, kind, operator.outputs[0].full_name)
