"""Which elements of a model's constants are read at some sizes.

A table of positions has a row for each position, and short inputs read the first rows only: two models that agree there
may hold other numbers behind. The shapes of a graph decide which rows are read, so a run for sizes alone tells it: each
element of a constant is given a number of its own, which is moved as the graph moves elements, and is read where an
operator computes with it.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx

from onnxtool.equality.certificate.field import Array, Field
from onnxtool.equality.certificate.interpreter import Interpreter, moves
from onnxtool.equality.certificate.ledger import constants_of, content_of
from onnxtool.equality.certificate.shapes import Shapes
from onnxtool.equality.certificate.sizes import Sizes, drawn_inputs, free_inputs
from onnxtool.equality.certificate.values import Item, NotCoveredError, Value, is_float
from onnxtool.model.cut_model import captured_names

_LARGEST = 200_000  # of a size


class _Reads(Shapes):
    """The operations of a field on numbers of elements; 0 is none that is followed.

    What is computed element by element gets numbers of its own, whose elements are read if these are. Of other
    operations all arguments are read.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count, self._next = count, count + 1
        self._computed: list[tuple[int, list[Array]]] = []
        self._read = np.zeros(0, bool)

    has_values = True  # the numbers of elements
    pad, concat, rows = Field.pad, Field.concat, Field.rows  # which move elements

    def mark(self, array: object) -> None:
        """All elements of an array are read."""
        if isinstance(array, np.ndarray) and array.dtype.kind in "iu" and array.any():
            unknown = self._next - self._read.size
            if unknown > 0:
                self._read = np.append(self._read, np.zeros(max(unknown, self._read.size), bool))
            self._read[array] = True

    def compute(self, arguments: Iterable[object], result: Array) -> Array:
        """Numbers for what is made of some arguments, element by element."""
        followed = [x for x in arguments if isinstance(x, np.ndarray) and x.dtype.kind in "iu" and x.any()]
        if not followed:
            return result
        self._computed.append((self._next, [np.broadcast_to(x, result.shape).reshape(-1) for x in followed]))
        self._next += result.size
        return np.arange(self._next - result.size, self._next).reshape(result.shape)

    def read(self) -> Array:
        """Of each element from 1 on, whether it is read."""
        found = np.append(self._read, np.zeros(max(self._next - self._read.size, 0), bool))
        for start, arguments in reversed(self._computed):
            for array in arguments:
                found[array[found[start : start + array.size]]] = True
        return found[1 : self._count + 1]


def _following(name: str) -> Any:
    plain = getattr(Shapes, name)

    @functools.wraps(plain)
    def method(self: _Reads, *arguments: Any, **named: Any) -> Any:
        found = plain(self, *arguments, **named)
        given = [*arguments, *named.values()]
        if name not in _TOGETHER:
            return self.compute(given, found)
        for argument in given:
            for array in argument if isinstance(argument, list | tuple) else (argument,):
                self.mark(array)
        return found

    return method


_TOGETHER = frozenset(
    (
        *("sum", "mean", "reduce_max", "product", "digest", "fingerprint", "log_sum_exp", "softmax", "shifted_exp"),
        *("layer_norm", "matmul", "conv", "conv_transpose", "take", "opaque"),
        *("cumsum", "einsum"),
    )
)
for _name in vars(Shapes).keys() - vars(_Reads).keys() - {"draw", "scalar", "from_int", "from_float"}:
    if not _name.startswith("_"):
        setattr(_Reads, _name, _following(_name))


