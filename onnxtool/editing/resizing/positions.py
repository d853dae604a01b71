"""Constants that follow the places of a dim, computed for any size of it: positions, masks, biases, tables of sines.

Exporters write what a module computes from a length as a tensor. It is computed again where a function of the places
gives all its elements to the last bit (sines: as closely as they are rounded) and the function has fewer numbers than
the dim has places. The numbers of the function are nodes of the graph like others, so `baked_numbers.py` judges them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

import numpy as np
import onnx_ir as ir

from onnxtool.editing.resizing.ordinary_numbers import is_share
from onnxtool.editing.resizing.resize_context import Resizing, node_key
from onnxtool.model.ir.queries import attribute, constant_array, producer
from onnxtool.model.operators.layout_rules import axes_of
from onnxtool.model.operators.shape_inference import infer_node
from onnxtool.model.operators.symbolic_dims import exact_divide, multiply
from onnxtool.model.operators.table import operator_of
from onnxtool.model.operators.value_facts import Size, Sizes, integers, set_sizes, sizes_of

_TELLING = 4  # places of which a function of two numbers has to give all
_MOST = 1 << 24  # elements
_SOME = 8  # places that tell the frequencies of columns apart
_FIRST = (0, 1, 2)  # of positions: some models keep 0, or 0 and 1, for padding
_ROUND = 2  # digits of the base of a ladder of frequencies: 10000, 500000

Axes = Mapping[int, Size]  # axis -> the size that it gets


class GoesOnError(Exception):
    """A tensor is made of constants that go on: they have to, from where they are read first, for all their readers.

    Attributes:
        origins: (node, operand) -> the axes along which that operand goes on.
    """

    def __init__(self, origins: Mapping[tuple[str, int], Axes]) -> None:
        super().__init__()
        self.origins = origins


def continued(state: Resizing, node: ir.Node, index: int, axes: Axes) -> ir.Value | None:
    """An operand for other sizes of some dims; None where nothing says how it goes on.

    Args:
        state: the attempt.
        node: what reads it.
        index: of the operand, a constant or made of constants that have the old sizes.
        axes: dims that have to be as large as something else; all of them if there are several.

    Raises:
        GoesOnError: it is made of constants that do.
    """
    value = node.inputs[index]
    array = state.array(value)
    made = _function_of_places(state, node, array, axes)
    if made is None and value is not None and (rows := _rows_of_table(state, value, axes)) is not None:
        made = _more_rows(state, node, value, axes, rows)
    if made is None and (origins := _origins(state, value, axes)):
        raise GoesOnError(origins)
    if made is not None and value is not None:
        state.old.adopt(made, value)
    return made


def _function_of_places(state: Resizing, node: ir.Node, array: np.ndarray | None, axes: Axes) -> ir.Value | None:
    if array is None or array.size > _MOST:
        return None
    places = _Places(state, node, array.ndim, axes)
    made: ir.Value | None = None
    if len(axes) == 1:
        made = places.affine(array) or (places.sines(array) if array.dtype.kind == "f" else None)
    elif len(axes) == 2:
        made = places.difference(array)
    if made is None:
        return None
    state.rounded |= array.dtype.kind == "f"
    return made if made.dtype == ir.DataType.from_numpy(array.dtype) else places.insert("Cast", made, to=array.dtype)


def counting(state: Resizing, node: ir.Node, value: ir.Value, axis: int, wanted: Size) -> ir.Value | None:
    """0, 1, ... up to a size in place of a constant that counts along an axis; None where it does not."""
    array = state.array(value)
    if array is None or array.size != array.shape[axis] or not _counts(array.reshape(-1)):
        return None
    return _Places(state, node, array.ndim, {axis: wanted}).at(axis, array.dtype)


def _counts(numbers: np.ndarray) -> bool:
    return numbers.dtype.kind in "iu" and bool((numbers == np.arange(numbers.size)).all())


def _rows_of_table(state: Resizing, value: ir.Value, axes: Axes) -> int | None:
    """How many rows a table has of which a Slice takes as many as the dim had; None where it is no such Slice."""
    maker = producer(value if len(axes) == 1 else None, "Slice")
    if maker is None or maker.graph is not state.model.graph or len(maker.inputs) < 4:
        return None
    table, bounds = constant_array(maker.inputs[0]), [integers(v) for v in maker.inputs[1:]]
    ((axis, wanted),) = axes.items()
    whole = [(0,), (state.old.number(wanted),), (axis,), (1,)]
    if table is None or bounds != whole[: len(bounds)] or table.shape[axis] <= whole[1][0]:
        return None
    return int(table.shape[axis])


def _more_rows(state: Resizing, node: ir.Node, value: ir.Value, axes: Axes, rows: int) -> ir.Value:
    """A Slice of a table that takes as many rows as the dim has now."""
    maker = value.producer()
    assert maker is not None
    ((axis, wanted),) = axes.items()
    state.limit([wanted], rows, np.array(state.old.number(wanted) - 1))
    bounds = [maker.inputs[1], state.scalar(wanted, node), *maker.inputs[3:]]
    made = state.insert("Slice", [maker.inputs[0], *bounds], [], "rows")
    made.type = value.type
    set_sizes(made, [wanted if i == axis else d for i, d in enumerate(sizes_of(value) or ())])
    return made


def _origins(state: Resizing, value: ir.Value | None, axes: Axes) -> dict[tuple[str, int], Axes] | None:
    """The operands that a tensor is made of and that go on: positions of which a table has rows, and the like."""
    maker, made = value.producer() if value is not None else None, sizes_of(value) or ()
    if maker is None or not made or maker.graph is not state.model.graph or len(maker.outputs) != 1:
        return None
    found: dict[tuple[str, int], Axes] = {}
    for index, operand in enumerate(maker.inputs):
        sizes = sizes_of(operand) or ()
        follows = _axes_of_operand(state, maker, index, made, sizes).items()
        own = {to: _share(axes[a], sizes[to], made[a]) for a, to in follows if a in axes}
        repeated = {a: size for a, size in own.items() if sizes[a] == 1}
        own = {a: size for a, size in own.items() if sizes[a] != 1}
        if repeated and maker.op_type == "Expand":
            found[node_key(maker), 1] = {a + len(made) - len(sizes): size for a, size in repeated.items()}
        if not own:
            continue
        array = state.array(operand)
        if deeper := _origins(state, operand, own):
            found |= deeper
        elif _function_of_places(state, maker, array, own) is not None or (
            operand is not None and _rows_of_table(state, operand, own) is not None
        ):
            found[node_key(maker), index] = own
        else:
            return None
    return found


def _share(wanted: Size, size: Size, made: Size) -> Size:
    """The size that an operand's dim gets, where a Reshape joins it with others to what is wanted, or cuts it."""
    return wanted if size in (1, made) else exact_divide(multiply(wanted, size), made) or wanted


