"""Which values an input may take, read off the graph: embedding indices, masks, positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, constant_array
from onnxtool.model.operators.table import operator_of

# Besides what moves data about: what gives results above zero where its (first) input is. A Gather picks some of many
# columns, and the others need not be positive.
_KEEP_SIGN = frozenset(["Cast", "Relu", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "MaxPool", "AveragePool"])
# Operator -> the input with the lengths of sequences.
_SEQUENCES = {"LSTM": 4, "GRU": 4, "RNN": 4, "ReverseSequence": 1}
# What texts hold that are read as numbers.
_WRITTEN_INTEGERS = ("0", "1", "-2", "7", "12", "150", "-3000", "65537")
_WRITTEN_FLOATS = (*_WRITTEN_INTEGERS, "3.5", "-0.25", "1e3", "2.5e-3")
_LEAST = 0.05
_LEAST_DEPTH, _LARGEST_DEPTH = 2, 8


@dataclass(frozen=True)
class Domain:
    """The values an input may take.

    Attributes:
        low: smallest value.
        high: value just past the largest (integers), largest (floats).
        values: the only values, where they are few (categories); tuples inside are for one column each. They come
            before `low` and `high`.
        columns: the smallest and largest of each column (last axis), where columns differ: of a table's units.
    """

    low: float
    high: float
    values: tuple[Any, ...] = ()
    columns: tuple[tuple[float, float], ...] = ()


def columns_domain(lows: np.ndarray, highs: np.ndarray) -> Domain | None:
    """The domain of a table whose columns lie each between its own ends; None where no column has any.

    Args:
        lows: [columns], the smallest of each; where it or the largest is not finite, the column lies where all do.
        highs: [columns], the largest of each.
    """
    told = np.isfinite(lows) & np.isfinite(highs)
    low, high = float(np.min(lows[told], initial=np.inf)), float(np.max(highs[told], initial=-np.inf))
    if low >= high:
        return None
    ends = zip(np.where(told, lows, low).tolist(), np.where(told, highs, high).tolist(), strict=True)
    return Domain(low, high, columns=tuple(ends))


def threshold_domain(features: np.ndarray, thresholds: np.ndarray, width: int) -> Domain | None:
    """Where rows of [batch, width] fall on both sides of the thresholds of trees.

    Args:
        features: [n], the column that each threshold is compared with.
        thresholds: [n].
        width: how many columns there are; those without a threshold lie where all thresholds do.
    """
    told = np.isfinite(thresholds)
    features, thresholds = features[told], thresholds[told]
    if not thresholds.size:
        return None
    own = [thresholds[features == f] if f in features else thresholds for f in range(width)]
    lows, highs = np.array([np.percentile(t, [1, 99]) for t in own]).T
    margins = np.where(highs > lows, 0.2 * (highs - lows), 1.0)
    return columns_domain(lows - margins, highs + margins)


def input_domains(model: ir.Model) -> dict[str, Domain]:
    """Find the domain of each input by following it to where it is used.

    An integer input that reaches the indices of a Gather over a dim of known size n gets [0, n); one that reaches a
    OneHot gets [0, depth), and a depth itself [2, 9). Where several uses disagree the smallest wins. Lengths of
    sequences (LSTM, GRU, RNN, ReverseSequence) are between 1 and the size of the time axis: 1 where this is dynamic.
    Inputs named like attention masks get [1, 2): all ones, what a caller would pass. A float input that reaches Sqrt or
    Log through nothing that changes its sign gets [0.05, 1]. Texts that are cast to numbers are numbers written out.
    """
    domains = {}
    for value in model.graph.inputs:
        if value.dtype is None or not value.name:
            continue
        if value.dtype == ir.DataType.STRING:
            written = _written_numbers(value)
            if written:
                domains[value.name] = Domain(0.0, 0.0, written)
        elif value.dtype.is_floating_point():
            if _needs_positive(value):
                domains[value.name] = Domain(_LEAST, 1.0)
        elif value.dtype.is_integer():
            found = _integers(value)
            if found is not None:
                domains[value.name] = found
    return domains


def _integers(value: ir.Value) -> Domain | None:
    limit = _index_limit(value)
    if limit is not None:
        return Domain(0, limit)
    longest = _longest_sequence(value)
    if longest is not None:
        return Domain(1, longest + 1)
    if any(node.op_type == "OneHot" and index == 1 for node, index in value.uses()):
        return Domain(_LEAST_DEPTH, _LARGEST_DEPTH + 1)
    return Domain(1, 2) if "mask" in (value.name or "").lower() else None


def _longest_sequence(value: ir.Value) -> int | None:
    """The longest sequence that `value` may tell the length of: 1 when the size of the time axis is not known."""
    limits = []
    for node, index in uses_behind(value, _carries_indices):
        if node.op_type in _SEQUENCES and index == _SEQUENCES[node.op_type]:
            axis = node.attributes.get("time_axis")
            batch_first = node.attributes.get("layout")
            place = axis.as_int() if axis is not None else int(batch_first is not None and batch_first.as_int() == 1)
            limits.append(_dim(node.inputs[0], place) or 1)
    return min(limits, default=None)


def _written_numbers(value: ir.Value) -> tuple[str, ...]:
    """What a text may hold that reaches a Cast to a number; empty where none does."""
    behind = uses_behind(value, _moves)
    casts = [node.attributes["to"] for node, _ in behind if node.op_type == "Cast" and "to" in node.attributes]
    kinds = [ir.DataType(to.as_int()) for to in casts if not to.is_ref()]
    kinds = [kind for kind in kinds if kind != ir.DataType.STRING]
    if not kinds:
        return ()
    return _WRITTEN_INTEGERS if any(kind.is_integer() for kind in kinds) else _WRITTEN_FLOATS


def _needs_positive(value: ir.Value) -> bool:
    """Does it reach a Sqrt or Log through operators that leave its sign alone?"""

    def keeps(node: ir.Node, index: int) -> bool:
        moved = _moves(node, index) and node.op_type != "Gather"
        return moved or (index == 0 and node.op_type in _KEEP_SIGN)

    behind = uses_behind(value, keeps)
    return any(node.op_type in ("Sqrt", "Log") and node.domain in ("", "ai.onnx") for node, _ in behind)


def _index_limit(value: ir.Value) -> int | None:
    limits = []
    for node, index in uses_behind(value, _carries_indices):
        limit = None
        if node.op_type in ("Gather", "GatherElements") and index == 1:
            limit = _dim(node.inputs[0], attribute(node, "axis", 0))
        elif node.op_type == "OneHot" and index == 0:
            depth = constant_array(node.inputs[1])
            limit = int(depth.reshape(-1)[0]) if depth is not None and depth.size else None
        if limit is not None and limit > 0:
            limits.append(limit)
    return min(limits, default=None)


def _carries_indices(node: ir.Node, index: int) -> bool:
    return _moves(node, index) or (index == 0 and node.op_type == "Cast")


def _moves(node: ir.Node, index: int) -> bool:
    row = operator_of(node)
    return row.moves and row.carries(index)


def uses_behind(value: ir.Value, carries: Callable[[ir.Node, int], bool]) -> Iterator[tuple[ir.Node, int]]:
    """The uses of a value, and of what nodes make that hand it on.

    Args:
        value: where to start.
        carries: whether a node hands on what it reads as this input.
    """
    seen, pending = {value}, [value]
    while pending:
        for use in pending.pop().uses():
            yield use.node, use.idx
            if carries(use.node, use.idx):
                new = [o for o in use.node.outputs if o not in seen]
                seen.update(new)
                pending += new


def _dim(value: ir.Value | None, axis: int) -> int | None:
    if value is None:
        return None
    array = constant_array(value)
    shape = array.shape if array is not None else value.shape
    if shape is None or not -len(shape) <= axis < len(shape):
        return None
    dim = shape[axis]
    return dim if isinstance(dim, int) else None
