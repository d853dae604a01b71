"""Are the rows of a batch independent? Decided in exact arithmetic, at random points of a finite field.

Two things are held at each size. The row of an output is what the model gives for that row alone, or what a model with
a fixed batch gives. And no element of any tensor depends on two rows: a sum over the batch that is subtracted again is
zero for exact numbers, not for floats.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from onnxtool.equality.certificate import operators
from onnxtool.equality.certificate.field import Field
from onnxtool.equality.certificate.interpreter import Interpreter
from onnxtool.equality.certificate.one_thread import one_thread
from onnxtool.equality.certificate.sizes import (
    SizeRun,
    Sizes,
    dim_key,
    drawn_inputs,
    free_inputs,
    turning_sizes,
    usual_sizes,
)
from onnxtool.equality.certificate.values import Item, NotCoveredError, Value

operators.register()
_MOST_ELEMENTS = 1 << 26  # of all tensors of a run together
_OTHER_SIZES = 3
_BATCH = "the batch"  # a name that no model has
_EACH = 3  # rows of a batch that are each held against each other
Feeds = Mapping[str, Value]


@dataclass(frozen=True)
class FixedBatch:
    """A model as it was before its batch became dynamic.

    Attributes:
        model: with the data of its weights.
        axes: input -> axis of the batch; the other inputs are the same for every row.
        size: the batch that it has; a row is given as often.
    """

    model: onnx.ModelProto
    axes: Mapping[str, int]
    size: int = 1


@dataclass(frozen=True)
class RowDependence:
    """What keeps the rows of a model from being certified as independent.

    Attributes:
        reason: one line; "" where they are certified.
        node: that mixes them, as messages call it; "" for none.
        decided: False where the model could not be evaluated, so that nothing is known.
    """

    reason: str = ""
    node: str = ""
    decided: bool = True


@one_thread()
def row_dependence(
    model: onnx.ModelProto, most: int, seconds: float = 20.0, fixed: FixedBatch | None = None
) -> RowDependence:
    """Decide whether the rows of a model's batch are independent.

    Args:
        model: with the data of its weights; its batch is dynamic.
        most: rows of the largest batch.
        seconds: of processor time that this may take; a model that takes longer is not certified.
        fixed: the model whose rows are right; None for this one, with the batch first in all inputs and outputs.
    """
    until = time.thread_time() + seconds
    try:
        batch = _batch_keys(model, fixed)
        if len(batch) > 1:
            model, batch = _one_batch(model, fixed), {_BATCH}
        usual = [*itertools.islice(usual_sizes(model, ()), 1 + _OTHER_SIZES)]
        first = {**usual[0], **(_old_sizes(model, fixed) if fixed else {})}
        decided, steps, unlike, _ = turning_sizes(
            model, model, usual[0], *(time.thread_time() + seconds * part for part in (1 / 8, 1 / 2))
        )
        if unlike is not None:
            return RowDependence("the shapes of its outputs differ from run to run")
        few = 3 if fixed and fixed.size == 2 else 2  # the fixed batch itself shows nothing
        tried: list[Sizes] = [{**first, **dict.fromkeys(batch, n)} for n in (few, 3, most)]
        tried += [{**sizes, **dict.fromkeys(batch, few)} for sizes in usual]
        for sizes in (*decided, *steps):
            rows = min(max(*(sizes[key] for key in batch), 2), most)
            tried.append({**sizes, **dict.fromkeys(batch, rows)})
        tried += _other_constants(model, usual[0], batch, most, [s for s in tried if 0 not in s.values()])
        alone = fixed.size if fixed else 1
        tried = [s for s in tried if all(s[key] != alone for key in batch)]
        for sizes in [s for i, s in enumerate(tried) if 0 not in s.values() and s not in tried[:i]]:
            found = _Rows(model, sizes, batch, until, fixed).dependence()
            if found.reason:
                return found
    except NotCoveredError as error:
        return RowDependence(f"was not decided: {error}", decided=False)
    except (MemoryError, RecursionError, OverflowError) as error:
        return RowDependence(f"was not decided: {type(error).__name__}", decided=False)
    return RowDependence()


def _batch_keys(model: onnx.ModelProto, fixed: FixedBatch | None) -> set[str]:
    """The dims that hold the batch."""
    keys, others = set[str](), set[str]()
    for info in free_inputs(model):
        dims = info.type.tensor_type.shape.dim
        axis = fixed.axes.get(info.name) if fixed else 0
        if axis is not None and (len(dims) <= axis or dims[axis].HasField("dim_value")):
            raise NotCoveredError(f"input {info.name!r} has a fixed dim {axis}")
        for k, dim in enumerate(dims):
            if not dim.HasField("dim_value"):
                (keys if k == axis else others).add(dim_key(info, k, dim))
    if not keys or keys & others:
        raise NotCoveredError("the batch is not one dim alone")
    return keys


def _one_batch(model: onnx.ModelProto, fixed: FixedBatch | None) -> onnx.ModelProto:
    """The model with one name for the batch: inputs of other numbers of rows have no batch in common."""
    named = onnx.ModelProto()
    named.CopyFrom(model)
    del named.graph.value_info[:]  # in which it may have its other names
    for info in free_inputs(named):
        axis = fixed.axes.get(info.name) if fixed else 0
        if axis is not None:
            info.type.tensor_type.shape.dim[axis].dim_param = _BATCH
    return named


def _old_sizes(model: onnx.ModelProto, fixed: FixedBatch) -> Sizes:
    """The dims beside the batch that have become dynamic too: at other sizes the fixed model says nothing."""
    before = {info.name: info.type.tensor_type.shape.dim for info in free_inputs(fixed.model)}
    return {
        dim_key(info, k, dim): old.dim_value
        for info in free_inputs(model)
        for k, (dim, old) in enumerate(zip(info.type.tensor_type.shape.dim, before.get(info.name, ()), strict=False))
        if old.HasField("dim_value") and not dim.HasField("dim_value") and k != fixed.axes.get(info.name)
    }


def _other_constants(
    model: onnx.ModelProto, usual: Sizes, batch: set[str], most: int, tried: Sequence[Sizes]
) -> list[Sizes]:
    """Batches for which the graph has constants that it has for none of those that are tried, as from a table."""
    run, found, known = SizeRun(model, model), list[Sizes](), set[tuple[str, int]]()
    for sizes in (*tried, *({**usual, **dict.fromkeys(batch, rows)} for rows in range(1, most))):
        run.of(sizes)
        own = set(run.constants.items())
        if not known >= own and sizes not in tried:
            found.append(sizes)
        known |= own
    return found


class _Rows:
    """A model at one size and one random point."""

    def __init__(
        self, model: onnx.ModelProto, sizes: Sizes, batch: set[str], until: float, fixed: FixedBatch | None
    ) -> None:
        self._model, self._sizes, self._until = model, sizes, until
        takes = fixed and _old_sizes(model, fixed).items() <= sizes.items()
        self._fixed = fixed if takes or fixed is None else FixedBatch(model, fixed.axes)
        self._axes = fixed.axes if fixed else {info.name: 0 for info in free_inputs(model)}
        self._count = sizes[next(iter(batch))]
        self._point = Field(secrets.randbits(48))

    def dependence(self) -> RowDependence:
        """The first node that mixes rows, or the output whose row is another one alone."""
        feeds, other = (drawn_inputs(self._model, self._sizes, self._point, mark) for mark in ("", "other"))
        expected, outputs = self._run(feeds)
        touched = [np.zeros(np.shape(data), bool) for _, data in expected]
        rows = [*range(self._count)]
        groups = [[row] for row in rows]
        if self._count > _EACH:  # one row beside all others
            rows = [secrets.randbelow(self._count)]
            groups = [rows, [row for row in range(self._count) if row != rows[0]]]
        for group in groups:
            found, _ = self._run(
                {n: _replaced(v, other[n], group, self._axes[n]) if n in self._axes else v for n, v in feeds.items()}
            )
            if len(found) != len(expected):
                return RowDependence("its steps depend on the rows")
            for index, ((node, was), (_, now)) in enumerate(zip(expected, found, strict=True)):
                if was.shape != now.shape:
                    return RowDependence(f"the shape of what {node} gives depends on the rows", node)
                changed = was != now
                if (changed & touched[index]).any():
                    return RowDependence(f"{node} mixes the rows of a batch", node)
                touched[index] |= changed
        # With each row one place further on, the place of a row is seen to be nothing, though few are held alone.
        moved = {n: _moved(v, self._axes[n]) if n in self._axes else v for n, v in feeds.items()}
        turned = self._run(moved)[1] if len(rows) < self._count else {}
        for row in rows:
            alone = self._alone(feeds, row)
            for name, whole in outputs.items():
                if not self._holds(whole, alone[name], row, turned.get(name)):
                    return RowDependence(f"a row of output {name!r} is another one in a batch than alone")
        return RowDependence()

    def _alone(self, feeds: Feeds, row: int) -> dict[str, np.ndarray]:
        """What is right for one row."""
        count = self._fixed.size if self._fixed else 1
        cut = {n: _cut(v, row, count, self._axes[n]) if n in self._axes else v for n, v in feeds.items()}
        return self._run(cut, self._fixed.model if self._fixed else self._model)[1]

    def _holds(self, whole: np.ndarray, one: np.ndarray, row: int, turned: np.ndarray | None) -> bool:
        """Whether an output of the batch has a row's part, or, if it may, is the same for every row.

        Args:
            whole: of the batch.
            one: of the row alone.
            row: its place.
            turned: of the batch with each row one place further on; None where all rows are held alone.
        """
        differ = [k for k, (m, n) in enumerate(zip(whole.shape, one.shape, strict=False)) if m != n]
        if whole.ndim != one.ndim or len(differ) > 1:
            return False
        if not differ:
            return self._fixed is not None and np.array_equal(whole, one)
        axis, count = differ[0], self._fixed.size if self._fixed else 1
        share = one.shape[axis] // count
        fits = share * count == one.shape[axis] and share * self._count == whole.shape[axis]
        if not fits or (self._fixed is None and (axis or share != 1)):
            return False
        if turned is not None and not np.array_equal(turned, np.roll(whole, share, axis)):
            return False
        part, own = np.take(whole, range(row * share, (row + 1) * share), axis), np.take(one, range(share), axis)
        return np.array_equal(part, own)

    def _run(
        self, feeds: Feeds, model: onnx.ModelProto | None = None
    ) -> tuple[list[tuple[str, np.ndarray]], dict[str, np.ndarray]]:
        """What every node gives, with its name, and the outputs."""
        seen = list[tuple[str, np.ndarray]]()
        count = 0

        def see(node: onnx.NodeProto, name: str, value: Item) -> None:
            nonlocal count
            if time.thread_time() > self._until:
                raise NotCoveredError("the time is over")
            for data in map(_data, value if isinstance(value, list) else [value]):
                count += data.size
                if count > _MOST_ELEMENTS:
                    raise NotCoveredError(f"its tensors have more than {_MOST_ELEMENTS} elements")
                seen.append((f"{node.op_type} {node.name or name!r}", data))

        outputs = Interpreter(model or self._model, self._point, see=see, rows=True).run(feeds)
        return seen, {name: _data(value) for name, value in outputs.items()}


def _data(value: Item) -> np.ndarray:
    if not isinstance(value, Value):
        raise NotCoveredError("a sequence or an optional")
    return value.data


def _replaced(value: Value, other: Value, rows: list[int], axis: int) -> Value:
    data = value.data.copy()
    np.moveaxis(data, axis, 0)[rows] = np.moveaxis(other.data, axis, 0)[rows]
    return Value(data, value.dtype, False)


def _moved(value: Value, axis: int) -> Value:
    return Value(np.roll(value.data, 1, axis), value.dtype, False)


def _cut(value: Value, row: int, count: int, axis: int) -> Value:
    return Value(np.repeat(np.take(value.data, [row], axis), count, axis), value.dtype, False)