def _axes_of_operand(state: Resizing, node: ir.Node, index: int, made: Sizes, sizes: Sizes) -> dict[int, int]:
    """Axes of the output -> axes of an operand that has the same dims there, and whose elements stay in their order."""
    rank, own = len(made), len(sizes)
    if operator_of(node).shape == "broadcast" or (node.op_type == "Expand" and index == 0):
        return {a: a - rank + own for a in range(rank - own, rank)}
    if node.op_type == "Gather" and index == 1:
        first = attribute(node, "axis", 0) % (rank - own + 1)
        return {first + a: a for a in range(own)}
    if node.op_type == "GatherND" and index == 1:
        return {a: a for a in range(own - 1)}
    if node.op_type == "Unsqueeze" and index == 0:
        kept = [a for a in range(rank) if a not in {n % rank for n in axes_of(node) or ()}]
        return {a: place for place, a in enumerate(kept)}
    if node.op_type == "Transpose":
        return dict(enumerate(attribute(node, "perm", range(rank)[::-1])))
    if node.op_type == "Reshape" and index == 0:
        before, after = ([state.old.number(d) for d in dims] for dims in (sizes, made))
        starts = {prod(before[:a]): a for a in reversed(range(own)) if before[a] != 1}
        found = {a: starts.get(prod(after[:a]), -1) for a in range(rank) if after[a] != 1}
        return {a: b for a, b in found.items() if b >= 0 and before[b] == after[a]}
    return {a: a for a in range(rank)} if operator_of(node).shape == "same" and index == 0 else {}


