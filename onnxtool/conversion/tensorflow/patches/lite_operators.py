"""Operators of TensorFlow Lite alone that tf2onnx does not translate, or translates wrongly."""

from __future__ import annotations

import numpy as np

from onnxtool.conversion.tensorflow.patches.op_handlers import OperatorWriter, missing, wrong

# Source: TensorFlow, tensorflow/lite/kernels/internal/reference/l2normalization.h.
_SHORTEST = 1e-6


def _gelu(write: OperatorWriter) -> None:
    """Half of x (1 + erf(x / sqrt 2)), or with the tangent that is near it.

    Source: Hendrycks and Gimpel 2016, "Gaussian Error Linear Units", section 2.
    """
    (x,) = write.inputs
    if write.node.get_attr_value("approximate"):
        cube = write.add("Mul", x, write.add("Mul", x, x))
        near = write.add("Add", x, write.add("Mul", cube, write.constant(0.044715)))
        part = write.add("Tanh", write.add("Mul", near, write.constant(np.sqrt(2 / np.pi))))
    else:
        part = write.add("Erf", write.add("Mul", x, write.constant(np.sqrt(0.5))))
    write.give("Mul", write.add("Mul", x, write.constant(0.5)), write.add("Add", part, write.constant(1)))


def _unit_length(write: OperatorWriter) -> None:
    """Rows over their lengths, and over 1e-6 where they are shorter."""
    (x,) = write.inputs
    squares = write.add("ReduceSum", write.add("Mul", x, x), write.constant([-1], np.int64), keepdims=1)
    write.give("Div", x, write.add("Max", write.add("Sqrt", squares), write.constant(_SHORTEST)))


PATCHES = {
    "TFL_GELU": missing("TFL_GELU", 13, _gelu),
    "L2Normalization": wrong("L2Normalization", 13, _unit_length, "tf2onnx 1.17 stretches rows shorter than 1e-6"),
}