class ReadElements:
    """The elements of some constants of a model that are read at some sizes.

    Args:
        model: the model.
        like: one that has the same inputs, whose dims have names.
        names: of the constants.
    """

    def __init__(self, model: onnx.ModelProto, like: onnx.ModelProto, names: Collection[str]) -> None:
        self._model, self._like = model, like
        self.constants = {n: x for n, x in constants_of(model).items() if n in names}
        floats = [n for n, x in self.constants.items() if is_float(x.dtype)]
        # Whole numbers may be places in a table: one that is followed is no place, so each is followed alone.
        self._groups = [g for g in (floats, *([n] for n in self.constants if n not in floats)) if g]
        self._deciding: set[str] = set()

    def at(self, sizes: Sizes) -> dict[str, Array] | None:
        """Of each constant, which elements are read; None where the model does not take the sizes."""
        if self._run(Shapes(), {}, sizes) is None:
            return None
        found = {n: np.ones(self.constants[n].size, bool) for n in self._deciding}
        pending, self._groups = self._groups, []
        while pending:
            names = pending.pop()
            starts = np.cumsum([1, *(self.constants[n].size for n in names)])
            field = _Reads(int(starts[-1]) - 1)
            numbers = {
                n: np.arange(start, start + self.constants[n].size).reshape(self.constants[n].shape)
                for n, start in zip(names, starts, strict=False)
            }
            outputs = self._run(field, numbers, sizes)
            if outputs is None and len(names) > 1:
                pending += [[n] for n in names]
                continue
            if outputs is None:  # its numbers decide a shape
                self._deciding.update(names)
                found[names[0]] = np.ones(self.constants[names[0]].size, bool)
                continue
            self._groups.append(names)
            for value in outputs:
                if isinstance(value, Value) and not value.exact:
                    field.mark(value.data)
            read = field.read()
            found.update({n: read[s - 1 : s - 1 + self.constants[n].size] for n, s in zip(names, starts, strict=False)})
        return found

    def _run(self, field: Shapes, numbers: dict[str, Array], sizes: Sizes) -> list[Item] | None:
        try:
            given = drawn_inputs(self._like, sizes, field).values()
            feeds = dict(zip((i.name for i in free_inputs(self._model)), given, strict=True))
            return list(Interpreter(self._model, field, numbers).run(feeds).values())
        except NotCoveredError:
            return None


def _moved(model: onnx.ModelProto) -> set[str]:
    """Constants that an operator reads which may leave elements out, itself or what follows from constants alone."""
    fixed = set(constants_of(model))
    for node in model.graph.node:
        if node.input and captured_names(node) <= fixed:
            fixed.update(node.output)
    found: set[str] = set()
    for node in reversed(model.graph.node):
        if (moves(node.op_type) or any(a.HasField("g") for a in node.attribute)) or not found.isdisjoint(node.output):
            found |= captured_names(node) & fixed
    return found


def unread_sizes(
    a: onnx.ModelProto, b: onnx.ModelProto, used: Sequence[Sizes], deadline: float
) -> tuple[list[Sizes], str]:
    """Sizes at which elements are read that were not at those before, of constants that one of the models has alone.

    Args:
        a: what is right.
        b: what is judged, with the same inputs.
        used: the sizes before.
        deadline: of this thread's processor time.

    Returns:
        The sizes, at which the models have to be compared, and a constant of B of which some elements are read at none.
    """
    held = [constants_of(m) for m in (a, b)]
    contents = [{content_of(x) for x in side.values()} for side in held]
    own = [
        {n for n in _moved(m) if n in side and side[n].size > 1 and content_of(side[n]) not in others}
        for m, side, others in zip((a, b), held, reversed(contents), strict=True)
    ]
    if not any(own):
        return [], ""
    both = [ReadElements(m, a, names) for m, names in zip((a, b), own, strict=True)]
    seen = {(k, n): np.zeros(x.size, bool) for k, side in enumerate(both) for n, x in side.constants.items()}

    def at(sizes: Sizes) -> dict[tuple[int, str], Array] | None:
        sides = [side.at(sizes) for side in both]
        if sides[0] is None:
            return None
        return {(k, n): x for k, side in enumerate(sides) for n, x in (side or {}).items()}

    for sizes in used:
        for key, read in (at(sizes) or {}).items():
            seen[key] |= read
    reached = {key: read.copy() for key, read in seen.items()}
    tried: list[tuple[Sizes, dict[tuple[int, str], Array]]] = []
    rows = {n for side in both for x in side.constants.values() for n in x.shape if n > 1}
    for sizes in _growing(used[0], rows):
        if all(read.all() for read in reached.values()) or time.thread_time() > deadline:
            break
        found = at(sizes)
        if found is not None and any((x & ~reached[key]).any() for key, x in found.items()):
            tried.append((sizes, found))
            for key, read in found.items():
                reached[key] |= read
    chosen = []
    for sizes, found in reversed(tried):
        if any((x & ~seen[key]).any() for key, x in found.items()):
            chosen.append(sizes)
            for key, read in found.items():
                seen[key] |= read
    return chosen, next((name for (k, name), read in seen.items() if k == 1 and not read.all()), "")


def _growing(usual: Sizes, rows: set[int]) -> Iterator[Sizes]:
    """Larger and larger sizes of each dim: about a table's rows, and twice as many again and again."""
    for name in usual:
        near = {n + d for n in rows for d in (-3, -2, -1, 0, 1)}
        doubled = {max(rows) * 2**k for k in range(1, 7)}
        for size in sorted(n for n in near | doubled if usual[name] < n <= _LARGEST):
            yield {**usual, name: size}


__all__ = ["ReadElements", "unread_sizes"]
