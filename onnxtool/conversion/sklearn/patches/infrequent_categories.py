"""Encoders that take rare categories for one, encode missing ones, have categories that are fractions, or give
the mean of the target for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from onnxtool.conversion.frameworks import Estimator, copy_with
from onnxtool.conversion.sklearn.converters.node_writer import BOOL, DOUBLE, FLOAT, INT64, NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, extension

_FLOATS = ("FloatTensorType", "DoubleTensorType")


def _convert_one_hot(write: NodeWriter, original: Callable[[], None]) -> None:
    """A column for each category, and then those of rare ones added up: all are zeros and ones, so this is exact."""
    from skl2onnx.common.data_types import FloatTensorType

    encoder = write.step
    if any(type(given.type).__name__ in _FLOATS for given in write.inputs):
        original = partial(_one_hot_by_column, write)
    usual = encoder.handle_unknown in ("error", "ignore")  # skl2onnx 1.20 refuses unknown ones of all other words
    if usual and not encoder._infrequent_enabled and 0 not in encoder._n_features_outs:  # and keeps a lone category
        original()
        return
    plain = copy_with(
        encoder, min_frequency=None, max_categories=None, _infrequent_enabled=False, drop=None, drop_idx_=None,
        handle_unknown="ignore", dtype=np.float32,
    )  # fmt: skip
    each = write.variable("each_category", FloatTensorType())
    with write.standing_in(plain, [each]):
        original()
    grouped, unknown = _groups(encoder)
    value = write.add("MatMul", write.cast(each.full_name, FLOAT), grouped - unknown)
    # Every column of the table has one category, or none where that is unknown.
    several = len(encoder.categories_)
    first = np.cumsum([0, *(len(c) for c in encoder.categories_)])[:several]
    write.give(write.add("Add", value, unknown[first].sum(axis=0)))


def _one_hot_by_column(write: NodeWriter) -> None:
    """skl2onnx 1.20 drops the fractions of floats first, so that 0.4 is taken for category 0."""
    encoder = write.step
    columns = []
    for place, (value, kind) in enumerate(_single_columns(write)):
        known = np.asarray(encoder.categories_[place])
        if kind in _FLOATS:
            found = _met(write, write.cast(value, DOUBLE), known.astype(np.float64), kind == "DoubleTensorType")
        else:
            code = _looked_up(write, value, kind, list(known), np.arange(float(len(known))), -1.0)
            found = write.cast(write.add("Equal", code, np.arange(len(known), dtype=np.float32)[None]), FLOAT)
        dropped = None if encoder.drop_idx_ is None else encoder.drop_idx_[place]
        if dropped is not None:
            kept = np.array([i for i in range(len(known)) if i != dropped], np.int64)
            found = write.add("Gather", found, kept, axis=1)
        columns.append(found)
    write.give(write.columns(columns))


def _met(write: NodeWriter, value: str, known: np.ndarray, of_doubles: bool) -> str:
    """Which number a column is, [rows, numbers]: as the input's own type has it."""
    known = known if of_doubles else known.astype(np.float32).astype(np.float64)
    found = write.cast(write.add("Equal", value, np.nan_to_num(known)[None]), FLOAT)
    if np.isnan(known).any():
        gap = write.cast(write.add("IsNaN", value), FLOAT)
        there, missing = (mark[None].astype(np.float32) for mark in (~np.isnan(known), np.isnan(known)))
        found = write.add("Mul", found, there)
        found = write.add("Add", found, write.add("Mul", gap, missing))
    return found


def _groups(encoder: Estimator) -> tuple[np.ndarray, np.ndarray]:
    """Two matrices [categories, columns that are given]: what each category gives, and what one that is unknown gives
    in its place.
    """
    categories = [list(c) for c in encoder.categories_]
    total, stops = sum(map(len, categories)), np.cumsum([0, *encoder._n_features_outs])
    known = np.zeros((total, stops[-1]), np.float32)
    unknown = np.zeros_like(known)
    place = 0
    for column, own in enumerate(categories):
        rows = np.array([[c[0] for c in categories]] * len(own), dtype=object)
        rows[:, column] = own
        given = encoder.transform(rows)
        dense = np.asarray(given.toarray() if hasattr(given, "toarray") else given, dtype=np.float32)
        part = slice(stops[column], stops[column + 1])
        known[place : place + len(own), part] = dense[:, part]
        rare = encoder.infrequent_categories_[column] if encoder._infrequent_enabled else None
        if rare is not None and encoder.handle_unknown in ("infrequent_if_exist", "warn"):
            unknown[place : place + len(own), part] = dense[own.index(rare[0]), part]
        place += len(own)
    return known, unknown


