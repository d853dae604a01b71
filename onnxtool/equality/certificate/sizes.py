"""Sizes of dynamic dims at which two graphs are compared: usual ones, and those at which something else happens."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxtool.equality.certificate.interpreter import Interpreter, Item, NotCoveredError, Value
from onnxtool.equality.certificate.shapes import Shapes

_PRIMES = (2, 3, 5, 7, 4, 6, 9, 11)
_SMALL, _LARGEST = 34, 200_000
_MOST = 8  # sizes of each kind at which a size decides something, that are compared
_BEYOND, _FEW = 512, 4
_PAIRS = 1 / 3  # of the time: for all small pairs of sizes, where comparisons of sizes were met
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
        found.append(
            (info, tuple(d.dim_value if d.HasField("dim_value") else sizes[dim_key(info, k, d)] for k, d in dims))
        )
    return found


def dim_key(info: onnx.ValueInfoProto, axis: int, dim: onnx.TensorShapeProto.Dimension) -> str:
    """What a dim that is free is called."""
    return dim.dim_param or f"{info.name}.{axis}"


def usual_sizes(model: onnx.ModelProto, examples: Sequence[Mapping[str, np.ndarray]]) -> list[Sizes]:
    """Each once; one alone twice, since a certificate takes two points."""
    found: list[Sizes] = []
    for sizes in _all_sizes(model, examples):
        if sizes not in found:
            found.append(sizes)
    return found if len(found) > 1 else found * 2


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
    for size in (16, 32, 48, 64, 224, 256):
        yield {**dict.fromkeys(keys, size), first: 1}
        yield {**dict.fromkeys(keys, size), first: 2}


def turning_sizes(
    a: onnx.ModelProto, b: onnx.ModelProto, usual: Sizes, deadline: float
) -> tuple[list[Sizes], Sizes | None, int]:
    """Sizes at which one of the models does something that it did at no other size before.

    Both are run for their sizes alone. From one size of a dim to the next, sizes and whole numbers inside a graph grow
    by steps; where the steps, or what comparisons of sizes give, are new, the size decides something.

    Returns:
        The sizes, first those at which a comparison gives something new; those at which the shapes of the outputs
        differ, if any; how many were looked at.
    """
    runs = [_SizeRun(a, a), _SizeRun(b, a)]
    seen: set[tuple[object, ...]] = set()
    found: tuple[list[Sizes], list[Sizes]] = ([], [])  # where a comparison gives something new, where steps do
    before: dict[str, list[np.ndarray]] = {}
    at: dict[str, int] = {}
    count = 0
    decides, enough = False, time.thread_time() + _PAIRS * (deadline - time.thread_time())
    pairs = (sizes for sizes in _all_pairs(usual) if decides and time.thread_time() < enough)
    for name, sizes in itertools.chain(_tried_sizes(a, b, usual), pairs):
        if time.thread_time() > deadline:
            break
        told = [run.of(sizes) for run in runs]
        if told[0].outputs is None or (0 in sizes.values() and told[1].outputs is None):  # Reshape to -1 of nothing
            before.pop(name, None)
            continue
        if told[0].outputs != told[1].outputs:
            return [], sizes, count
        last, own = before.get(name), [t.sizes for t in told]
        if last is not None and sizes.get(name) != at[name] + 1:
            last = None
        alike = last is not None and all(x.shape == y.shape for x, y in zip(own, last, strict=True))
        step = b"".join((x - y).tobytes() for x, y in zip(own, last or own, strict=True)) if alike else b"other"
        decides = decides or any(t.decided for t in told)
        empty = 0 in sizes.values()  # then a decision chooses between nothing and nothing
        keys = [
            ("decided", empty, *(t.decided for t in told)),
            *([(name, "step", step)] if last is not None and name else []),
        ]
        if empty or any(key not in seen for key in keys):
            found[keys[0] in seen].append(sizes)
        seen.update(keys)
        before[name], at[name] = own, sizes.get(name, 0)
        count += 1
    # Beyond a number that a graph names, an attribute of an operator may begin to matter without a change of sizes.
    named = sorted(n for n in _named_numbers(a) | _named_numbers(b) if 8 < n <= _BEYOND)[-_FEW:]
    larger = [{**usual, **dict.fromkeys(keys, n + 2)} for n in named for keys in [*((k,) for k in usual), [*usual]]]
    beyond = [sizes for sizes in larger if time.thread_time() < deadline and runs[0].of(sizes).outputs]
    largest_first = (sorted(part, key=lambda sizes: -max(sizes.values()))[:_MOST] for part in found)
    return [*itertools.chain(*largest_first), *beyond], None, count


@dataclass(frozen=True)
class _Sizes:
    """What a run for sizes alone told: of the outputs (None where it fails), of all tensors, and of comparisons."""

    outputs: tuple[object, ...] | None
    sizes: np.ndarray
    decided: bytes = b""


class _SizeRun:
    """Runs a model for its sizes alone, on the inputs of another with the same ones."""

    def __init__(self, model: onnx.ModelProto, like: onnx.ModelProto) -> None:
        self._like, self._names = like, [i.name for i in free_inputs(model)]
        self._numbers: list[int] = []
        self._decided: list[bytes] = []
        self._run = Interpreter(model, Shapes(), see=self._keep)

    def of(self, sizes: Sizes) -> _Sizes:
        self._numbers, self._decided = [], []
        feeds = {}
        for name, (info, shape) in zip(self._names, input_shapes(self._like, sizes), strict=True):
            dtype = helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
            feeds[name] = Value(np.broadcast_to(np.int64(0), shape), np.dtype(dtype), False)
        try:
            outputs = tuple(v.data.shape if isinstance(v, Value) else () for v in self._run.run(feeds).values())
        except NotCoveredError:
            return _Sizes(None, np.zeros(0, np.int64))
        return _Sizes(outputs, np.array(self._numbers, np.int64), b"".join(self._decided))

    def _keep(self, _: onnx.NodeProto, __: str, value: Item) -> None:
        if not isinstance(value, Value):
            return
        self._numbers += value.data.shape
        if value.exact and value.data.dtype.kind in "iu" and value.data.size:
            flat = value.data.reshape(-1).astype(np.int64)
            self._numbers += flat.tolist() if flat.size <= 16 else [flat[0], flat[-1], flat.sum()]
        elif value.exact and value.data.dtype.kind == "b":
            self._decided.append(np.packbits(value.data.reshape(-1)[:64]).tobytes())


def _tried_sizes(a: onnx.ModelProto, b: onnx.ModelProto, usual: Sizes) -> Iterator[tuple[str, Sizes]]:
    """Of each dim small sizes, and those beside the whole numbers that the graphs name; of two dims, small pairs too,
    and pairs whose product, sum or difference is such a number.
    """
    named = sorted(n for n in _named_numbers(a) | _named_numbers(b) if 0 < n <= _LARGEST)
    beside = {k * n + d for n in named for k in (1, 2) for d in (-1, 0, 1, 2)}
    single = [*range(4), *sorted(n for n in beside if 4 <= n <= _LARGEST)]
    single += sorted(set(range(_SMALL)) - set(single))
    for size in single:
        for name in usual:
            yield name, {**usual, name: size}
    for first, second in itertools.combinations(usual, 2):
        pairs = [*itertools.product(range(1, 13), repeat=2)]
        for n in named:
            pairs += [(k, n // k + d) for k in range(1, 65) if n % k == 0 for d in (0, 1)]
            pairs += [(n // k + d, k) for k in range(1, 65) if n % k == 0 for d in (0, 1)]
            pairs += [pair for k in range(1, 13) for pair in ((n + 1, k), (k, n + 1))]
            pairs += [(n + 3, 3), (3, n + 3), (n + 4, 3), (3, n + 4), (max(n - 3, 1), 3), (3, max(n - 3, 1))]
        for x, y in pairs:
            yield "", {**usual, first: x, second: y}


def _all_pairs(usual: Sizes) -> Iterator[tuple[str, Sizes]]:
    """Of each two dims all sizes up to 64."""
    for first, second in itertools.combinations(usual, 2):
        for x, y in itertools.product(range(1, 65), repeat=2):
            yield "", {**usual, first: x, second: y}


def _named_numbers(model: onnx.ModelProto) -> set[int]:
    found: set[int] = set()

    def tensor(held: onnx.TensorProto) -> None:
        if held.data_type in (onnx.TensorProto.INT64, onnx.TensorProto.INT32) and np.prod(held.dims) <= 64:
            found.update(abs(int(n)) for n in numpy_helper.to_array(held).reshape(-1))

    def graph(held: onnx.GraphProto) -> None:
        for weight in held.initializer:
            tensor(weight)
        for node in held.node:
            for attribute in node.attribute:
                found.update(abs(n) for n in (attribute.i, *attribute.ints))
                tensor(attribute.t)
                graph(attribute.g)

    graph(model.graph)
    for function in model.functions:
        graph(onnx.GraphProto(node=function.node))
    return found
