"""Ensembles of trees and other operators of ai.onnx.ml, in the field.

A decision is a hash of the column, of the largest float of the column's own type that goes the lower way, and of the
way that a missing value takes. So `x < 2` and `x <= 1.9999999` are one decision, and a threshold one step further is
another. What an ensemble gives is the sum of its leaves, each times the decisions that lead to it.

Source: ONNX, `ai.onnx.ml` TreeEnsembleRegressor and TreeEnsembleClassifier, version 3; ONNX Runtime 1.31,
tree_ensemble_aggregator.h, for what decides between two classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import numpy_helper

from onnxtool.equality.certificate.field import Decisions
from onnxtool.equality.certificate.interpreter import Interpreter
from onnxtool.equality.certificate.values import Array, Attributes, Item, NotCoveredError, exact

_MOST_NODES = 1 << 21
_LOW = {"BRANCH_LEQ": True, "BRANCH_LT": True, "BRANCH_GT": False, "BRANCH_GTE": False}


def leaf_weights(attributes: Attributes) -> Array:
    """What the leaves of an ensemble hold, in float64, in the order of its attributes."""
    kind = "class" if _given(attributes, "class_weights").size else "target"
    return _given(attributes, f"{kind}_weights")


def _given(attributes: Attributes, name: str) -> Array:
    tensor = attributes.get(f"{name}_as_tensor")
    found = attributes.get(name) or [] if tensor is None else numpy_helper.to_array(tensor)
    return np.asarray(found, np.float64).ravel()


def decisions(attributes: Attributes, dtype: np.dtype[Any]) -> Decisions:
    """The nodes of an ensemble, with thresholds in the type of what they compare.

    Raises:
        NotCoveredError: another kind of node, too many nodes, or nodes that are no trees.
    """
    modes = [m.decode() for m in attributes["nodes_modes"]]
    if len(modes) > _MOST_NODES:
        raise NotCoveredError(f"trees of {len(modes)} nodes")
    names = ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
    trees, nodes, features, true, false = (np.asarray(attributes[f"nodes_{n}"], np.int64) for n in names)
    missing = np.asarray(attributes.get("nodes_missing_value_tracks_true") or [0] * len(modes), np.int64)
    place = {key: i for i, key in enumerate(zip(trees.tolist(), nodes.tolist(), strict=True))}
    inner = np.flatnonzero([m != "LEAF" for m in modes])
    if any(modes[i] not in _LOW for i in inner):
        raise NotCoveredError(f"trees with {next(modes[i] for i in inner if modes[i] not in _LOW)}")
    if len(place) != len(modes):
        raise NotCoveredError("trees of nodes that are there twice")
    low = np.array([_LOW[modes[i]] for i in inner], bool)
    strict = np.array([modes[i] in ("BRANCH_LT", "BRANCH_GTE") for i in inner], bool)
    ways = [[place[int(trees[i]), int(way[i])] for i in inner] for way in (true, false)]
    first, second = (np.array(w, np.int64) for w in ways)
    levels = _levels(len(modes), inner, first, second)
    children = np.concatenate([first, second])
    if len(np.unique(children)) != len(children):
        raise NotCoveredError("trees that share nodes")
    return Decisions(
        nodes=inner,
        features=features[inner],
        largest=largest_below(_given(attributes, "nodes_values")[inner], strict, dtype),
        missing_low=np.where(low, missing[inner] != 0, missing[inner] == 0),
        low=np.where(low, first, second),
        high=np.where(low, second, first),
        levels=levels,
        count=len(modes),
    )


def largest_below(thresholds: Array, strict: Array, dtype: np.dtype[Any]) -> Array:
    """The largest number of a type that is at most a threshold, or below it; NaN where there is none. float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = thresholds.astype(dtype)
        wide = rounded.astype(np.float64)
        above = (wide > thresholds) | (strict & (wide == thresholds))
        below = np.nextafter(rounded, dtype.type(-np.inf)).astype(np.float64)
    found = np.where(above, below, wide)
    return np.where(strict & (thresholds == -np.inf), np.nan, found) + 0.0


def _levels(count: int, inner: Array, first: Array, second: Array) -> list[Array]:
    """Places in `inner`, by their depth."""
    at = np.full(count, -1)
    at[inner] = np.arange(len(inner))
    children = np.zeros(count, bool)
    children[first] = children[second] = True
    level = at[np.flatnonzero(~children)]
    found = []
    while (level := level[level >= 0]).size:
        found.append(level)
        if len(found) > count:
            raise NotCoveredError("trees that go round")
        level = at[np.concatenate([first[level], second[level]])]
    return found


