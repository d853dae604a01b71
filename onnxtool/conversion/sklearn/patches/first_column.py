"""Selectors that select the first column alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxtool.conversion.sklearn.converters.node_writer import NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, extension

_KINDS = (
    "GenericUnivariateSelect", "RFE", "RFECV", "SelectFdr", "SelectFpr", "SelectFromModel", "SelectFwe", "SelectKBest",
    "SelectPercentile", "VarianceThreshold",
)  # fmt: skip


def _convert(write: NodeWriter, original: Callable[[], None]) -> None:
    if list(write.step.get_support(indices=True)) != [0]:
        original()
        return
    write.add("Gather", write.inputs[0].full_name, np.array([0]), axis=1, name=write.outputs[0].full_name)


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 takes the number of the first column, 0, for no column at all",
    *(extension(f"sklearn.feature_selection:{kind}", _convert) for kind in _KINDS),
)
