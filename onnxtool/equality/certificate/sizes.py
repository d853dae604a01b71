"""Sizes of dynamic dims at which two graphs are compared: usual ones, and those at which something else happens."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import onnx
import onnx.inliner
from onnx import helper, numpy_helper

from onnxtool.equality.certificate.field import Field
from onnxtool.equality.certificate.interpreter import Interpreter
from onnxtool.equality.certificate.shapes import Shapes
from onnxtool.equality.certificate.size_decisions import KNOWN, deciding_sizes, hold_few
from onnxtool.equality.certificate.values import Item, NotCoveredError, TooManyStepsError, Value
from onnxtool.model.operators.table import operator_of
from onnxtool.model.spec import is_placeholder

_PRIMES = (2, 3, 5, 7, 4, 6, 9, 11)
_SMALL, _LARGEST = 34, 2**21
_MOST = 8  # sizes that are compared since sizes grow by other steps there, or other constants are made of them
_BEYOND, _FEW = 512, 4
_MOST_ELEMENTS = 2**23  # of a tensor that follows from sizes alone
_MOST_REACHING = 2**22  # of the product of free dims, to compare at
# Inputs of operators that tell more than the shape of the output; of others all.
_TELLS = {"Reshape": (0,), "Expand": (0,), "Squeeze": (0,), "Unsqueeze": (0,), "Slice": (0, 1, 4)}
_SHORT = 16  # numbers of a tensor that are followed each
_FARTHEST = 2**20  # size at which decisions are sought by halving the way: longer ones take seconds and gigabytes
_TURNS, _GROWTH = 8, 2  # decisions of one dim that are sought, and from one size to the next
_NEAR = 2_000  # decisions at smaller sizes are sought however long it takes
_MASKS = 41  # sizes at which it is looked at how masks are made: more elements than of a shape
_HALVING = 1 / 2  # of the time: for decisions far apart
_PAIRS = 1 / 3  # of the time: for all small pairs of sizes, where masks are made in other ways
_TURNED = {"Greater": "Less", "GreaterOrEqual": "LessOrEqual"}  # x > y is y < x
Sizes = Mapping[str, int]


def free_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Inputs that have no default."""
    own = {t.name for t in model.graph.initializer}
    return [i for i in model.graph.input if i.name not in own]


def input_shapes(model: onnx.ModelProto, sizes: Sizes) -> list[tuple[onnx.ValueInfoProto, tuple[int, ...]]]:
    """Inputs with their shapes at some sizes."""
    found = []
    for info in free_inputs(model):
        tensor = info.type.tensor_type
        if not info.type.HasField("tensor_type") or not tensor.HasField("shape"):
            raise NotCoveredError(f"input {info.name!r} without a shape")
        dims = enumerate(tensor.shape.dim)
        if any(d.dim_value < 0 for d in tensor.shape.dim):
            raise NotCoveredError(f"input {info.name!r} with a negative dim")
        found.append(
            (info, tuple(d.dim_value if d.HasField("dim_value") else sizes[dim_key(info, k, d)] for k, d in dims))
        )
    return found


def drawn_inputs(model: onnx.ModelProto, sizes: Sizes, field: Field, mark: str = "") -> dict[str, Value]:
    """Inputs at some sizes as a field draws them; others for another mark."""
    found = {}
    for info, shape in input_shapes(model, sizes):
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type))
        found[info.name] = Value(field.draw(info.name + mark, shape), dtype, False)
    return found


def dim_key(info: onnx.ValueInfoProto, axis: int, dim: onnx.TensorShapeProto.Dimension) -> str:
    """What a dim that is free is called; by its place where its name says nothing, as PaddlePaddle's "?" for all."""
    return f"{info.name}.{axis}" if is_placeholder(dim.dim_param) else dim.dim_param