def _sums(m: Interpreter, x: Item, a: Attributes, kind: str, targets: int) -> Array:
    """[rows, targets]: the leaves that each row comes to, added to what the sums begin with."""
    f, matrix = m.field, m.elements(x)
    matrix = matrix.reshape(1, -1) if matrix.ndim == 1 else matrix
    found = decisions(a, x.dtype)
    place = dict(zip(zip(a["nodes_treeids"], a["nodes_nodeids"], strict=True), range(found.count), strict=True))
    leaves = [place[key] for key in zip(a[f"{kind}_treeids"], a[f"{kind}_nodeids"], strict=True)]
    if np.isin(leaves, found.nodes).any():
        raise NotCoveredError("trees with weights inside")
    weights = m.constant(f"{a['_name']}.weights", leaf_weights(a))
    table = np.zeros((found.count, targets), np.int64)
    np.add.at(table, (leaves, a[f"{kind}_ids"]), weights)
    sums = f.matmul(f.reached(matrix, found), f.fold(table))
    base = _given(a, "base_values")
    if base.size not in (0, targets):
        raise NotCoveredError(f"trees with {base.size} numbers to begin with")
    return f.add(sums, f.from_float(base)) if base.size else sums


def regressor(m: Interpreter, i: list[Item], a: Attributes) -> Any:
    """Sums of leaves, [rows, targets]."""
    return m.symbol(_sums(m, i[0], a, "target", a["n_targets"]), np.float32)


def classifier(m: Interpreter, i: list[Item], a: Attributes) -> Any:
    """Labels [rows] and scores [rows, classes]."""
    texts = bool(a.get("classlabels_strings"))
    labels = [t.decode() for t in a["classlabels_strings"]] if texts else a["classlabels_int64s"]
    f, ids, weights = m.field, np.unique(a["class_ids"]), leaf_weights(a)
    transform = a.get("post_transform", b"NONE")
    table = m.elements(exact(np.array(labels, object if texts else np.int64)))
    if len(labels) == 2 and len(ids) == 1:
        score = _sums(m, i[0], {**dict(a.items()), "class_ids": [0] * len(a["class_ids"])}, "class", 1)
        if transform not in (b"NONE", b"LOGISTIC") or ((weights >= 0).all() and not m.asks_rows):
            raise NotCoveredError("trees whose one sum decides otherwise")
        above = f.positive(score[:, 0])
        pair = np.concatenate([f.neg(score), score], axis=1)
        chances = f.sigmoid(pair) if transform == b"LOGISTIC" else pair
        return m.symbol(f.take(table, above), table_type(texts)), m.symbol(chances, np.float32)
    sums = _sums(m, i[0], a, "class", len(labels))
    scores = sums
    if transform == b"SOFTMAX":
        scores = f.softmax(sums, 1)
    elif transform == b"LOGISTIC":
        scores = f.sigmoid(sums)
    elif transform != b"NONE":
        raise NotCoveredError(f"trees with {transform.decode()}")
    # A class that no leaf speaks for is never the largest where the others have shares above zero.
    kept = np.arange(len(labels))
    if (weights >= 0).all() and not _given(a, "base_values").size and _any_positive(a, weights):
        kept = kept[np.isin(kept, ids)]
    place = m.apply("ArgMax", [m.symbol(sums[:, kept], np.float32)], {"axis": 1, "keepdims": 0})
    return m.symbol(f.take(table[kept], place.data), table_type(texts)), m.symbol(scores, np.float32)


def _any_positive(a: Attributes, weights: Array) -> bool:
    """Whether each leaf has a weight above zero."""
    keys = [*zip(a["class_treeids"], a["class_nodeids"], strict=True)]
    leaves = [m == b"LEAF" for m in a["nodes_modes"]]
    all_leaves = {
        k for k, leaf in zip(zip(a["nodes_treeids"], a["nodes_nodeids"], strict=True), leaves, strict=True) if leaf
    }
    return {k for k, w in zip(keys, weights, strict=True) if w > 0} == all_leaves


def table_type(texts: bool) -> Any:
    """Of labels."""
    return object if texts else np.int64


def extracted(m: Interpreter, i: list[Item], _: Attributes) -> Any:
    """Columns by their numbers; of a list, entries in a row."""
    f, places = m.field, i[1].data.reshape(-1)
    table = i[0].data.reshape(1, -1) if i[0].data.ndim == 1 else i[0].data
    if i[1].exact:
        if i[0].exact:
            return exact(np.take(table, places.astype(np.int64), axis=-1))
        return m.symbol(f.rows(table, places, table.ndim - 1), i[0].dtype)
    elements = m.elements(exact(table)) if i[0].exact else table
    return m.symbol(f.take(elements, places, elements.ndim - 1), i[0].dtype)
