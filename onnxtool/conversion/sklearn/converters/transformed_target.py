"""TransformedTargetRegressor -> ONNX, which skl2onnx 1.20 has no converter for: the regressor, then the way back."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from onnxtool.conversion.sklearn.converters.node_writer import DOUBLE, NodeWriter
from onnxtool.conversion.sklearn.converters.numpy_functions import written
from onnxtool.conversion.sklearn.converters.register import register_transformer
from onnxtool.errors import UnsupportedError


@cache
def register() -> None:
    """Let skl2onnx convert it by this converter."""
    from sklearn.compose import TransformedTargetRegressor

    register_transformer(TransformedTargetRegressor, _convert, lambda _: 1)


def _convert(scope: Any, operator: Any, container: Any) -> None:
    from skl2onnx._parse import _get_sklearn_operator_name

    model, output = operator.raw_operator, operator.outputs[0]
    inner = scope.declare_local_operator(_get_sklearn_operator_name(type(model.regressor_)), model.regressor_)
    inner.inputs = list(operator.inputs)
    inner.outputs.append(scope.declare_local_variable("inner_target", type(output.type)(output.type.shape)))
    write = NodeWriter(scope, container, "target")
    # Exponentials of a float32 would lose what the regressor has.
    wide = write.cast(inner.outputs[0].full_name, DOUBLE)
    back = _back(write, model.transformer_, wide)
    write.give(back, output)


def _back(write: NodeWriter, transformer: Any, value: str) -> str:
    """What the inverse of a transformer of the target makes of a value.

    Raises:
        UnsupportedError: a transformer, or a function, without an ONNX form here.
    """
    name = type(transformer).__name__
    if name == "FunctionTransformer":
        found = written(write, transformer.inverse_func, value)
        if found is None:
            what = getattr(transformer.inverse_func, "__name__", repr(transformer.inverse_func))
            raise UnsupportedError(f"TransformedTargetRegressor: its inverse_func {what!r} has no ONNX form here.")
        return found
    if name == "StandardScaler":
        scale = np.ones(1) if transformer.scale_ is None else transformer.scale_
        mean = np.zeros(1) if transformer.mean_ is None else transformer.mean_
        return write.add(
            "Add", write.add("Mul", value, write.constant(np.float64(scale))), write.constant(np.float64(mean))
        )
    if name == "MinMaxScaler":
        shifted = write.add("Sub", value, write.constant(np.float64(transformer.min_)))
        return write.add("Div", shifted, write.constant(np.float64(transformer.scale_)))
    raise UnsupportedError(f"TransformedTargetRegressor: its transformer {name} has no ONNX form here.")
