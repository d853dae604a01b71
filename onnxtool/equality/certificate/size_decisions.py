"""What graphs decide by sizes alone, at thousands of sizes at once: an array holds each number at all of them.

A condition may hold at one size only: of pictures of 14 x 14 patches, of sizes that leave a remainder. Halving the way
to a larger size does not find it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from onnxtool.equality.certificate.interpreter import Interpreter
from onnxtool.equality.certificate.shapes import Shapes
from onnxtool.equality.certificate.values import FAULTS, Item, NotCoveredError, Value, exact, several
from onnxtool.errors import InputError
from onnxtool.model import io
from onnxtool.model.cut_model import captured_names
from onnxtool.model.operators.shape_inference import infer_shapes
from onnxtool.model.operators.symbolic_dims import choices, evaluate
from onnxtool.model.operators.table import lookup, operator_of
from onnxtool.model.operators.value_facts import Sizes, remember_given, sizes_of
from onnxtool.model.proto_nodes import all_nodes
from onnxtool.model.shapes import infer, light_copy

Array = np.ndarray
_SMALL = 16  # numbers of a tensor that are followed
KNOWN, _PAIRED, _TRIPLED = 4_097, 161, 33  # of one dim, or of all at once; of each of two; of each of three
_BESIDE = 48  # size of the other dims, beside one of any size: decisions of several are met there before all are large
_PARTS = 2**10  # factors of a polynomial are multiples of one part: 1/32 of a size that is a multiple of 32
_MOST = 96  # sizes that may decide something
_ALIKE = 0.02  # of all sizes, at which two numbers are the same that begin so
_CHOOSE = ("Min", "Max", "Clip")
_REDUCE: dict[str, np.ufunc] = {
    "ReduceProd": np.multiply,
    "ReduceSum": np.add,
    "ReduceMax": np.maximum,
    "ReduceMin": np.minimum,
}


class Deciding(NamedTuple):
    """Sizes at which something is decided that is not at others before, the first of each.

    Attributes:
        sizes: of all dims, by their names.
        unknown: a tensor whose dims, or whose numbers, are not known at all sizes. "" where all are: then nothing else
            is decided up to `KNOWN` of one dim, 160 of two, 32 of three.
    """

    sizes: list[dict[str, int]]
    unknown: str


def deciding_sizes(
    models: Sequence[onnx.ModelProto],
    inputs: Mapping[str, Sequence[int | str]],
    usual: Mapping[str, int],
    draw: Callable[[Mapping[str, int]], Mapping[str, Item]],
) -> Deciding:
    """Sizes at which something is decided that is not at others before.

    Args:
        models: which take the same inputs, in this order.
        inputs: their shapes; a text is the name of a dim.
        usual: sizes of these dims that the models take.
        draw: gives inputs at some sizes.

    Raises:
        NotCoveredError: one of them decides something at sizes that are not known, or at too many.
    """
    columns = _all_sizes(usual)
    numbered = {key: f"n{place}" for place, key in enumerate(columns)}  # names may be any text
    shapes = {name: [d if isinstance(d, int) else numbered[d] for d in dims] for name, dims in inputs.items()}
    sizes = dict(zip(numbered.values(), columns.values(), strict=True))
    feeds = {tuple(few.values()): draw(few) for few in _few_sizes(usual)}
    both = [_Decisions(model, shapes, feeds, sizes) for model in models]
    if unfollowed := next((found for decisions in both for found in decisions.unfollowed), ""):
        raise NotCoveredError(f"it is not known at which sizes {unfollowed} decides what")
    found = np.concatenate([array for decisions in both for array in decisions.told], axis=1)
    first = {int(np.flatnonzero(column == n)[0]) for column in found.T for n in np.unique(column)}
    partings = _partings({key: n for decisions in both for key, n in decisions.numbers().items()}.values())
    first |= partings.keys()
    together = np.unique(found, axis=0, return_index=True)[1] if found.size else np.zeros(0, int)
    order = [*sorted(first), *sorted({*together.tolist()} - first)]
    made = {at: {name: int(column[at]) for name, column in columns.items()} for at in order}
    beyond = [
        {**made[at], name: number + 1}  # places of a dim below one of the numbers, and not below the other
        for at, number in partings.items()
        for name, size in made[at].items()
        if size <= number < KNOWN
    ]
    deciding = [*made.values(), *beyond]
    hold_few(deciding)
    return Deciding(deciding, next((decisions.unknown for decisions in both if decisions.unknown), ""))


def _partings(numbers: Iterable[Array]) -> dict[int, int]:
    """Where numbers that models make of sizes alone part that begin as the same: one may stand for the other.

    Such as n * n / 1009 and (n * n + 1) / 1009, rounded down.

    Args:
        numbers: each another one, [sizes]; the first size is the usual one.

    Returns:
        The smaller number there, by the place of the size.
    """
    found: dict[int, int] = {}
    for x, y in itertools.combinations(numbers, 2):
        if x[0] == y[0] and np.mean(x == y) > _ALIKE:
            at = int(np.argmax(x != y))
            found[at] = max(int(np.nan_to_num(min(abs(x[at]), abs(y[at])))), found.get(at, 0))
    return found


def hold_few(deciding: Sequence[object]) -> None:
    """Refuse to certify what is decided by more sizes than are compared.

    Raises:
        NotCoveredError: these are too many.
    """
    if len(deciding) > _MOST:
        raise NotCoveredError(f"more than {_MOST} sizes decide something")


def _all_sizes(usual: Mapping[str, int]) -> dict[str, Array]:
    """By name of a dim, its sizes: each alone, beside usual and larger ones, two and three together, all the same."""
    parts: list[Mapping[str, Array]] = [{}]
    line = np.arange(1, KNOWN)
    parts += [{name: line} for name in usual]
    if len(usual) > 1:
        beside = {name: np.full(len(line), max(size, _BESIDE)) for name, size in usual.items()}
        parts += [*({**beside, name: line} for name in usual), dict.fromkeys(usual, line)]
    for count, end in ((2, _PAIRED), (3, _TRIPLED)):
        grid = [n.ravel() for n in np.meshgrid(*[np.arange(1, end)] * count, indexing="ij")]
        parts += [dict(zip(few, grid, strict=True)) for few in itertools.combinations(usual, count)]
    counts = [len(next(iter(part.values()), [0])) for part in parts]
    return {
        name: np.concatenate([part.get(name, np.full(n, size)) for part, n in zip(parts, counts, strict=True)])
        for name, size in usual.items()
    }


def _few_sizes(usual: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Sizes near the usual ones, and their multiples, since some models take no others; the usual ones last.

    Of each kind there are more than a polynomial of products of two dims has terms.
    """
    generator, count = np.random.default_rng(0), len(usual)
    for _ in range(3 + count + count * (count - 1) // 2):
        more = dict(zip(usual, generator.integers(0, 14, count).tolist(), strict=True))
        yield {name: n + more[name] for name, n in usual.items()}
        yield {name: n * (1 + more[name] % 5) for name, n in usual.items()}
    yield dict(usual)


class _Decisions:
    """What a model decides by sizes alone.

    Args:
        model: the model.
        inputs: as above, by the names of another model.
        feeds: inputs by the sizes of the dims.
        columns: the sizes of each dim, [sizes].

    Attributes:
        told: truth values, the signs of numbers and which of several is the largest, each [sizes, numbers].
        unknown: the first tensor whose dims are not known at all sizes, or what is made of them; "" for none.
        unfollowed: nodes that decide something by sizes, at which of them is not known.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        inputs: Mapping[str, Sequence[int | str]],
        feeds: Mapping[tuple[int, ...], Mapping[str, Item]],
        columns: Mapping[str, Array],
    ) -> None:
        self._count, self._columns = len(next(iter(columns.values()))), columns
        self._feeds, self._numbers, self._shapes = feeds, dict[str, Array](), dict[str, tuple[int, ...]]()
        self._run = Interpreter(model, Shapes(), see=self._keep)
        own = {t.name for t in model.graph.initializer}
        self._names = [i.name for i in model.graph.input if i.name not in own]
        *_, others, usual = feeds.values()
        self._runs(others)
        self._others = self._numbers  # those that sizes alone decide
        self._runs(usual)
        self._usual = self._numbers
        given = dict(zip(self._names, inputs.values(), strict=True))
        hanging = _hanging(model.graph, given)
        fixed = {name: shape for name, shape in self._shapes.items() if name not in hanging}
        self._dims = _dims(model, given, fixed)
        self._fixed = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer if np.prod(t.dims) <= _SMALL}
        self._known: dict[str, Array] = {}  # [sizes, *shape]
        self.told: list[Array] = [np.zeros((self._count, 0), np.int8)]
        self.unfollowed: list[str] = []
        self._varying: set[str] = set()  # numbers that hang on sizes
        self._own_dims: list[Array] = []
        self.unknown = self._follow_dims(hanging)
        for node in all_nodes(model.graph.node):
            with suppress(NotCoveredError, *FAULTS), np.errstate(all="ignore"):
                self._follow(node)
                self._meet_diagonal(node)
            self._note(node)

    def _follow_dims(self, names: Iterable[str]) -> str:
        """Note the dims of tensors, and where these are the smaller of two sizes; the first tensor of unknown ones."""
        unknown = next((name for name in names if name not in self._dims), "")
        for size, name in {size: name for name, dims in self._dims.items() for size in dims}.items():
            try:
                self._own_dims.append(np.broadcast_to(evaluate(size, self._columns), self._count))
                cuts = [np.sign(cut) for cut in choices(size, self._columns)]
                self.told += [np.broadcast_to(cut, self._count)[:, None].astype(np.int8) for cut in cuts]
            except LookupError:
                unknown = unknown or name
        return unknown

    def numbers(self) -> dict[bytes, Array]:
        """What the model makes of sizes, dims among it, one number each, [sizes], by its bytes."""
        made = (n for x in self._known.values() for n in x.reshape(self._count, -1).T)
        floats = (n.astype(np.float64) for n in itertools.chain(made, self._own_dims))
        return {n.tobytes(): n for n in floats}

    def _runs(self, given: Mapping[str, Item]) -> bool:
        """Run the model, and note the shapes of all tensors and numbers of small ones as far as it comes."""
        self._numbers, self._shapes = {}, {}
        with suppress(NotCoveredError):
            self._run.run(dict(zip(self._names, given.values(), strict=True)))
            return True
        return False

    @cached_property
    def _seen(self) -> list[tuple[tuple[int, ...], dict[str, tuple[int, ...]]]]:
        """The shapes of all tensors at a few sizes. Most graphs need none of them."""
        return [(sizes, self._shapes) for sizes, given in self._feeds.items() if self._runs(given)]

    def _keep(self, _: onnx.NodeProto, name: str, value: Item) -> None:
        if not isinstance(value, Value):
            return
        self._shapes[name] = value.data.shape
        known = value.data if value.exact else value.number
        if known is not None and known.dtype.kind in "biuf" and known.size <= _SMALL:
            self._numbers[name] = known

    def _follow(self, node: onnx.NodeProto) -> None:
        name, read = node.output[0], [n for n in node.input if n]
        if node.op_type in ("Shape", "Size"):
            self._learn(name, self._sizes(node))
        elif name in self._usual and all(n in self._fixed for n in read):
            self._fixed[name] = self._usual[name]
        elif name in self._usual and all(n in self._fixed or n in self._known for n in read):
            made = self._made(node)
            for output, numbers in zip(node.output, made, strict=False):
                self._learn(output, numbers)
            self._tell(node, made[0])

    def _learn(self, name: str, numbers: Array) -> None:
        if (numbers == numbers[:1]).all():  # the rank of a tensor, or the width of a head
            self._fixed[name] = numbers[0]
        else:
            self._known[name] = numbers

    def _meet_diagonal(self, node: onnx.NodeProto) -> None:
        """Note from which dims on a matrix reaches the diagonal that it is cut or filled at."""
        if node.op_type not in ("Trilu", "EyeLike"):
            return
        far: Any = next((a.i for a in node.attribute if a.name == "k"), 0)
        try:
            for name in filter(None, node.input[1:]):
                far = self._known[name] if name in self._known else self._fixed[name]
            dims = np.stack([np.broadcast_to(n, self._count) for n in self._dims_at(node.input[0])[-2:]], axis=1)
            self.told.append(np.sign(dims - np.reshape(np.abs(far), (-1, 1)) - 1).astype(np.int8))
        except (NotCoveredError, *FAULTS):
            if np.max(np.abs(far)) > 1:  # nearer ones are reached at all sizes
                self.unfollowed.append(f"{node.op_type} {node.output[0]!r}")

    def _note(self, node: onnx.NodeProto) -> None:
        """Note numbers that hang on sizes, and what is decided by them, it is not known at which."""
        for name in node.output:
            number, other = self._usual.get(name), self._others.get(name)
            if number is None or name in self._fixed:
                continue
            alike = other is not None and np.array_equal(number, other)
            if alike and not any(n in self._varying for n in node.input):
                continue
            self._varying.add(name)
            decides = number.dtype.kind == "b" or node.op_type in ("Sub", *_CHOOSE)
            has_size = all(isinstance(n, int) for n in self._dims.get(name, ()))  # not so a mask
            if has_size and name not in self._known:
                self.unknown = self.unknown or name
                self.unfollowed += [f"{node.op_type} {name!r}"] if decides and not operator_of(node).moves else []

    def _sizes(self, node: onnx.NodeProto) -> Array:
        given = {a.name: a.i for a in node.attribute}
        sizes = [np.broadcast_to(n, self._count) for n in self._dims_at(node.input[0])]
        if node.op_type == "Size":
            return np.asarray(np.prod(sizes, axis=0))
        return np.stack(sizes, axis=1)[:, given.get("start", 0) : given.get("end", len(sizes))]

    def _dims_at(self, name: str) -> Sequence[Any]:
        """The dims of a tensor at all sizes; where no rule tells them, the polynomial that all runs agree with.

        Raises:
            NotCoveredError: there is none.
        """
        with suppress(LookupError):
            return [evaluate(n, self._columns) for n in self._dims[name]]
        runs = [(sizes, shapes[name]) for sizes, shapes in self._seen if name in shapes]
        terms = [t for degree in range(3) for t in itertools.combinations(range(len(self._columns)), degree)]

        def powers(sizes: Sequence[Any]) -> Array:
            return np.stack([math.prod((sizes[k] for k in term), start=np.ones_like(sizes[0])) for term in terms], -1)

        seen, dims = powers([*np.array([s for s, _ in runs]).T]), np.array([d for _, d in runs])
        found = np.rint(np.linalg.lstsq(seen, dims, rcond=None)[0] * _PARTS) / _PARTS
        if len(runs) < len(terms) + 2 or not np.array_equal(seen @ found, dims):
            raise NotCoveredError(f"the dims of {name!r}")
        return list((powers(list(self._columns.values())) @ found).astype(np.int64).T)

    def _made(self, node: onnx.NodeProto) -> list[Array]:
        kind, given = node.op_type, {a.name: helper.get_attribute_value(a) for a in node.attribute}
        row, many = lookup(kind, node.domain), [n in self._known for n in node.input]
        inputs = [self._known.get(n, self._fixed.get(n)) if n else None for n in node.input]
        if row.elementwise:
            rank = max(x.ndim - m for x, m in zip(inputs, many, strict=True) if x is not None)
            return self._reference(
                node, [_spread(x, rank) if m else x for x, m in zip(inputs, many, strict=True)], given
            )
        first = inputs[0]
        if kind in _REDUCE and first is not None and many[1:] in ([], [False]):
            rank = first.ndim - 1
            axes = given.get("axes") or (range(rank) if len(inputs) < 2 else np.asarray(inputs[1]).tolist())
            own = tuple(1 + axis % rank for axis in axes)
            return [_REDUCE[kind].reduce(first, axis=own, keepdims=bool(given.get("keepdims", 1)))]
        if not row.moves or any(m and not row.carries(place) for place, m in enumerate(many)):
            raise NotCoveredError(kind)
        return self._moved(node, inputs, given)

    def _moved(self, node: onnx.NodeProto, inputs: Sequence[Array | None], given: dict[str, Any]) -> list[Array]:
        """Numbers in other places: those of the places are moved."""
        flat: list[Array] = []
        places = list(inputs)
        for place, (x, name) in enumerate(zip(inputs, node.input, strict=True)):
            if x is not None and lookup(node.op_type, node.domain).carries(place):
                one = x[0] if name in self._known else x
                start = sum(f.shape[1] for f in flat)
                flat.append(np.broadcast_to(x.reshape(-1, one.size), (self._count, one.size)))
                places[place] = np.arange(start, start + one.size).reshape(one.shape)
        pool = np.concatenate(flat, axis=1)
        return [pool[:, found] for found in self._reference(node, places, given)]

    def _reference(self, node: onnx.NodeProto, inputs: Sequence[Array | None], given: dict[str, Any]) -> list[Array]:
        values = [None if x is None else exact(x) for x in inputs]
        return [v.data for v in several(self._run.by_reference(node.op_type, values, given, len(node.output)))]

    def _tell(self, node: onnx.NodeProto, made: Array) -> None:
        flat = made.reshape(self._count, -1)
        if made.dtype.kind == "b":
            self.told.append(flat.astype(np.int8))
            return
        self.told.append(np.sign(flat).astype(np.int8))
        if node.op_type in _CHOOSE:
            chosen = [self._known[n] if n in self._known else self._fixed[n][None] for n in node.input if n]
            self.told += [(x == made).reshape(self._count, -1).astype(np.int8) for x in chosen if x.ndim == made.ndim]


def _hanging(graph: onnx.GraphProto, inputs: Mapping[str, Sequence[int | str]]) -> dict[str, None]:
    """The tensors that inputs of free dims lead to, in inner graphs too; all others are the same at all sizes."""
    reached = {name for name, dims in inputs.items() if any(isinstance(dim, str) for dim in dims)}
    for node in graph.node:
        if not reached.isdisjoint(captured_names(node)):
            reached.update(name for inner in all_nodes([node]) for name in inner.output if name)
    return {name: None for node in all_nodes(graph.node) for name in node.output if name in reached}


def _spread(x: Array | None, rank: int) -> Array | None:
    """Numbers at all sizes, [sizes, *shape], with as many dims behind the sizes as others have."""
    return None if x is None else x.reshape(len(x), *[1] * (rank + 1 - x.ndim), *x.shape[1:])


def _dims(
    model: onnx.ModelProto, inputs: Mapping[str, Sequence[int | str]], fixed: Mapping[str, tuple[int, ...]]
) -> dict[str, Sizes]:
    """The dims of each tensor as expressions of those of the inputs, by its name.

    Args:
        model: whose declared dims do not count.
        inputs: their dims, by name.
        fixed: the shapes of tensors that are the same at all sizes.
    """
    copy = light_copy(model)
    kinds = {i.name: i.type.tensor_type.elem_type for i in copy.graph.input}
    outputs = [o.name for o in copy.graph.output]
    kept = [i for i in copy.graph.input if i.name not in inputs]
    for held in (copy.graph.value_info, copy.graph.input, copy.graph.output):
        del held[:]
    copy.graph.input.extend([*(helper.make_tensor_value_info(n, kinds[n], dims) for n, dims in inputs.items()), *kept])
    copy.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in outputs)
    try:
        found = io.from_proto(infer(copy))
    except InputError as error:
        raise NotCoveredError(str(error)) from error
    values = [*found.graph.inputs, *(v for graph in found.graphs() for node in graph for v in node.outputs)]
    for value in values:
        known = fixed.get(value.name or "")
        remember_given(value, value.shape if known is None else ir.Shape(known))
    infer_shapes(found)
    sizes = ((value.name or "", sizes_of(value)) for value in values)
    return {name: own for name, own in sizes if own is not None}


__all__ = ["KNOWN", "Deciding", "deciding_sizes", "hold_few"]
