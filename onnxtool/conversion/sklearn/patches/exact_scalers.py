"""Scalers in front of trees, in doubles as scikit-learn computes them.

A tree asks on which side of a number another one is, and a scaled row of the training data may be that very number.
XGBoost and scikit-learn's trees round what they get to float32 themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.sklearn.converters.node_writer import NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, extension

_KINDS = ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler")


def _convert(write: NodeWriter, original: Callable[[], None]) -> None:
    steps = _steps(write.step)
    narrow = all(type(given.type).__name__ == "FloatTensorType" for given in write.inputs)
    if not narrow or not steps or getattr(write.step, "clip", False):
        original()
        return
    value = write.joined()
    for step, numbers in steps:
        value = write.add(step, value, numbers)
    write.give(value)


def _steps(scaler: Estimator) -> list[tuple[str, np.ndarray]]:
    """What a scaler does to each column, in its order: an operator, and numbers in float64 [columns]."""
    found: list[tuple[str, Any]] = []
    kind = type(scaler).__name__
    if kind == "StandardScaler":
        found = [
            ("Sub", scaler.mean_ if scaler.with_mean else None),
            ("Div", scaler.scale_ if scaler.with_std else None),
        ]
    elif kind == "RobustScaler":
        centre, scale = scaler.with_centering, scaler.with_scaling
        found = [("Sub", scaler.center_ if centre else None), ("Div", scaler.scale_ if scale else None)]
    elif kind == "MinMaxScaler":
        found = [("Mul", scaler.scale_), ("Add", scaler.min_)]
    elif kind == "MaxAbsScaler":
        found = [("Div", scaler.scale_)]
    return [(step, np.asarray(numbers, np.float64)) for step, numbers in found if numbers is not None]


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 multiplies by the reciprocal of a scale, in float32",
    *(extension(f"sklearn.preprocessing:{kind}", _convert) for kind in _KINDS),
)