def usual_sizes(
    model: onnx.ModelProto, examples: Sequence[Mapping[str, np.ndarray]], deadline: float = np.inf
) -> Iterator[Sizes]:
    """Sizes that a model takes, each once; one alone twice, since a certificate takes two points.

    Args:
        model: which is run for its sizes alone before any is given.
        examples: inputs that it takes.
        deadline: of this thread's processor time; sizes after it are given without a run.
    """
    run = SizeRun(model, model)
    known: list[Sizes] = []
    taken: list[Sizes] = []
    for sizes in _all_sizes(model, examples):
        if sizes in known:
            continue
        known.append(sizes)
        if time.thread_time() > deadline or run.of(sizes).outputs is not None:
            taken.append(sizes)
            yield sizes
    for sizes in ([] if len(taken) > 1 else taken or known)[:1]:
        yield sizes  # of none that it takes the reason is told


def fixed_numbers(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Few integers that a model computes from its sizes and that are the same at two of them, by name of the value.

    So it takes a fixed dim from a shape, such as the width of a head.
    """
    found: list[dict[str, np.ndarray]] = []

    def keep(node: onnx.NodeProto, name: str, value: Item) -> None:
        known = (value.data if value.exact else value.number) if isinstance(value, Value) else None
        if node.op_type != "Constant" and known is not None and known.dtype.kind in "iu" and known.size <= _SHORT:
            found[-1][name] = known

    run = Interpreter(model, field := Shapes(), see=keep)
    for sizes in itertools.islice(usual_sizes(model, ()), 2):
        found.append({})
        with suppress(NotCoveredError):
            run.run(drawn_inputs(model, sizes, field))
    first, second = found if len(found) == 2 else ({}, {})
    return {n: number for n, number in first.items() if n in second and np.array_equal(number, second[n])}


def _all_sizes(model: onnx.ModelProto, examples: Sequence[Mapping[str, np.ndarray]]) -> Iterator[Sizes]:
    """Sizes of the dims that are free: all different, all 1, those of the examples and around them, and more."""
    free = []
    known: list[dict[str, int]] = [{} for _ in examples]
    for info in free_inputs(model):
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value"):
                key = dim_key(info, axis, dim)
                free.append(key)
                for sizes, feeds in zip(known, examples, strict=True):
                    if info.name in feeds and np.ndim(feeds[info.name]) > axis:
                        sizes.setdefault(key, np.shape(feeds[info.name])[axis])
    keys = list(dict.fromkeys(free))
    if not keys:
        yield {}
        return
    base = next((s for s in known if len(s) == len(keys)), dict.fromkeys(keys, 8))
    first = keys[0]
    small = {**base, first: min(base[first], 2)}
    if any(known):
        yield small
    yield {key: _PRIMES[k % len(_PRIMES)] for k, key in enumerate(keys)}
    yield small
    yield dict.fromkeys(keys, 1)
    yield {key: size + (k % 3 if len(keys) > 1 else 1) + (key == first) for k, (key, size) in enumerate(small.items())}
    for step in range(3, 9):
        yield {key: _PRIMES[(k + step) % len(_PRIMES)] + step for k, key in enumerate(keys)}
    for key in keys:
        for step in (1, base[key] + 1, 16):
            yield {**small, key: small[key] + step}
    for size in (16, 32, 48, 64, 224, 256, 512):
        for batch in (1, 2) if len(keys) > 1 else (size, size + 1):
            yield {**dict.fromkeys(keys, size), first: batch}


def turning_sizes(
    a: onnx.ModelProto, b: onnx.ModelProto, usual: Sizes, deadline: float, latest: float
) -> tuple[list[Sizes], list[Sizes], Sizes | None, int]:
    """Sizes at which one of the models does something that it did at no other size before.

    Both are run for their sizes alone. From one size of a dim to the next, sizes and whole numbers inside a graph grow
    by steps; where the steps, or what is decided by sizes, are new, the size decides something. A decision at a
    size that no number of the graph tells is found between two sizes far apart, by halving.

    Args:
        a: one model.
        b: the other.
        usual: sizes that both take.
        deadline: of this thread's processor time, for what may be left out.
        latest: for all small sizes, and for decisions at somewhat larger ones, where models compare sizes.

    Raises:
        NotCoveredError: they compare sizes, and there was no time for these.

    Returns:
        The sizes at which a decision is new, and the others; those at which the shapes of the outputs differ, if any;
        how many were looked at.
    """
    a, b = _without_functions(a), _without_functions(b)
    looks = _Looks(a, b, time.thread_time() + _HALVING * (deadline - time.thread_time()), latest)
    looks.named |= looks.constant_numbers(usual)
    looks.at("", usual)
    looks.found, looks.unshared = ([], []), []  # what is decided at the usual sizes is compared anyway
    named = sorted(looks.named)
    enough = time.thread_time() + _PAIRS * (deadline - time.thread_time())
    small = ((name, {**usual, name: size}) for size in range(_SMALL) for name in usual)

    @functools.cache
    def made_alike() -> bool:
        first, second = (_Masks(model, a, usual, followed=looks.complete) for model in (a, b))
        return first.made == second.made

    pairs = (("", s) for s in _all_pairs(usual) if time.thread_time() < enough and not made_alike())
    needed = itertools.chain(looks.sought(a, b, usual), small, looks.all_turns(usual))
    for part in (needed, itertools.chain(looks.tried_sizes(usual), pairs)):
        for name, sizes in part:
            if time.thread_time() > deadline and (looks.turned or not looks.decides):
                looks.left_out.append(sizes)
                break
            looks.in_time(0)
            if looks.at(name, sizes) is None and looks.unlike is not None:
                return [], [], looks.unlike, looks.count
        looks.turned = True
    if looks.left_out and not made_alike():
        told = ", ".join(f"{name} = {size}" for name, size in looks.left_out[0].items())
        raise NotCoveredError(f"what both make of sizes alone, in other ways, was not looked at from {told} on")
    # Beyond a number that a graph names, an attribute of an operator may begin to matter without a change of sizes.
    few = [n for n in named if 8 < n <= _BEYOND][-_FEW:]
    larger = [{**usual, **dict.fromkeys(keys, n + 2)} for n in few for keys in [*((k,) for k in usual), [*usual]]]
    beyond = [sizes for sizes in larger if time.thread_time() < deadline and looks.runs[0].of(sizes).outputs]
    decided, steps = looks.found
    if looks.complete and made_alike():  # then masks alone look new at sizes that are known: the largest tells most
        largest = {name: sizes for sizes in decided for name in usual if sizes[name] > usual[name]}.values()
        decided = [*looks.deciding, *largest, *(sizes for sizes in decided if max(sizes.values()) >= KNOWN)]
        steps = [*looks.found[0], *steps]
    else:  # the inside of a branch does not tell here what it decides
        steps = [*steps, *(sizes for sizes in looks.deciding if sizes not in decided and sizes not in steps)]
    decided, steps = (sorted(part, key=lambda sizes: -max(sizes.values())) for part in (decided, steps))
    hold_few(decided)
    del steps[_MOST:]
    if len(looks.unshared) > _MOST:  # they compute with sizes in other ways, which differ at each
        return decided, [*steps, *looks.unshared[:_MOST], *beyond], None, looks.count
    return [*decided, *looks.unshared], [*steps, *beyond], None, looks.count


def _without_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model with the nodes of its functions in their place: what these decide is seen then."""
    if model.functions:
        with suppress(RuntimeError, ValueError):
            return onnx.inliner.inline_local_functions(model)
    return model


class _Masks:
    """How a model makes large tensors of sizes alone, as masks and positions: each operator and what it was given.

    What is the same at all sizes does not count, nor operators that only repeat what they are given.

    Attributes:
        made: operators, with their attributes and what tells apart the numbers that they were given.
    """

    def __init__(self, model: onnx.ModelProto, like: onnx.ModelProto, usual: Sizes, *, followed: bool) -> None:
        """Run a model at two sizes.

        Args:
            model: the model.
            like: a model with the same inputs.
            usual: sizes that both take.
            followed: it is known how small numbers grow; then operators that move others by these do not count either.
        """
        self.made: set[tuple[object, ...]] = set()
        self._followed = followed
        self._weights = {t.name: t for t in model.graph.initializer}
        self._known: dict[str, bytes] = {}
        self._fixed = set(self._weights)
        self._first: dict[str, bytes] = {}  # what tells apart the numbers of the first run
        run = Interpreter(model, Shapes(), see=self._keep)
        names = [i.name for i in free_inputs(model)]

        def runs(sizes: Sizes) -> bool:
            self._known, self.made = {}, set()
            with suppress(NotCoveredError):
                run.run(dict(zip(names, drawn_inputs(like, sizes, run.field).values(), strict=True)))
                return True
            return False

        runs(usual)
        self._first = self._known
        larger = {name: _MASKS + place for place, name in enumerate(usual)}
        if not any(map(runs, (larger, {name: 3 * n for name, n in usual.items()}))):
            self._first = {}  # of one size it is not known what is the same at others
            runs(usual)

    def _token(self, name: str) -> bytes:
        if name in self._weights and name not in self._known:
            self._known[name] = _token(numpy_helper.to_array(self._weights[name]))
        return self._known.get(name, b"")

    def _keep(self, node: onnx.NodeProto, name: str, value: Item) -> None:
        array = (value.data if value.exact else value.number) if isinstance(value, Value) else None
        if array is None or array.dtype.kind not in "biuf":
            return
        self._known[name] = own = _token(array)
        given, row = [*map(self._token, node.input)], operator_of(node)
        takes = row.moves or node.op_type in ("Shape", "Size")  # the width of a head is a size too, and always the same
        is_same = takes and array.size <= _SHORT and self._first.get(name) == own
        if is_same or self._fixed.issuperset(n for n in node.input if n):
            self._fixed.add(name)
        moved = row.moves and all(row.carries(k) or len(one) <= 8 * _SHORT for k, one in enumerate(given))
        counts = array.size > _SHORT and own not in given and not (moved and self._followed)
        if counts and name not in self._fixed:
            held = sorted(a.SerializeToString() for a in node.attribute if not a.HasField("g"))
            turned = _TURNED.get(node.op_type)
            self.made.add((turned or node.op_type, *held, *(given[::-1] if turned else given)))


def _token(array: np.ndarray) -> bytes:
    """Tells numbers apart, however they are repeated or folded."""
    one = _unrepeated(array).reshape(-1)
    return one.astype(np.float64).tobytes() if array.dtype.kind in "biuf" else b""


class _Looks:
    """What two models decide at sizes, one after the other.

    Attributes:
        found: sizes at which a decision is new, and those at which steps are.
        unshared: sizes at which one graph makes constants that the other does not, others than at sizes before.
        unlike: sizes at which the shapes of the outputs differ.
        decides: some truth value hung on sizes.
        named: whole numbers that the graphs name.
        count: of the sizes looked at.
        left_out: sizes that were not looked at: the first without time, and those of too large masks.
        turned: all small sizes of one dim at which something else is decided were sought.
        complete: so were all sizes of one dim, of two and of three, in exact arithmetic.
        deciding: what these are, as far as A takes them.
    """

    def __init__(self, a: onnx.ModelProto, b: onnx.ModelProto, halving_ends: float, latest: float) -> None:
        self.runs = (SizeRun(a, a), SizeRun(b, a))
        self.named = {n for n in _named_numbers(a) | _named_numbers(b) if 0 < n <= _LARGEST}
        self.found: tuple[list[Sizes], list[Sizes]] = ([], [])
        self.unshared: list[Sizes] = []
        self.unlike: Sizes | None = None
        self.decides, self.count = False, 0
        self._halving_ends, self._latest = halving_ends, latest
        self.turned = self.complete = False
        self.deciding: list[Sizes] = []
        self.left_out: list[Sizes] = []
        self._known: dict[tuple[object, ...], list[_Sizes]] = {}
        self._seen: set[tuple[object, ...]] = set()
        self._before: dict[str, tuple[int, list[np.ndarray]]] = {}

    def constant_numbers(self, usual: Sizes) -> set[int]:
        """Whole numbers that the graphs make of their constants: the same at other sizes."""
        told = [[run.of({k: n + d for k, n in usual.items()}).sizes for run in self.runs] for d in (0, 1)]
        both = [set(np.concatenate(t).tolist()) if t else set() for t in told]
        return {n for n in both[0] & both[1] if 0 < n <= _LARGEST}

    def at(self, name: str, sizes: Sizes) -> tuple[bytes, ...] | None:
        """What is decided at some sizes; None where a model does not take them.

        Args:
            name: of the dim that grows; "" for several.
            sizes: of all dims.
        """
        told = self._told(sizes)
        empty = 0 in sizes.values()  # then a decision chooses between nothing and nothing
        unknown = told[0].outputs is None or told[1] is _TOO_LONG
        if unknown or (empty and told[1].outputs is None):  # Reshape to -1 of nothing
            self._before.pop(name, None)
            if self.runs[0].too_large(sizes):
                self.left_out.append(sizes)
            return None
        if told[0].outputs != told[1].outputs:
            self.unlike = sizes
            return None
        size, own = sizes.get(name, 0), [t.sizes for t in told]
        before, last = self._before.get(name, (0, None))
        if last is not None and size != before + 1:
            last = None
        alike = last is not None and all(x.shape == y.shape for x, y in zip(own, last, strict=True))
        step = b"".join((x - y).tobytes() for x, y in zip(own, last or own, strict=True)) if alike else b"other"
        self.decides = self.decides or any(t.compares for t in told)
        decided = tuple(t.decided for t in told)
        keys = [("decided", empty, *decided), *([(name, "step", step)] if last is not None and name else [])]
        if empty or any(key not in self._seen for key in keys):
            self.found[keys[0] in self._seen].append(sizes)
        unshared = ("unshared", told[0].constants ^ told[1].constants)
        if unshared not in self._seen:
            self.unshared.append(sizes)
        self._seen.update([*keys, unshared])
        self._before[name] = size, own
        self.count += 1
        return decided

    def sought(self, a: onnx.ModelProto, b: onnx.ModelProto, usual: Sizes) -> Iterator[tuple[str, Sizes]]:
        """Of all sizes of one dim, of two and of three, those at which either model decides something by sizes alone.

        Raises:
            NotCoveredError: something is decided at sizes that are not known, or may be where dims meet.
        """
        inputs: dict[str, list[int | str]] = {}
        for info, shape in input_shapes(a, usual):
            dims = enumerate(info.type.tensor_type.shape.dim)
            inputs[info.name] = [shape[k] if d.HasField("dim_value") else dim_key(info, k, d) for k, d in dims]
        deciding, unknown = deciding_sizes((a, b), inputs, usual, lambda few: drawn_inputs(a, few, Shapes()))
        self.complete = not unknown
        if unknown and len(usual) > 1:
            raise NotCoveredError(
                f"the dims or numbers of {unknown!r} are not known at all sizes of {' and '.join(usual)} together"
            )
        for sizes in deciding:
            if not any(run.too_large(sizes) for run in self.runs):
                self.deciding.extend([sizes] if self._told(sizes)[0].outputs is not None else [])
                yield "", sizes

    def all_turns(self, usual: Sizes) -> Iterator[tuple[str, Sizes]]:
        """Sizes behind which another thing is decided than before them, of one dim after the other.

        Raises:
            NotCoveredError: there was no time for those of small sizes.
        """
        for name in usual:
            yield from self._turns(usual, name)

    def tried_sizes(self, usual: Sizes) -> Iterator[tuple[str, Sizes]]:
        """Of each dim those beside the whole numbers that the graphs name."""
        beside = {k * n + d for n in self.named for k in (1, 2) for d in (-1, 0, 1, 2)}
        least = KNOWN if self.complete else _SMALL
        for size in sorted(n for n in beside if least <= n <= _LARGEST):
            for name in usual:
                yield name, {**usual, name: size}

    def in_time(self, size: float) -> bool:
        """Whether there is time for a size; some that may decide something are looked at however long it takes.

        Raises:
            NotCoveredError: there was no time for these.
        """
        now = time.thread_time()
        if size < _NEAR and self.decides and not self.turned and now >= self._latest:
            raise NotCoveredError("there was no time to look for sizes at which something else is decided")
        return now < self._halving_ends or (size < _NEAR and self.decides)

    def _turns(self, usual: Sizes, name: str) -> Iterator[tuple[str, Sizes]]:
        low, left = 0, _TURNS
        before: tuple[bytes, ...] | None = None
        size = float(_SMALL)
        while size < _FARTHEST and left and self.in_time(size):
            high = int(size)
            told = self._decided({**usual, name: high})
            if told is None and before is not None:
                return
            while before is not None and told != before and left:  # up to what is decided at the larger size
                left -= 1
                high = int(size)
                while high - low > 1 and self.in_time(high):
                    middle = (low + high) // 2
                    low, high = (middle, high) if self._decided({**usual, name: middle}) == before else (low, middle)
                yield name, {**usual, name: high}
                low, before = high, self._decided({**usual, name: high})
            low, before, size = int(size), told, 1 + size * _GROWTH
        return

    def _decided(self, sizes: Sizes) -> tuple[bytes, ...] | None:
        told = self._told(sizes)
        return None if told[0].outputs is None else tuple(t.decided for t in told)

    def _told(self, sizes: Sizes) -> list[_Sizes]:
        """What both runs tell; nothing where one of them would grow too large, which says nothing of their shapes."""
        key = (*sizes.items(), *(run.growing for run in self.runs))  # which numbers count as decisions hangs on these
        found = self._known.get(key)
        if found is None:
            if any(run.too_large(sizes) for run in self.runs):
                return [_NOTHING, _NOTHING]
            found = self._known[key] = [run.of(sizes) for run in self.runs]
        return found


def reaching_sizes(
    a: onnx.ModelProto, b: onnx.ModelProto, usual: Sizes, names: Sequence[str], deadline: float
) -> Iterator[tuple[Sizes, dict[str, np.ndarray]]]:
    """Larger and larger sizes, with the places of the windows of some outputs of B that meet the input there.

    Raises:
        NotCoveredError: this thread's processor time is up before all were looked at.
    """
    run = SizeRun(b, a)

    def at(sizes: Sizes) -> dict[str, np.ndarray] | None:
        if time.thread_time() > deadline:
            raise NotCoveredError(f"the edges of the window of {names[0]!r} meet padding alone at the sizes compared")
        if np.prod([*sizes.values()], dtype=float) > _MOST_REACHING or run.of(sizes).outputs is None:
            return None
        return {n: places for n, places in run.reached().items() if n in names}

    before = {n: places.sum() for n, places in (at(usual) or {}).items()} if names else {}
    for factor in (4, 16, 64, 256, 1024) if names else ():
        spatial = []
        for key in usual:
            sizes = {**usual, key: usual[key] * factor}
            reached = at(sizes)
            if reached is not None:
                yield sizes, reached
                spatial += [key] if any(places.sum() > before.get(n, 0) for n, places in reached.items()) else []
        sizes = {**usual, **{k: usual[k] * factor for k in spatial or usual}}
        reached = at(sizes) if len(usual) > 1 else None
        if reached is not None:
            yield sizes, reached


@dataclass(frozen=True)
class _Sizes:
    """What a run for sizes alone told: of the outputs (None where it fails), of all tensors, and of decisions.

    Attributes:
        outputs: their shapes.
        sizes: of all tensors, and whole numbers.
        decided: truth values, the signs of numbers, and which of several is the largest.
        compares: there are truth values.
        constants: as of the run.
    """

    outputs: tuple[object, ...] | None
    sizes: np.ndarray
    decided: bytes = b""
    compares: bool = False
    constants: frozenset[int] = frozenset()


_NOTHING, _TOO_LONG = (_Sizes(None, np.zeros(0, np.int64)) for _ in range(2))


class SizeRun:
    """Runs a model for its sizes alone, on the inputs of another with the same ones.

    Attributes:
        total: elements of all tensors, in the last run.
        largest: elements of one of them.
        constants: names and hashes of what was made of sizes alone, in the last run, and goes into numbers that inputs
            decide, or into an output; how often a tensor repeats a number is left out.
    """

    def __init__(self, model: onnx.ModelProto, like: onnx.ModelProto) -> None:
        self._like, self._names = like, [i.name for i in free_inputs(model)]
        self.total = self.largest = 0
        self.constants: dict[str, int] = {}
        self._made: dict[str, np.ndarray] = {}
        self._numbers: list[int] = []
        self._decided: dict[str, list[bytes]] = {}
        self._compares = False
        small = (t for t in model.graph.initializer if np.prod(t.dims) <= _SHORT)
        self._known = {t.name: numpy_helper.to_array(t) for t in small}
        self._given: dict[str, tuple[int, ...]] = {}  # shapes of what inputs, and no constants alone, are made into
        self._elements, self._last = dict[str, int](), dict[str, int]()
        self._first: tuple[Sizes, Mapping[str, int]] = {}, {}
        self._grows: set[str] | None = None  # tensors whose sizes differed between runs; None after one run
        self._run = Interpreter(model, Shapes(), see=self._keep)

    @property
    def growing(self) -> int:
        """How many tensors are known to have other sizes in other runs."""
        return len(self._grows or ())

    def too_large(self, sizes: Sizes) -> bool:
        """Whether what sizes make, such as a mask, which is there in full, might take much memory."""
        return all(self._grown(sizes, *run) > _MOST_ELEMENTS for run in (self._first, (self._last, self._elements)))

    def _grown(self, sizes: Sizes, last: Sizes, elements: Mapping[str, int]) -> float:
        """Of how many elements a tensor may be, by those of another run."""
        grown = max((n / max(last.get(k, n), 1) for k, n in sizes.items()), default=1.0)
        own = (n for name, n in elements.items() if self._grows is None or name in self._grows)
        return max(own, default=0) * max(grown, 1.0) ** 2

    def of(self, sizes: Sizes) -> _Sizes:
        """A run at some sizes; of those that are too large it tells nothing."""
        if self.too_large(sizes):
            return _NOTHING
        self._numbers, self._decided, self._compares = [], {}, False
        self._made, self.constants = {}, {}
        self.total = self.largest = 0
        before, changed = self._elements, self._last != sizes
        self._elements, self._last = {}, dict(sizes)
        feeds = dict(zip(self._names, drawn_inputs(self._like, sizes, self._run.field).values(), strict=True))
        self._given = {name: value.data.shape for name, value in feeds.items()}
        try:
            self._run.reached = {}
            found = self._run.run(feeds)
            outputs = tuple(v.data.shape if isinstance(v, Value) else () for v in found.values())
        except TooManyStepsError:
            return _TOO_LONG
        except NotCoveredError:
            return _NOTHING
        if not self._first[0]:
            self._first = self._last, self._elements
        if before and changed:
            differ = {name for name, n in self._elements.items() if before.get(name) != n}
            self._grows = differ | (self._grows or set())
        self._tell(found)
        decided = b"".join(itertools.chain.from_iterable(self._decided.values()))
        constants = frozenset(self.constants.values())
        return _Sizes(outputs, np.array(self._numbers, np.int64), decided, self._compares, constants)

    def reached(self) -> dict[str, np.ndarray]:
        """Of the last run, the places of windows that met the input."""
        return self._run.reached

    def _keep(self, node: onnx.NodeProto, name: str, value: Item) -> None:
        if not isinstance(value, Value):
            return
        self._numbers += value.data.shape
        self.total, self.largest = self.total + value.data.size, max(self.largest, value.data.size)
        known = value.data if value.exact else value.number
        if node.op_type != "Constant" and known is not None and known.dtype.kind in "biu":  # places and masks
            self._elements[name] = max(self._elements.get(name, 0), known.size)
        if any(name in self._given for name in node.input[: 1 if node.op_type == "Slice" else None]):
            if node.op_type == "Slice":  # from some size on it cuts off so much that strides behind it do not hide it
                self._decide(
                    name, np.less(np.multiply(value.data.shape, 8), np.multiply(self._given[node.input[0]], 7))
                )
            self._given[name] = value.data.shape
        if known is None:
            told = _TELLS.get(node.op_type, range(len(node.input)))
            self._tell(node.input[place] for place in told if place < len(node.input))
        if known is None or known.dtype.kind not in "biuf" or not known.size:
            return
        if node.op_type != "Constant":
            self._made[name] = known
        flat = _unrepeated(known).reshape(-1)  # how often it is repeated, its size tells
        signs = np.sign(flat) if flat.dtype.kind != "b" else flat
        few = _changes(signs) if name in (self._grows or ()) else signs  # of how many, the sizes tell
        if flat.dtype.kind in "iu":
            whole = flat.astype(np.int64, copy=False)
            self._numbers += whole.tolist() if flat.size <= _SHORT else [whole[0], whole[-1], whole.sum()]
        if flat.dtype.kind == "b":
            self._compares = True
            some = few if few.size <= 64 else np.array([flat[0], flat[-1], flat.all(), flat.any()])
            self._decide(name, np.packbits(some))
            sides = [self._known[n] for n in node.input if n in self._known] if node.op_type == "Equal" else []
            if len(sides) == 2:  # what is equal at one size alone has another sign on either side of it
                self._decide(f"{name} sides", np.sign(np.subtract(*sides, dtype=np.float64)).astype(np.int8))
        elif flat.size <= _SHORT:
            self._known[name] = known
            several = node.input if node.op_type in ("Min", "Max", "Clip") else ()
            chosen = [np.broadcast_to(self._known[n] == known, known.shape) for n in several if n in self._known]
            self._decide(name, few.astype(np.int8), *(np.packbits(c) for c in chosen))

    def _tell(self, names: Iterable[str]) -> None:
        """Note what goes into numbers that inputs decide."""
        for name in names:
            if name in self._made and name not in self.constants:
                one = _unrepeated(self._made[name]).squeeze()
                self.constants[name] = hash((one.dtype.kind, one.shape, one.tobytes()))

    def _decide(self, name: str, *decisions: np.ndarray) -> None:
        """Note decisions; a loop that decides as in its last step decides nothing new."""
        told = b"".join(d.tobytes() for d in decisions)
        before = self._decided.setdefault(name, [])
        if told not in before[-1:]:
            before.append(told)


def _unrepeated(array: np.ndarray) -> np.ndarray:
    """One slice along each axis whose slices are all the same."""
    nan = array.dtype.kind in "fc"  # texts have none
    for axis in (k for k, n in enumerate(array.shape) if n > 1 and array.size):
        one, last = (array[(*[slice(None)] * axis, place)] for place in (slice(0, 1), slice(-1, None)))
        if not array.strides[axis]:  # a view of one slice
            array = one
        elif np.array_equal(one, last, equal_nan=nan):  # most that are not all the same are unlike here already
            array = one if np.array_equal(array, np.broadcast_to(one, array.shape), equal_nan=nan) else array
    return array


def _changes(row: np.ndarray) -> np.ndarray:
    """Of numbers in a row the first of those that are alike."""
    return np.asarray(row[np.append(True, row[1:] != row[:-1])])


def _all_pairs(usual: Sizes) -> Iterator[Sizes]:
    """Of each two dims all sizes up to 64."""
    for first, second in itertools.combinations(usual, 2):
        for x, y in itertools.product(range(1, 65), repeat=2):
            yield {**usual, first: x, second: y}


def _named_numbers(model: onnx.ModelProto) -> set[int]:
    found: set[int] = set()

    def tensor(held: onnx.TensorProto) -> None:
        array = numpy_helper.to_array(held) if held.data_type and np.prod(held.dims) <= 64 else np.zeros(0)
        if array.dtype.kind in "iuf":
            few = array.reshape(-1).astype(np.float64)
            found.update(abs(int(n)) for n in few if abs(n) <= _LARGEST and n == int(n))

    def graph(held: onnx.GraphProto) -> None:
        for weight in held.initializer:
            tensor(weight)
        for node in held.node:
            for attribute in node.attribute:
                found.update(abs(n) for n in (attribute.i, *attribute.ints))
                found.update(
                    abs(int(n)) for n in (attribute.f, *attribute.floats) if abs(n) <= _LARGEST and n == int(n)
                )
                tensor(attribute.t)
                graph(attribute.g)

    graph(model.graph)
    for function in model.functions:
        graph(onnx.GraphProto(node=function.node))
    return found