class _Places:
    """Writes a tensor as a function of the places along one or two of its dims."""

    def __init__(self, state: Resizing, node: ir.Node, rank: int, axes: Axes) -> None:
        self._state, self._node, self._rank, self._axes = state, node, rank, axes

    def insert(self, op_type: str, *inputs: ir.Value, axis: int = 0, to: np.dtype | None = None) -> ir.Value:
        """A node whose output has the type that is given, or that of its first input."""
        kind = inputs[0].dtype if to is None else ir.DataType.from_numpy(to)
        attributes = {
            "Cast": [ir.AttrInt64("to", int(kind or 0))],
            "Gather": [ir.AttrInt64("axis", axis)],
        }
        made = self._state.insert(op_type, inputs, attributes.get(op_type, []), "places")
        made.type = None if kind is None else ir.TensorType(kind)
        maker = made.producer()
        assert maker is not None
        infer_node(maker, self._state.opset)
        return made

    def affine(self, array: np.ndarray) -> ir.Value | None:
        """First + step * place."""
        (axis,) = self._axes
        rows = np.moveaxis(_wide(array), axis, 0)
        if len(rows) < 2 or (len(rows) < _TELLING and not _counts(array.reshape(-1))):
            return None
        first, step = rows[0], rows[1] - rows[0]
        ramp = np.arange(len(rows)).reshape(-1, *[1] * (rows.ndim - 1))
        if not _equal(first + step * ramp.astype(rows.dtype), rows):
            return None
        last = rows[-1]
        shares = step.size == 1 and is_share(step.item(), len(rows))
        if shares or ((first == -last) & (first != 0)).any():
            self._state.assumed.append((self._node, f"the line to {last.flat[0]:g} does not end there at every size"))
        return self._line(self.at(axis, rows.dtype), np.expand_dims(first, axis), np.expand_dims(step, axis))

    def difference(self, array: np.ndarray) -> ir.Value | None:
        """Of two places, the last dims: a line where the first is larger, one where it is smaller, and what is between.

        So are masks of what comes later, distances, and biases that grow with them. No two sizes are compared in the
        graph: the sign of the difference looks the line up.
        """
        rank, count = array.ndim, array.shape[-1]
        if sorted(self._axes) != [rank - 2, rank - 1] or array.shape[-2] != count or count < _TELLING:
            return None
        wide = _wide(array)
        apart = np.subtract.outer(np.arange(count), np.arange(count))
        base, step = np.zeros((2, *array.shape[:-2], 3), wide.dtype)
        base[..., 1] = wide[..., 0, 0]
        with np.errstate(invalid="ignore"):
            for side, one, two in ((0, wide[..., 0, 1], wide[..., 0, 2]), (2, wide[..., 1, 0], wide[..., 2, 0])):
                step[..., side] = np.where(one == two, 0, (two - one) * (side - 1))
                base[..., side] = np.where(one == two, one, one - step[..., side] * (side - 1))
            found = base[..., 1 + np.sign(apart)] + step[..., 1 + np.sign(apart)] * apart.astype(wide.dtype)
        if not _equal(found, wide):
            return None
        step[..., 1] = step[..., 2]
        counted = [self._state.count_to(self._axes[axis], self._node) for axis in (rank - 2, rank - 1)]
        column = self.insert("Reshape", counted[0], self._state.constant([-1, 1], "column"))
        away = self.insert("Sub", column, counted[1])
        which = self.insert("Add", self.insert("Sign", away), self._state.constant([1], "one"))

        def looked_up(table: np.ndarray) -> ir.Value:
            if (table == table[..., :1]).all():
                return self._constant(table[..., :1, None], judged=not _is_ladder(table))
            return self.insert("Gather", self._constant(table, judged=not _is_ladder(table)), which, axis=rank - 2)

        return self._line(away, base, step, looked_up)

    def sines(self, array: np.ndarray) -> ir.Value | None:
        """Sines and cosines of place / base ** (k / n), as transformers have them; "cos" may be a table of both."""
        (axis,) = self._axes
        rows = np.moveaxis(array, axis, 0)
        table = rows.reshape(len(rows), -1).astype(np.float64)
        eps = np.finfo(array.dtype).eps
        fits = ((n, _ladder(table, eps, n)) for n in _FIRST) if len(rows) > _TELLING else ()
        begin, found = next(((n, ladder) for n, ladder in fits if ladder is not None), (0, None))
        if found is None:
            return None
        base, *arrays = found
        self._state.bases.append((self._node, base))
        frequencies, sine = (np.expand_dims(a.reshape(rows.shape[1:]), axis) for a in arrays)
        speed = self._constant(frequencies.astype(np.float32), judged=False)
        place = self.at(axis, np.dtype(np.float32))
        place = self.insert("Add", place, self._constant(np.array(begin, np.float32), judged=False)) if begin else place
        angle = self.insert("Mul", place, speed)
        waves = [self.insert(name, angle) for name, there in (("Sin", sine.any()), ("Cos", not sine.all())) if there]
        if len(waves) == 1:
            return waves[0]
        return self.insert("Where", self._constant(sine), *waves, to=np.dtype(np.float32))

    def _line(
        self, place: ir.Value, first: np.ndarray, step: np.ndarray, make: Callable[[np.ndarray], ir.Value] | None = None
    ) -> ir.Value:
        """First + step * place; both are constants unless `make` says how they are looked up."""
        make = make or self._constant
        if not step.any():
            return make(first)
        if place.dtype != ir.DataType.from_numpy(step.dtype):
            place = self.insert("Cast", place, to=step.dtype)
        slope = place if (step == 1).all() else self.insert("Mul", place, make(step))
        return self.insert("Add", slope, make(first)) if first.any() else slope

    def at(self, axis: int, dtype: np.dtype) -> ir.Value:
        """0, 1, 2, ... along a dim."""
        counted = self._state.count_to(self._axes[axis], self._node)
        if dtype != np.int64:
            counted = self.insert("Cast", counted, to=dtype)
        if self._rank == 1:
            return counted
        shape = self._state.constant([-1 if i == axis else 1 for i in range(self._rank)], "places_shape")
        return self.insert("Reshape", counted, shape)

    def _constant(self, array: np.ndarray, *, judged: bool = True) -> ir.Value:
        """A number of the function: judged alone, unless numbers of their own explain it."""
        made = self._state.context.initializer(np.ascontiguousarray(array), "places")
        if judged:
            self._state.computed.add(made.name or "")
        return made