def _convert_ordinal(write: NodeWriter, original: Callable[[], None]) -> None:
    encoder = write.step
    of_doubles = any(type(given.type).__name__ == "DoubleTensorType" for given in write.inputs)
    if not (encoder._infrequent_enabled or encoder._missing_indices or of_doubles):
        original()
        return
    unknown = 0.0 if encoder.unknown_value is None else float(encoder.unknown_value)
    columns = []
    for place, (value, kind) in enumerate(_single_columns(write)):
        categories = list(encoder.categories_[place])
        rows = np.array([[c[0] for c in encoder.categories_]] * len(categories), dtype=object)
        rows[:, place] = categories
        codes = [float(code) for code in np.asarray(encoder.transform(rows))[:, place]]
        columns.append(_looked_up(write, value, kind, categories, codes, unknown))
    write.give(write.columns(columns))


def _convert_target(write: NodeWriter, _original: Callable[[], None]) -> None:
    """By the place of each category in a table of doubles, of which the last row is for others."""
    encoder = write.step
    mean = np.atleast_1d(np.asarray(encoder.target_mean_, np.float64))
    columns = []
    for place, (value, kind) in enumerate(_single_columns(write)):
        categories = list(encoder.categories_[place])
        own = np.array(encoder.encodings_[place * len(mean) : (place + 1) * len(mean)], np.float64).T
        count = len(categories)
        found = write.cast(_looked_up(write, value, kind, categories, np.arange(float(count)), float(count)), INT64)
        table = np.concatenate([own.reshape(count, len(mean)), mean[None]])
        columns.append(write.add("Gather", table, write.add("Reshape", found, np.array([-1])), axis=0))
    write.give(write.columns(columns))


def _single_columns(write: NodeWriter) -> Iterator[tuple[str, str]]:
    """Each column [rows, 1] of the inputs, and the kind of its type."""
    for given in write.inputs:
        for number in range(given.type.shape[1]):
            chosen = write.add("Gather", given.full_name, np.array([number]), axis=1)
            yield chosen, type(given.type).__name__


def _looked_up(
    write: NodeWriter, value: str, kind: str, categories: list[Any], codes: Iterable[float], unknown: float
) -> str:
    """[rows, 1]: the code of each category of one column, as floats."""
    known_codes = list(codes)
    pairs = [(c, code) for c, code in zip(categories, known_codes, strict=True) if isinstance(c, str) or c == c]
    found = {"values_floats": [code for _, code in pairs], "default_float": unknown}
    if kind == "StringTensorType":
        return write.looked_up(value, keys_strings=[str(c).encode() for c, _ in pairs], **found)
    if kind.startswith(("Int", "Bool")):
        return write.looked_up(write.cast(value, INT64), keys_int64s=[int(c) for c, _ in pairs], **found)
    if kind == "DoubleTensorType":  # a table of doubles has no kernel: of float32 it would find what is near, too
        met = write.cast(write.add("Equal", value, np.array([[float(c) for c, _ in pairs]])), FLOAT)
        code = write.add("MatMul", met, np.array([[c] for _, c in pairs], np.float32))
        is_known = write.cast(write.add("MatMul", met, np.ones((len(pairs), 1), np.float32)), BOOL)
        known = write.add("Where", is_known, code, np.array([unknown], np.float32))
    else:
        value = write.cast(value, FLOAT)
        known = write.looked_up(value, keys_floats=[float(c) for c, _ in pairs], **found)
    gap = [code for c, code in zip(categories, known_codes, strict=True) if not isinstance(c, str) and c != c]
    missing = np.array([gap[0] if gap else unknown], np.float32)
    return write.add("Where", write.add("IsNaN", value), missing, known)


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 refuses rare and missing categories or has them wrong, and drops the fractions of floats",
    extension("sklearn.preprocessing:OneHotEncoder", _convert_one_hot, lambda step: int(sum(step._n_features_outs))),
    extension("sklearn.preprocessing:OrdinalEncoder", _convert_ordinal),
    extension("sklearn.preprocessing:TargetEncoder", _convert_target, lambda step: len(step.encodings_)),
)
