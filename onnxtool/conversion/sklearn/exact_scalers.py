"""Scalers in front of trees, in doubles as scikit-learn computes them.

A tree asks on which side of a number another one is, and a scaled row of the training data may be that very number.
skl2onnx 1.20 multiplies by the reciprocal of a scale, in float32. XGBoost and scikit-learn's trees round what they get
to float32 themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from onnxtool.conversion.sklearn.converters.node_writer import NodeWriter
from onnxtool.conversion.sklearn.converters.register import Converter, extend

_active: list[bool] = []  # converters are registered for good: they stand back outside the block


@contextmanager
def exact_scalers() -> Iterator[None]:
    """Inside the block, scalers that take float32 compute in doubles, and give float32."""
    register()
    _active.append(True)
    try:
        yield
    finally:
        _active.pop()


@cache
def register() -> None:
    """Let skl2onnx convert scalers by this converter."""
    from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

    for kind in (StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler):
        extend(kind, _convert)


def _convert(known: Converter, scope: Any, operator: Any, container: Any) -> None:
    scaler = operator.raw_operator
    steps = _steps(scaler)
    narrow = all(type(given.type).__name__ == "FloatTensorType" for given in operator.inputs)
    if not _active or not narrow or not steps or getattr(scaler, "clip", False):
        known(scope, operator, container)
        return
    write = NodeWriter(scope, container, "scaler")
    value = write.joined(operator.inputs)
    for step, numbers in steps:
        value = write.add(step, value, write.constant(numbers))
    write.give(value, operator.outputs[0])


def _steps(scaler: Any) -> list[tuple[str, np.ndarray]]:
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
