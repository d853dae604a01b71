"""Certificates: two ONNX models evaluated at the same random points of finite fields."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx
from onnx import helper

from onnxtool.equality.certificate import operators
from onnxtool.equality.certificate.field import Field
from onnxtool.equality.certificate.interpreter import (
    Interpreter,
    Item,
    NotCoveredError,
    NumbersNeededError,
    Value,
    exact,
)
from onnxtool.equality.certificate.ledger import Constants, constants_in_field, find_expressions
from onnxtool.report.certificate import CertificateReport, FieldPoint, RoundedConstant

operators.register()
_PRIMES = (2, 3, 5, 7, 4, 6, 9, 11)
_FEW = 4  # numbers of an input that may be given in place of symbols
_LARGE = 2**29  # bytes of weights: beyond this the arrays of elements do not fit into the memory that a proof may take
Sizes = Mapping[str, int]


@dataclass
class _Pair:
    """Both models, and what was found so far."""

    a: onnx.ModelProto
    b: onnx.ModelProto
    examples: Sequence[Mapping[str, np.ndarray]]
    constants: Constants | None = None
    expressions: list[RoundedConstant] = field(default_factory=list)
    numbers: set[str] = field(default_factory=set)
    first: str = ""

    def feeds(self, point: Field, sizes: Sizes) -> dict[str, Value]:
        """The inputs of A at a random point."""
        found = {}
        for info, shape in _inputs(self.a, sizes):
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type))
            if dtype.kind in "OUS":
                raise NotCoveredError(f"input {info.name!r} of texts")
            if info.name in self.numbers:
                if int(np.prod(shape)) > _FEW or dtype.kind not in "iub":
                    raise NotCoveredError(f"shapes or steps depend on the values of input {info.name!r}")
                given = [np.asarray(e[info.name]) for e in self.examples if info.name in e]
                drawn = np.random.default_rng(point.salt).integers(1, 5, shape).astype(dtype)
                found[info.name] = exact(next((g for g in given if g.shape == shape), drawn))
            else:
                found[info.name] = Value(point.draw(info.name, shape), dtype, False)
        return found

    def agree(self, salt: int, sizes: Sizes) -> bool:
        """Whether both give the same; raises NotCoveredError where one cannot be evaluated."""
        point = Field(salt)
        while True:
            try:
                feeds = self.feeds(point, sizes)
                expected = Interpreter(self.a, point).run(feeds)
                break
            except NumbersNeededError:
                whole = {i.name for i, _ in _inputs(self.a, sizes) if i.type.tensor_type.elem_type in (5, 6, 7)}
                if not whole - self.numbers:
                    raise
                self.numbers |= whole
        own = constants_in_field(self.constants, self.b, self.expressions, point) if self.constants is not None else {}
        found = Interpreter(self.b, point, own).run(self._own_feeds(feeds))
        if all(_same(x, y) for x, y in zip(expected.values(), found.values(), strict=True)):
            return True
        self.first = self._first_without_partner(point, feeds, own)
        return False

    def _own_feeds(self, feeds: Mapping[str, Value]) -> dict[str, Value]:
        names = [i.name for i in _free_inputs(self.b)]
        if not set(names) <= set(feeds):
            return dict(zip(names, feeds.values(), strict=True))
        return {n: feeds[n] for n in names}

    def _first_without_partner(self, point: Field, feeds: Mapping[str, Value], own: Mapping[str, np.ndarray]) -> str:
        values: set[int] = set()
        missing: list[str] = []

        def keep(_: onnx.NodeProto, __: str, value: Item) -> None:
            if isinstance(value, Value):
                values.add(_number(point, value))

        def look(node: onnx.NodeProto, name: str, value: Item) -> None:
            if not missing and isinstance(value, Value) and _number(point, value) not in values:
                missing.append(f"{node.op_type} {node.name or name!r}")

        a = Interpreter(self.a, point, see=keep)
        a.run(feeds)
        b = Interpreter(self.b, point, own, see=look)
        b.run(self._own_feeds(feeds))
        return missing[0] if missing else ""


def _number(point: Field, value: Value) -> int:
    return point.fingerprint(Interpreter(onnx.ModelProto(), point).elements(value))


def _same(a: Item, b: Item) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    if not (isinstance(a, Value) and isinstance(b, Value)):
        return a is None and b is None
    if a.data.shape != b.data.shape or a.dtype != b.dtype:
        return False
    if a.exact and b.exact:
        return bool(np.array_equal(a.data, b.data, equal_nan=a.data.dtype.kind == "f"))
    reader = Interpreter(onnx.ModelProto(), Field(0))
    return False if a.exact != b.exact else bool(np.array_equal(reader.elements(a), reader.elements(b)))


def certify(
    a: onnx.ModelProto,
    b: onnx.ModelProto,
    examples: Sequence[Mapping[str, np.ndarray]] = (),
    *,
    names: tuple[str, str] = ("A", "B"),
    seconds: float = 30.0,
    most: int = 6,
) -> CertificateReport:
    """Decide whether two models are the same real function.

    Args:
        a: what is right, with the data of its weights.
        b: what is judged.
        examples: inputs that A takes; their shapes are among the sizes.
        names: how they are called in the report.
        seconds: no further size is taken after that.
        most: how many sizes.

    Returns:
        "certified", or "not tested" with the reason.
    """
    began = time.perf_counter()
    report = CertificateReport(*names, "not tested")

    def done(**found: object) -> CertificateReport:
        return replace(report, seconds=time.perf_counter() - began, **found)  # type: ignore[arg-type]

    if reason := _unlike(a, b):
        return done(reason=reason)
    if a.ByteSize() + b.ByteSize() > _LARGE:
        return done(reason=f"more than {_LARGE / 2**20:.0f} MiB of weights")
    pair, failed = _Pair(a, b, examples), ""
    points: list[FieldPoint] = []
    try:
        pair.constants = Constants(a)
        pair.expressions = find_expressions(pair.constants, b)
        for sizes in _sizes(a, examples):
            if points and (len(points) >= most or time.perf_counter() - began > seconds) and len(points) > 1:
                break
            salt = secrets.randbits(48)
            try:
                same = pair.agree(salt, sizes)
            except NotCoveredError as error:
                failed = failed or str(error)
                if time.perf_counter() - began > seconds:
                    break
                continue
            if not same:
                change = only_change(a, b)
                told = f"not the same real function: {pair.first or 'an output'} has no partner" + (
                    f" ({change})" if change else ""
                )
                return done(reason=told, first=pair.first, change=change)
            shapes = {i.name: shape for i, shape in _inputs(a, sizes)}
            points.append(FieldPoint(salt, Field(salt).p, shapes))
    except (MemoryError, RecursionError, OverflowError) as error:
        failed = type(error).__name__
    if len(points) < 2:
        return done(reason=f"not decided: {failed or 'too few sizes'}")
    steps = (
        tuple(f"{n.op_type}({', '.join(n.input)}) -> {n.output[0]}" for n in pair.constants.nodes)
        if pair.constants
        else ()
    )
    wanted = {e.source for e in pair.expressions}
    return done(
        verdict="certified",
        points=tuple(points),
        constants=tuple(pair.expressions),
        steps=steps if wanted else (),
    )


def _unlike(a: onnx.ModelProto, b: onnx.ModelProto) -> str:
    """What keeps two models from being compared at all."""
    if [o.name for o in a.graph.output] != [o.name for o in b.graph.output] and len(a.graph.output) != len(
        b.graph.output
    ):
        return "they have other outputs"
    left, right = {i.name for i in _free_inputs(a)}, {i.name for i in _free_inputs(b)}
    if not right <= left and len(left) != len(right):
        return "they have other inputs"
    return ""


def _free_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    own = {t.name for t in model.graph.initializer}
    return [i for i in model.graph.input if i.name not in own]


def _inputs(model: onnx.ModelProto, sizes: Sizes) -> list[tuple[onnx.ValueInfoProto, tuple[int, ...]]]:
    found = []
    for info in _free_inputs(model):
        tensor = info.type.tensor_type
        if not info.type.HasField("tensor_type") or not tensor.HasField("shape"):
            raise NotCoveredError(f"input {info.name!r} without a shape")
        dims = enumerate(tensor.shape.dim)
        found.append(
            (info, tuple(d.dim_value if d.HasField("dim_value") else sizes[_key(info, k, d)] for k, d in dims))
        )
    return found


def _key(info: onnx.ValueInfoProto, axis: int, dim: onnx.TensorShapeProto.Dimension) -> str:
    return dim.dim_param or f"{info.name}.{axis}"


def _sizes(model: onnx.ModelProto, examples: Sequence[Mapping[str, np.ndarray]]) -> list[Sizes]:
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
    for info in _free_inputs(model):
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value"):
                key = _key(info, axis, dim)
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
    yield {key: _PRIMES[k % len(_PRIMES)] for k, key in enumerate(keys)}
    yield small
    yield dict.fromkeys(keys, 1)
    yield {key: size + (k % 3 if len(keys) > 1 else 1) + (key == first) for k, (key, size) in enumerate(small.items())}
    for step in range(3, 9):
        yield {key: _PRIMES[(k + step) % len(_PRIMES)] + step for k, key in enumerate(keys)}
    for size in (16, 32, 48, 64, 224, 256):
        yield {**dict.fromkeys(keys, size), first: 1}
        yield {**dict.fromkeys(keys, size), first: 2}


def only_change(a: onnx.ModelProto, b: onnx.ModelProto) -> str:
    """The one constant, attribute or input in which two files differ that are alike otherwise; "" for none or more."""
    if len(a.graph.node) != len(b.graph.node) or len(a.graph.initializer) != len(b.graph.initializer):
        return ""
    changes = []
    for x, y in zip(a.graph.initializer, b.graph.initializer, strict=True):
        if (x.name, x.data_type, x.dims) != (y.name, y.data_type, y.dims):
            return ""
        if x.SerializeToString() != y.SerializeToString():
            changes.append(f"constant {x.name!r}")
    for m, n in zip(a.graph.node, b.graph.node, strict=True):
        if m.op_type != n.op_type or m.domain != n.domain or list(m.output) != list(n.output):
            return ""
        if list(m.input) != list(n.input):
            changes.append(f"the inputs of {m.op_type} {m.name or m.output[0]!r}")
        own, other = ({t.name: t.SerializeToString() for t in node.attribute} for node in (m, n))
        changes += [
            f"attribute {k!r} of {m.op_type} {m.name or m.output[0]!r}"
            for k in sorted({*own, *other})
            if own.get(k) != other.get(k)
        ]
    return changes[0] if len(changes) == 1 else ""


__all__ = ["certify", "only_change"]
