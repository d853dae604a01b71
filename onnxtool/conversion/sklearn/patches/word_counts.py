"""Shares of words, computed in doubles: trees behind them compare with the very numbers that rows of a table have.

Source: scikit-learn, `sklearn.feature_extraction.text.TfidfTransformer`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxtool.conversion.sklearn.converters.node_writer import NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, extension


def _convert(write: NodeWriter, _original: Callable[[], None]) -> None:
    model, value = write.step, write.joined()
    if model.sublinear_tf:
        counted = write.add("Less", 0.0, value)
        logarithm = write.add("Log", write.add("Where", counted, value, 1.0))
        value = write.add("Where", counted, write.add("Add", logarithm, 1.0), 0.0)
    if model.use_idf:
        value = write.add("Mul", value, np.asarray(model.idf_, np.float64)[None])
    if model.norm is not None:
        sizes = write.add("Abs", value) if model.norm == "l1" else write.add("Mul", value, value)
        # One word after the other, as scikit-learn adds them; in the order of ReduceSum the last digits are others.
        sums = write.add("CumSum", sizes, np.array(1))
        total = write.add("Slice", sums, np.array([-1]), np.array([np.iinfo(np.int64).max]), np.array([1]))
        length = total if model.norm == "l1" else write.add("Sqrt", total)
        value = write.add("Div", value, write.add("Where", write.add("Equal", length, 0.0), 1.0, length))
    write.give(value)


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 writes log(1 + count), and weighs words in float32",
    extension("sklearn.feature_extraction.text:TfidfTransformer", _convert),
)
