"""Transformers of columns, in doubles and by the operations of scikit-learn itself.

What comes after may ask on which side of a number a row is, and a row of the training data may be that very number: a
tree's threshold, the edge of a bin. skl2onnx multiplies by reciprocals, or has operators of float32.

Source: scikit-learn, `sklearn.preprocessing`, `sklearn.decomposition.PCA`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.sklearn.converters.node_writer import DOUBLE, INT64, NodeWriter
from onnxtool.conversion.sklearn.converters.register import Registration, converter_patch, extension, typed_as_rows
from onnxtool.conversion.sklearn.raw_thresholds import Thresholds, raw_thresholds
from onnxtool.conversion.sklearn.source_columns import SourceColumns, computes_in_float32, watched_columns
from onnxtool.conversion.small_numbers import expm1, log1p

_TINY = float(np.finfo(np.float64).eps)


def _scaled(write: NodeWriter) -> str:
    value, single = write.joined(), computes_in_float32(write)
    for step, numbers in scaler_steps(write.step):
        if not single:
            value = write.add(step, value, numbers)
            continue
        # scikit-learn 1.9 rounds the numbers of a StandardScaler, and what any scaler makes of each step.
        rounded = numbers.astype(np.float32) if type(write.step).__name__ == "StandardScaler" else numbers
        value = write.in_float32(write.add(step, value, rounded.astype(np.float64)))
    if getattr(write.step, "clip", False):
        low, high = getattr(write.step, "feature_range", (-1.0, 1.0))
        value = write.add("Max", write.add("Min", value, float(high)), float(low))
    return value


def scaler_steps(scaler: Estimator) -> list[tuple[str, np.ndarray]]:
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


def _binary(write: NodeWriter) -> str:
    count, threshold = int(write.step.n_features_in_), float(write.step.threshold)
    if computes_in_float32(write):  # NumPy compares with the threshold in that
        threshold = float(np.float32(threshold))
    passed = passed_thresholds(write, np.arange(count), "BRANCH_GT", np.full(count, threshold))
    return write.cast(passed, DOUBLE)


def _binned(write: NodeWriter) -> str:
    """The number of each column's bin, or a column for each bin."""
    inner = [np.asarray(edges, np.float64)[1:-1] for edges in write.step.bin_edges_]
    counts = [len(edges) for edges in inner]
    several = [place for place, count in enumerate(counts) if count]
    parts = {}
    if several:
        passed = passed_thresholds(
            write, np.repeat(np.arange(len(counts)), counts), "BRANCH_GTE", np.concatenate(inner)
        )
        parts = dict(zip(several, write.split(write.cast(passed, INT64), [counts[p] for p in several]), strict=True))
    numbers = []
    for place in range(len(counts)):
        if place in parts:
            bins = write.add("ReduceSum", parts[place], np.array([1]), keepdims=1)
        else:
            nothing = write.add("Gather", write.joined(), np.array([place]), axis=1)
            bins = write.cast(write.add("Less", nothing, nothing), INT64)
        if write.step.encode != "ordinal":
            bins = write.add("Equal", bins, np.arange(int(write.step.n_bins_[place]))[None])
        numbers.append(write.cast(bins, DOUBLE))
    return write.columns(numbers)


def passed_thresholds(write: NodeWriter, columns: np.ndarray, mode: str, thresholds: np.ndarray) -> str:
    """Whether columns are above thresholds (BRANCH_GT) or at them (BRANCH_GTE), bool [rows, thresholds]."""
    name = write.inputs[0].full_name if len(write.inputs) == 1 else write.joined()
    given, source = Thresholds.of(columns, [mode] * len(columns), thresholds), watched_columns.get() or SourceColumns()
    matrix, found = raw_thresholds(write.container, type(write.container).add_node, name, given, source)
    value = write.add("Gather", matrix, found.columns, axis=1)
    passed = write.add("Greater" if mode == "BRANCH_GT" else "GreaterOrEqual", value, found.numbers[None])
    if not (found.goes == 1).any():
        return passed
    return write.add("Or", passed, write.add("And", write.add("IsNaN", value), (found.goes == 1)[None]))


