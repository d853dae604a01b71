"""Functions that a FunctionTransformer applies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxtool.conversion.frameworks import copy_with
from onnxtool.conversion.sklearn.converters.node_writer import NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, extension, number_type
from onnxtool.conversion.sklearn.converters.traced_functions import UNARY, traced
from onnxtool.conversion.small_numbers import expm1, log1p


def written(write: NodeWriter, function: Any, value: str) -> str | None:
    """What a function makes of a double; None where it has no ONNX form here.

    Args:
        write: adds nodes.
        function: of NumPy.
        value: any shape.
    """
    further: dict[Any, Callable[[], str]] = {
        np.square: lambda: write.add("Mul", value, value),
        np.expm1: lambda: expm1(write.add, value),
        np.exp2: lambda: write.add("Pow", 2.0, value),
        np.log1p: lambda: log1p(write.add, value),
        np.log2: lambda: _scaled_logarithm(write, value, np.log(2)),
        np.log10: lambda: _scaled_logarithm(write, value, np.log(10)),
        np.cbrt: lambda: _cube_root(write, value),
        np.arctan: lambda: _arc_tangent(write, value),
        np.arcsinh: lambda: _inverse_sine(write, value),
        np.radians: lambda: write.add("Mul", value, np.pi / 180),
        np.degrees: lambda: write.add("Mul", value, 180 / np.pi),
    }
    if function in UNARY:
        return write.add(UNARY[function], value)
    return further[function]() if function in further else None


def _scaled_logarithm(write: NodeWriter, value: str, by: float) -> str:
    return write.add("Div", write.add("Log", value), by)


def _cube_root(write: NodeWriter, value: str) -> str:
    root = write.add("Pow", write.add("Abs", value), 1 / 3)
    return write.add("Mul", write.add("Sign", value), root)


def _arc_tangent(write: NodeWriter, value: str) -> str:
    """Newton's steps to the angle whose sine and cosine have this quotient; the runtime has no Atan of doubles.

    Within one a fraction is near enough to begin with: three steps leave nothing. Beyond, the angle of 1 / value is
    what is missing from a right angle.
    """
    beyond = write.add("Less", 1.0, write.add("Abs", value))
    x = write.add("Where", beyond, write.add("Reciprocal", value), value)
    angle = write.add("Div", x, write.add("Add", write.add("Mul", write.add("Mul", x, x), 0.28), 1.0))
    for _ in range(3):
        sine, cosine = write.add_of("", 7, "Sin", angle), write.add_of("", 7, "Cos", angle)
        apart = write.add("Sub", sine, write.add("Mul", x, cosine))
        angle = write.add("Sub", angle, write.add("Mul", cosine, apart))
    right = write.add("Mul", write.add("Sign", value), np.pi / 2)
    return write.add("Where", beyond, write.add("Sub", right, angle), angle)


def _inverse_sine(write: NodeWriter, value: str) -> str:
    """Of hyperbolas: the logarithm of |x| + sqrt(x^2 + 1), whose part beyond one is taken apart from it."""
    size = write.add("Abs", value)
    root = write.add("Sqrt", write.add("Add", write.add("Mul", size, size), 1.0))
    more = write.add("Mul", size, write.add("Div", size, write.add("Add", root, 1.0)))
    logarithm, doubled = (
        log1p(write.add, write.add("Add", size, more)),
        write.add("Add", write.add("Log", size), np.log(2)),
    )
    large = write.add("Less", 1e9, size)  # whose square may be infinite
    return write.add("Mul", write.add("Sign", value), write.add("Where", large, doubled, logarithm))


def _convert(write: NodeWriter, original: Callable[[], None]) -> None:
    step = write.step
    if step.func is None:
        original()
        return
    write.give(traced(write, step.func, write.joined(), written, **(step.kw_args or {})))


def _width(step: Any) -> int:
    """How many columns a function gives; as many as it is given where it cannot be asked."""
    rows: Any = np.ones((1, step.n_features_in_))
    try:
        if hasattr(step, "feature_names_in_"):
            import pandas

            rows = pandas.DataFrame(rows, columns=step.feature_names_in_)
        return int(np.asarray(step.func(rows, **(step.kw_args or {}))).shape[1])
    except Exception:  # of any code
        return int(step.n_features_in_)


def _shapes(operator: Any, known: Callable[[Any], None]) -> None:
    """Those of the identity, of floats where it computes: skl2onnx refuses any function."""
    step = operator.raw_operator
    operator.raw_operator = copy_with(step, func=None)
    try:
        known(operator)
    finally:
        operator.raw_operator = step
    if step.func is not None:
        output = operator.outputs[0]
        output.type = number_type(output.type)([output.type.shape[0], _width(step)])


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 refuses every function",
    extension("sklearn.preprocessing:FunctionTransformer", _convert, shapes=_shapes),
)
