"""MissingIndicator, and imputers of numbers, which add one or drop columns that were empty."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxtool.conversion.frameworks import Estimator
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
    """Numbers in the place of gaps, and columns that tell where the gaps were, in doubles."""
    imputer = write.step
    numbers = np.asarray(imputer.statistics_).dtype.kind in "fiu"
    if not (numbers and write.takes_numbers and isinstance(imputer.missing_values, (int, float))):
        original()
        return
    value, gap, kept = write.joined(), np.float64(imputer.missing_values), _kept(imputer)
    missing = write.add("IsNaN", value) if np.isnan(gap) else write.add("Equal", value, float(gap))
    result = write.add("Where", missing, np.asarray(imputer.statistics_, np.float64).reshape(1, -1), value)
    if len(kept) < len(imputer.statistics_):
        result = write.add("Gather", result, np.array(kept), axis=1)
    write.give(
        write.columns([result, indicated(write, imputer.indicator_, value)]) if imputer.add_indicator else result
    )


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 has no converter for MissingIndicator, leaves it out of imputers, and keeps columns that they drop",
    transformer("sklearn.impute:MissingIndicator", _convert_indicator, lambda step: len(step.features_)),
    extension("sklearn.impute:SimpleImputer", _convert_imputer, _width),
)