def _normal(write: NodeWriter) -> str:
    """Rows by their length; those of no length stay."""
    value, axis = write.joined(), np.array([1])
    kind = write.step.norm
    if kind == "max":
        length = write.largest(write.add("Abs", value))
    elif kind == "l1":
        length = write.add("ReduceSum", write.add("Abs", value), axis, keepdims=1)
    else:
        length = write.add("Sqrt", _sum_of_squares(write, value))
    # scikit-learn's _handle_zeros_in_scale takes lengths of up to ten times the spacing at one for zero.
    single = computes_in_float32(write)
    zero = write.add("Less", length, 10 * (float(np.finfo(np.float32).eps) if single else _TINY))
    scaled = write.add("Div", value, write.add("Where", zero, 1.0, length))
    return write.in_float32(scaled) if single else scaled


def _sum_of_squares(write: NodeWriter, value: str) -> str:
    """[rows, 1], added in the order of numpy.einsum on x86: rows may be so close that the last digit tells them apart.

    Source: NumPy 2.4, einsum_sumprod.c.src: two sums side by side, of eight columns at a time the last pair first.
    """
    columns = int(write.step.n_features_in_)
    pairs = (columns + 1) // 2
    squares = write.add("Mul", value, value)
    if columns % 2:
        squares = write.add("Pad", squares, np.array([0, 0, 0, 1]))
    parts = write.split(squares, [2] * pairs) if pairs > 1 else [squares]
    blocks = [parts[start : start + 4][::-1] for start in range(0, columns // 8 * 4, 4)]
    total, *others = [part for block in (*blocks, parts[columns // 8 * 4 :]) for part in block]
    for part in others:
        total = write.add("Add", part, total)
    return write.add("Add", *write.split(total, [1, 1]))


def _powered(write: NodeWriter) -> str:
    step, value = write.step, write.joined()
    lambdas = np.asarray(step.lambdas_, np.float64).reshape(1, -1)
    if step.method == "box-cox":
        result = _power_of_log(write, write.add("Log", value), lambdas)
    else:
        nothing = write.add("Max", value, 0.0)
        above = _power_of_log(write, log1p(write.add, nothing), lambdas)
        size = write.add("Neg", write.add("Min", value, 0.0))
        below = write.add("Neg", _power_of_log(write, log1p(write.add, size), 2 - lambdas))
        result = write.add("Where", write.add("GreaterOrEqual", value, 0.0), above, below)
        result = write.add("Where", write.add("IsNaN", value), value, result)
    if step.standardize:
        for kind, numbers in scaler_steps(step._scaler):
            result = write.add(kind, result, numbers)
    return result


def _power_of_log(write: NodeWriter, log: str, lambdas: np.ndarray) -> str:
    """(exp(lambda log) - 1) / lambda, and the logarithm where lambda is zero."""
    zero = np.abs(lambdas) < _TINY
    divisor = np.where(zero, 1.0, lambdas)
    power = write.add("Div", expm1(write.add, write.add("Mul", log, divisor)), divisor)
    return power if not zero.any() else write.add("Where", zero, log, power)


def _projected(write: NodeWriter) -> str:
    """On principal components. The mean is taken off behind the product, as scikit-learn does."""
    step = write.step
    axes = np.ascontiguousarray(np.asarray(step.components_, np.float64).T)
    value = write.add("MatMul", write.joined(), axes)
    if step.mean_ is not None:
        value = write.add("Sub", value, np.reshape(step.mean_, (1, -1)) @ axes)
    if step.whiten:
        spread = np.sqrt(step.explained_variance_)
        value = write.add("Div", value, np.maximum(spread, np.finfo(spread.dtype).eps).reshape(1, -1))
    return value


def _registered(kind: str, convert: Callable[[NodeWriter], str]) -> Registration:
    def converted(write: NodeWriter, original: Callable[[], None]) -> None:
        if write.takes_numbers:
            write.give(convert(write))
        else:
            original()

    return extension(kind, converted, shapes=typed_as_rows)


IN_DOUBLES = converter_patch(
    "1.21",
    "skl2onnx 1.20 computes in float32, or by other operations",
    *(
        _registered(f"sklearn.preprocessing:{kind}", _scaled)
        for kind in ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler")
    ),
    _registered("sklearn.preprocessing:Binarizer", _binary),
    _registered("sklearn.preprocessing:KBinsDiscretizer", _binned),
    _registered("sklearn.preprocessing:Normalizer", _normal),
    _registered("sklearn.preprocessing:PowerTransformer", _powered),
    _registered("sklearn.decomposition:PCA", _projected),
)
