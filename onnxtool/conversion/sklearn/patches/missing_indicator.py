"""MissingIndicator, and imputers that add one or drop columns that were empty."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxtool.conversion.frameworks import Estimator, copy_with
from onnxtool.conversion.sklearn.converters.node_writer import DOUBLE, NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, extension, transformer
from onnxtool.errors import UnsupportedError


def indicated(write: NodeWriter, indicator: Estimator, value: str) -> str:
    """[rows, indicated features]: 1 where something is missing, in doubles.

    Args:
        write: adds nodes.
        indicator: a fitted MissingIndicator.
        value: [rows, features], doubles.
    """
    gap = indicator.missing_values
    if not isinstance(gap, (int, float, np.number)):
        raise UnsupportedError("MissingIndicator: what is missing in texts has no ONNX form here, only in numbers.")
    chosen = write.add("Gather", value, np.asarray(indicator.features_, np.int64), axis=1)
    if np.isnan(gap):
        return write.cast(write.add("IsNaN", chosen), DOUBLE)
    return write.cast(write.add("Equal", chosen, float(gap)), DOUBLE)


def _convert_indicator(write: NodeWriter) -> None:
    write.give(indicated(write, write.step, write.joined()))


def _kept(imputer: Estimator) -> list[int]:
    """The columns that are given: one that was empty at the fit is dropped, unless it is to be kept."""
    statistics = np.asarray(imputer.statistics_)
    number = statistics.dtype.kind == "f" and not imputer.keep_empty_features
    return [c for c in range(len(statistics)) if not (number and np.isnan(statistics[c]))]


def _width(imputer: Estimator) -> int:
    return len(_kept(imputer)) + (len(imputer.indicator_.features_) if imputer.add_indicator else 0)


def _convert_imputer(write: NodeWriter, original: Callable[[], None]) -> None:
    imputer = write.step
    kept = _kept(imputer)
    if not imputer.add_indicator and len(kept) == len(imputer.statistics_):
        original()
        return
    filled = write.variable("filled", type(write.outputs[0].type)())
    with write.standing_in(copy_with(imputer, add_indicator=False), [filled]):
        original()
    parts = [write.add("Gather", write.cast(filled.full_name, DOUBLE), np.array(kept), axis=1)]
    if imputer.add_indicator:
        parts.append(indicated(write, imputer.indicator_, write.joined()))
    write.give(write.columns(parts))


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 has no converter for MissingIndicator, leaves it out of imputers, and keeps columns that they drop",
    transformer("sklearn.impute:MissingIndicator", _convert_indicator, lambda step: len(step.features_)),
    extension("sklearn.impute:SimpleImputer", _convert_imputer, _width),
)
