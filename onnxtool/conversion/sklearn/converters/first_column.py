"""Selectors that select the first column alone: skl2onnx 1.20 takes its number, 0, for no column at all."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from onnxtool.conversion.sklearn.converters.node_writer import NodeWriter
from onnxtool.conversion.sklearn.converters.register import Converter, extend

KINDS = (
    "GenericUnivariateSelect", "RFE", "RFECV", "SelectFdr", "SelectFpr", "SelectFromModel", "SelectFwe", "SelectKBest",
    "SelectPercentile", "VarianceThreshold",
)  # fmt: skip


@cache
def register() -> None:
    """Let skl2onnx convert them by this converter."""
    import sklearn.feature_selection

    for name in KINDS:
        extend(getattr(sklearn.feature_selection, name), _convert)


def _convert(original: Converter, scope: Any, operator: Any, container: Any) -> None:
    if list(operator.raw_operator.get_support(indices=True)) != [0]:
        original(scope, operator, container)
        return
    write = NodeWriter(scope, container, "selected")
    first, output = write.constant(np.array([0])), operator.outputs[0].full_name
    write.add("Gather", operator.inputs[0].full_name, first, axis=1, name=output)