def _is_ladder(numbers: np.ndarray) -> bool:
    """Whether numbers are q, q ** 2, q ** 3, ..., as the slopes of heads."""
    rungs = np.unique(np.abs(numbers[numbers != 0]))
    return len(rungs) > 1 and bool(np.allclose(rungs[:-1] / rungs[1:], rungs[-1], rtol=1e-5))


def _wide(array: np.ndarray) -> np.ndarray:
    """In a type that the runtime computes all of this with."""
    return array.astype(np.int64 if array.dtype.kind in "biu" else np.float64 if array.itemsize == 8 else np.float32)


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.array_equal(np.broadcast_to(a, b.shape), b, equal_nan=b.dtype.kind == "f"))


def _ladder(table: np.ndarray, eps: float, first: int) -> tuple[float, np.ndarray, np.ndarray] | None:
    """Of a table [place, column] the base, the frequency of each column, and whether it is a sine, for all of them.

    Its places count from the first one on. The frequencies are 1, q, q ** 2, ... for q = base ** (-1 / n) and a base of
    few digits; else None.
    """
    places = first + np.arange(len(table))[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        bend = (table[1:-1] * (2 * table[1:-1] - table[2:] - table[:-2])).sum(0) / (2 * table[1:-1] ** 2).sum(0)
        speeds = 2 * np.arcsin(np.sqrt(bend / 2))  # cos(a + w) + cos(a - w) = 2 cos(a) cos(w)
    slower = speeds[speeds < 1 - 1e-3]
    for count in {table.shape[1], table.shape[1] // 2, table.shape[1] // 4} if slower.size else ():
        base = slower.max() ** -count if slower.max() > 0 else np.inf
        if count < 2 or not np.isfinite(base):
            continue
        base = float(f"{base:.{_ROUND}g}")
        ladder = base ** (-np.arange(count) / count)
        angles = places * ladder
        waves = np.concatenate([np.cos(angles), np.sin(angles)], 1)
        some = np.unique(np.geomspace(1, len(table) - 1, _SOME).astype(int))
        nearest = np.abs(table[some, :, None] - waves[some, None, :]).max(0).argmin(1)
        off = np.abs(table - waves[:, nearest]) / (1 + angles[:, nearest % count])
        if off.max() <= 4 * eps and 0 in nearest % count:
            return base, ladder[nearest % count], nearest >= count
    return None
