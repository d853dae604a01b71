"""MissingIndicator, and imputers that add one -> ONNX. skl2onnx 1.20 has no converter for it, and leaves it out."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from onnxtool.conversion.sklearn.converters.node_writer import DOUBLE, NodeWriter
from onnxtool.conversion.sklearn.converters.register import (
    Converter,
    changed,
    extend,
    register_transformer,
    standing_in,
)
from onnxtool.errors import UnsupportedError


@cache
def register() -> None:
    """Let skl2onnx convert them by these converters."""
    from sklearn.impute import MissingIndicator, SimpleImputer

    register_transformer(MissingIndicator, _convert_indicator, lambda step: len(step.features_))
    extend(SimpleImputer, _convert_imputer, _width)


def indicated(write: NodeWriter, indicator: Any, value: str) -> str:
    """[rows, indicated features]: 1 where something is missing, in doubles.

    Args:
        write: adds nodes.
        indicator: a fitted MissingIndicator.
        value: [rows, features], doubles.
    """
    gap = indicator.missing_values
    if not isinstance(gap, (int, float, np.number)):
        raise UnsupportedError("MissingIndicator: what is missing in texts has no ONNX form here, only in numbers.")
    chosen = write.add("Gather", value, write.constant(np.asarray(indicator.features_, np.int64)), axis=1)
    if np.isnan(gap):
        return write.cast(write.add("IsNaN", chosen), DOUBLE)
    return write.cast(write.add("Equal", chosen, write.constant(np.array([float(gap)]))), DOUBLE)


def _convert_indicator(scope: Any, operator: Any, container: Any) -> None:
    write = NodeWriter(scope, container, "indicator")
    write.give(indicated(write, operator.raw_operator, write.joined(operator.inputs)), operator.outputs[0])


def _kept(imputer: Any) -> list[int]:
    """The columns that are given: one that was empty at the fit is dropped, unless it is to be kept."""
    statistics = np.asarray(imputer.statistics_)
    number = statistics.dtype.kind == "f" and not imputer.keep_empty_features
    return [c for c in range(len(statistics)) if not (number and np.isnan(statistics[c]))]


def _width(imputer: Any) -> int:
    return len(_kept(imputer)) + (len(imputer.indicator_.features_) if imputer.add_indicator else 0)


def _convert_imputer(original: Converter, scope: Any, operator: Any, container: Any) -> None:
    imputer, output = operator.raw_operator, operator.outputs[0]
    kept = _kept(imputer)
    if not imputer.add_indicator and len(kept) == len(imputer.statistics_):
        original(scope, operator, container)
        return
    filled = scope.declare_local_variable("filled", type(output.type)())
    with standing_in(operator, changed(imputer, add_indicator=False), [filled]):
        original(scope, operator, container)
    write = NodeWriter(scope, container, "indicator")
    parts = [write.add("Gather", write.cast(filled.full_name, DOUBLE), write.constant(np.array(kept)), axis=1)]
    if imputer.add_indicator:
        parts.append(indicated(write, imputer.indicator_, write.joined(operator.inputs)))
    write.give(write.add("Concat", *parts, axis=1), output)
