"""Counts of words, damped by 1 + log(count)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxtool.conversion.frameworks import copy_with
from onnxtool.conversion.sklearn.converters.node_writer import NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, extension, number_type


def _convert(write: NodeWriter, original: Callable[[], None]) -> None:
    given = write.inputs[0]
    if not write.step.sublinear_tf:
        original()
        return
    kind = number_type(given.type)
    damped = write.variable("damped", kind(given.type.shape))
    zero, one = (
        np.array([number], np.float64 if kind.__name__ == "DoubleTensorType" else np.float32) for number in (0, 1)
    )
    counted = write.add("Less", zero, given.full_name)
    logarithm = write.add("Log", write.add("Where", counted, given.full_name, one))
    write.add("Where", counted, write.add("Add", logarithm, one), zero, name=damped.full_name)
    with write.standing_in(copy_with(write.step, sublinear_tf=False), inputs=[damped]):
        original()


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 writes log(1 + count)",
    extension("sklearn.feature_extraction.text:TfidfTransformer", _convert),
)
