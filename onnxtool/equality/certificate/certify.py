"""Certificates: two ONNX models evaluated at the same random points of finite fields."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import onnx
from onnx import helper

from onnxtool.equality.certificate import operators
from onnxtool.equality.certificate.field import Field
from onnxtool.equality.certificate.interpreter import Interpreter
from onnxtool.equality.certificate.ledger import Constants, constants_in_field, find_expressions
from onnxtool.equality.certificate.one_thread import one_thread
from onnxtool.equality.certificate.parts import Evaluated, parts_of
from onnxtool.equality.certificate.reads import unread_sizes
from onnxtool.equality.certificate.rounding import COARSER, rounding_of
from onnxtool.equality.certificate.sizes import (
    SizeRun,
    Sizes,
    drawn_inputs,
    fixed_numbers,
    free_inputs,
    input_shapes,
    reaching_sizes,
    turning_sizes,
    usual_sizes,
)
from onnxtool.equality.certificate.values import FAULTS, DataShapeError, Item, NotCoveredError, Value, exact, is_float
from onnxtool.equality.input_defaults import shared_defaults, without_defaults
from onnxtool.errors import first_line
from onnxtool.model.cut_model import captured_names
from onnxtool.model.proto_nodes import all_nodes
from onnxtool.model.shapes import light_copy
from onnxtool.report.certificate import CertificateReport, FieldPoint, PartRounding, RoundedConstant

operators.register()
_LARGE = 2**29  # bytes of both files: beyond this the arrays of elements do not fit into the memory of a proof
_MOST_NODES = 40_000  # of both; each is evaluated at several sizes
_LARGEST = 2**16  # of the product of free dims, at which parts that others leave out are compared
_LOOKING = 1 / 3  # of the time: for sizes that are looked at by shapes alone
_KEPT = 1 / 3  # of the time: for the parts of the models that no usual size reaches
_ELEMENT = 4e-8  # seconds, for an element of a tensor of A, in both models (measured: 3e-8 to 5e-8 without products)
_MEASURED = 2**16  # elements more in one comparison than in another: what they take tells what an element takes
_MOST_ELEMENTS = 2**26  # of one tensor: several of its size are there at a time
_EXHAUSTED = (MemoryError, RecursionError, OverflowError)


@dataclass
class Filled:
    """Which places along each dim of each tensor held a number other than zero, at any size.

    Zeros that pad a short input hide what is multiplied with them. Only dims that are as long at all sizes count.
    """

    _places: dict[tuple[object, int], np.ndarray] = field(default_factory=dict)
    _growing: set[tuple[object, int]] = field(default_factory=set)

    def add(self, tensor: object, data: np.ndarray) -> None:
        """Take in a tensor's elements of a field, by any name of it."""
        nonzero = data != 0
        everywhere = bool(nonzero.all())
        for axis, size in enumerate(data.shape):
            key = (tensor, axis)
            before = self._places.get(key)
            if before is not None and len(before) != size:
                self._growing.add(key)
            if key not in self._growing and (before is None or not before.all()):
                others = tuple(d for d in range(data.ndim) if d != axis)
                here = np.ones(size, bool) if everywhere else nonzero.any(axis=others)
                self._places[key] = here if before is None else before | here

    def zeros(self) -> int:
        """How many places were zero at all sizes."""
        return sum(int((~p).sum()) for key, p in self._places.items() if key not in self._growing)

    def is_padded(self) -> bool:
        """Whether more than half of some dim held zeros alone: padding, and no zero of the model's own."""
        return any(2 * p.sum() < len(p) for key, p in self._places.items() if key not in self._growing)


@dataclass
class _Pair:
    """Both models, and what was found so far."""

    a: onnx.ModelProto
    b: onnx.ModelProto
    examples: Sequence[Mapping[str, np.ndarray]]
    constants: Constants
    expressions: Sequence[RoundedConstant]
    points: list[FieldPoint] = field(default_factory=list)
    used: list[Sizes] = field(default_factory=list)
    looked: int = 0
    empty: dict[str, onnx.NodeProto] = field(default_factory=dict)
    full: set[str] = field(default_factory=set)
    reached: dict[str, np.ndarray] = field(default_factory=dict)
    filled: Filled = field(default_factory=Filled)
    compared: list[tuple[int, float]] = field(default_factory=list)  # elements of A, and seconds of this thread
    run: SizeRun = field(init=False)
    weights: tuple[dict[str, Value], dict[str, Value]] = field(init=False)

    def __post_init__(self) -> None:
        self.weights = {name: exact(array) for name, array in self.constants.literal.items()}, {}
        self.run = SizeRun(self.a, self.a)

    def affordable(self, sizes: Sizes, deadline: float) -> bool:
        """Whether a comparison at some sizes would end in time, and within memory."""
        now, (least, fastest), (most, took) = time.thread_time(), min(self.compared), max(self.compared)
        if now > deadline or self.run.too_large(sizes):  # a run of what is too large tells nothing
            return False
        self.run.of(sizes)
        element = max((took - fastest) / (most - least), _ELEMENT) if most - least >= _MEASURED else _ELEMENT
        needed = fastest + max(self.run.total - least, 0) * element
        return self.run.largest <= _MOST_ELEMENTS and now + needed <= deadline

    def see(self, side: str, node: onnx.NodeProto, name: str, value: Item) -> None:
        """Keep which tensors had no element at any size yet, or zeros alone: what is behind was not compared."""
        if isinstance(value, Value) and not value.exact:
            if value.data.size:
                self.full.add(name)
                self.filled.add((side, name), value.data)
            else:
                self.empty[name] = node

    def hold(self, sizes: Sizes) -> None:
        """Compare them at a random point.

        Raises:
            _DifferentError: they differ there.
            NotCoveredError: A cannot be evaluated, or (`_OneSidedError`) B cannot where A can.
        """
        began = time.thread_time()
        point = Field(secrets.randbits(48))
        memory: dict[object, Item] = {}
        feeds = drawn_inputs(self.a, sizes, point)
        first, second = self.weights
        expected = Interpreter(self.a, point, see=partial(self.see, "a"), memory=memory, weights=first).run(feeds)
        own = constants_in_field(self.constants, self.b, self.expressions, point)
        candidate = Interpreter(self.b, point, own, see=partial(self.see, "b"), memory=memory, weights=second)
        try:
            found = candidate.run(self._own_feeds(feeds))
        except NotCoveredError as error:
            raise _OneSidedError(f"B cannot be evaluated at {_told(sizes)}, where A can: {error}") from error
        if not all(_same(x, y) for x, y in zip(expected.values(), found.values(), strict=True)):
            both = self._values(point, feeds, memory)
            found = _difference(self.a, self.b, _first_without_partner(*both) or "an output")
            raise _DifferentError(**found, unlike=self.shapes(sizes))
        for name, places in candidate.reached.items():
            self.reached[name] = places | self.reached.get(name, np.array(False))
        self.points.append(FieldPoint(point.salt, point.p, self.shapes(sizes)))
        took = time.thread_time() - began
        self.run.of(sizes)
        self.compared.append((self.run.total, took))

    def shapes(self, sizes: Sizes) -> dict[str, tuple[int, ...]]:
        """Of A's inputs."""
        return {info.name: shape for info, shape in input_shapes(self.a, sizes)}

    def rounding(self, sizes: Sizes, deadline: float) -> list[PartRounding]:
        """What rounding does to the parts in which the two compute in different ways.

        Args:
            sizes: at which these are looked for.
            deadline: of this thread's processor time.
        """
        point = Field(secrets.randbits(48))
        parts = parts_of(*self._values(point, drawn_inputs(self.a, sizes, point), {}))
        return rounding_of(self.a, self.b, parts, self._numbers(sizes), deadline) if parts else []

    def _values(
        self, point: Field, feeds: Mapping[str, Value], memory: dict[object, Item]
    ) -> tuple[Evaluated, Evaluated]:
        """What both have at a random point."""
        own = constants_in_field(self.constants, self.b, self.expressions, point)
        a = Evaluated(self.a, point, {}, feeds, memory)
        return a, Evaluated(self.b, point, own, self._own_feeds(feeds), memory)

    def _numbers(self, sizes: Sizes) -> Mapping[str, np.ndarray]:
        if self.examples:
            return self.examples[0]
        generator = np.random.default_rng(5)
        kinds = {i.name: helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type) for i in free_inputs(self.a)}
        shapes = self.shapes(sizes)
        floats = {n: generator.random(shape) for n, shape in shapes.items() if is_float(kinds[n])}
        drawn = {n: floats[n] if n in floats else generator.integers(0, 2, shape) for n, shape in shapes.items()}
        return {n: numbers.astype(kinds[n]) for n, numbers in drawn.items()}

    def _own_feeds(self, feeds: Mapping[str, Value]) -> dict[str, Value]:
        names = [i.name for i in free_inputs(self.b)]
        if not set(names) <= set(feeds):
            return dict(zip(names, feeds.values(), strict=True))
        return {n: feeds[n] for n in names}


def _first_without_partner(a: Evaluated, b: Evaluated) -> str:
    """The first value of B that A does not have, behind which nothing is shared any more.

    Where two models compute in other ways what is shared again behind, that is no difference.
    """
    known = set(a.keys.values())
    lost: set[str] = set()
    readers: dict[str, list[str]] = {}
    for name in reversed(b.producers):
        if name in b.keys and b.keys[name] not in known and all(r in lost for r in readers.get(name, ())):
            lost.add(name)
        for read in captured_names(b.producers[name]):
            readers.setdefault(read, []).append(name)
    name = next((n for n in b.producers if n in lost), "")
    return f"{b.producers[name].op_type} {b.producers[name].name or name!r}" if name else ""


def _same(a: Item, b: Item) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    if not (isinstance(a, Value) and isinstance(b, Value)):
        return a is None and b is None
    if a.data.shape != b.data.shape or a.dtype != b.dtype:
        return False
    floats = a.exact and a.data.dtype.kind == "f"
    return a.exact == b.exact and bool(np.array_equal(a.data, b.data, equal_nan=floats))


@one_thread()
def certify(
    a: onnx.ModelProto,
    b: onnx.ModelProto,
    examples: Sequence[Mapping[str, np.ndarray]] = (),
    *,
    names: tuple[str, str] = ("A", "B"),
    seconds: float = 30.0,
    patience: float = 0.0,
    most: int = 6,
    made: Mapping[str, np.ndarray] | None = None,
) -> CertificateReport:
    """Decide whether two models are the same real function.

    Args:
        a: what is right, with the data of its weights.
        b: what is judged.
        examples: inputs that A takes; their shapes are among the sizes.
        names: how they are called in the report.
        seconds: of this thread's processor time, so that a busy machine decides nothing; no further size is taken then.
        patience: seconds beyond that for what there is no certificate without.
        most: how many sizes.
        made: what the framework of A computes of its constants by names of values, as of `Constants`.

    Returns:
        "certified", or "not tested" with the reason.
    """
    began = time.perf_counter()
    report = CertificateReport(*names, "not tested")

    def done(**found: object) -> CertificateReport:
        return replace(report, seconds=time.perf_counter() - began, **found)  # type: ignore[arg-type]

    if reason := _unlike(a, b):
        return done(reason=reason)
    if (wrong := _wrong_types(b)) and not _wrong_types(a):
        return done(reason=f"B is not valid: {wrong}")
    if a.ByteSize() + b.ByteSize() > _LARGE:
        return done(reason=f"more than {_LARGE / 2**20:.0f} MiB of weights")
    if len(a.graph.node) + len(b.graph.node) > _MOST_NODES:
        return done(reason=f"more than {_MOST_NODES:,} nodes")
    try:
        defaults = shared_defaults(a, b)
        if defaults:
            a, b = without_defaults(a, defaults), without_defaults(b, defaults)
            examples = [{**defaults, **example} for example in examples]
        with np.errstate(all="ignore"):  # in sizes that a run of shapes alone makes up
            constants = Constants(a, made, fixed_numbers(a))
            expressions = find_expressions(constants, b)
        pair = _Pair(a, b, examples, constants, expressions)
    except (NotCoveredError, *_EXHAUSTED, *FAULTS) as error:
        return done(reason=f"not decided: {_cause(error)}")
    try:
        with np.errstate(all="ignore"):  # ONNX's implementations divide by sizes, of which one may be zero
            failed = _evaluated(pair, most, seconds, patience)
            rounding = []
            if len(pair.points) > 1:
                # At a size of one, what is summed or normalized is alike and has more partners than its own.
                chosen = [s for s in pair.used if 1 not in s.values()] or pair.used
                smallest = min(chosen, key=lambda sizes: sum(sizes.values()))
                rounding = pair.rounding(smallest, time.thread_time() + seconds)
    except _DifferentError as error:
        return done(**error.found)
    except (NotCoveredError, *_EXHAUSTED, *FAULTS) as error:
        return done(reason=f"not decided: {_cause(error)}")
    if len(pair.points) < 2:
        decide = partial(certify, examples=examples, names=names, seconds=seconds)
        if isinstance(failed, DataShapeError) and (found := _difference_before(failed, a, b, decide)):
            return done(**found)
        return done(reason=f"not decided: {failed or 'too few sizes'}")
    found = {
        "points": tuple(pair.points),
        "same_function": True,
        "sizes": pair.looked,
        "constants": tuple(pair.expressions),
        "steps": constants.steps(pair.expressions),
        "rounding": tuple(rounding),
    }
    worse = max(rounding, key=lambda r: r.coarser, default=None)
    unlike = next((r for r in rounding if r.unlike), None)
    if worse is not None and worse.coarser > COARSER:
        told = f"B rounds {worse.coarser:,.0f} times as coarsely: {worse}, {worse.where}"
    elif unlike is not None:
        told = f"{unlike} is finite in one alone, with {unlike.unlike}"
    else:
        return done(verdict="certified", **found)
    return done(reason=f"the same real function, but {told}", **found)


def _difference_before(
    failed: DataShapeError,
    a: onnx.ModelProto,
    b: onnx.ModelProto,
    decide: Callable[[onnx.ModelProto, onnx.ModelProto], CertificateReport],
) -> dict[str, object]:
    """What a report says where models differ without an operator whose shape the data decides.

    What it reads are outputs then. Nothing is said where the two do not read as much.
    """
    parts = [_before(model, failed.operator) for model in (a, b)]
    counts = [len(part.graph.output) for part in parts]
    if not counts[0] == counts[1] > 0:
        return {}
    found = decide(*parts)
    if found.same_function or not found.unlike:
        return {}
    told = f"{found.reason}, before {failed}"
    return {"reason": told, "first": found.first, "change": only_change(a, b), "unlike": found.unlike}


def _before(model: onnx.ModelProto, operator: str) -> onnx.ModelProto:
    """A model without an operator and what follows; its outputs are those that stay, and what the operator read.

    Of an operator inside of a node the whole node is left out.
    """
    behind: set[str] = set()
    kept, read = [], dict[str, None]()
    for node in model.graph.node:
        is_cut = any(n.op_type == operator for n in all_nodes([node]))
        if is_cut and not captured_names(node) & behind:
            read.update(dict.fromkeys(sorted(captured_names(node))))
        if is_cut or captured_names(node) & behind:
            behind |= set(node.output)
        else:
            kept.append(node)
    made = {name for node in kept if node.op_type != "Constant" for name in node.output}
    stay = [o for o in model.graph.output if o.name not in behind]
    further = [n for n in read if n in made and n not in {o.name for o in stay}]
    part = onnx.ModelProto()
    part.CopyFrom(model)
    for held in (part.graph.node, part.graph.output):
        del held[:]
    part.graph.node.extend(kept)
    part.graph.output.extend(stay)
    part.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in further)
    return part


def _cause(error: Exception) -> str:
    """What a report says of an error; one of the certificate's own code must not end what would do without it."""
    if isinstance(error, NotCoveredError):
        return str(error)
    name = type(error).__name__
    return name if isinstance(error, _EXHAUSTED) else f"an error inside onnxtool's certificate, {name}: {error}"


class _OneSidedError(NotCoveredError):
    """B cannot be evaluated at sizes at which A can, as where it does not run there."""


class _DifferentError(Exception):
    """The models are not the same function; what a report says of that."""

    def __init__(self, **found: object) -> None:
        super().__init__()
        self.found = found


def _told(sizes: Sizes) -> str:
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())


def _evaluated(pair: _Pair, most: int, seconds: float, patience: float) -> NotCoveredError | None:
    """Compare at usual sizes, then at those at which something else happens; what kept it from some of them.

    Raises:
        _DifferentError: the models differ.
        NotCoveredError: a model cannot be evaluated at a size at which something else happens.
    """
    began, failed = time.thread_time(), None
    deadline, enough = began + seconds, began + (1 - _KEPT) * seconds
    used = pair.used
    for sizes in usual_sizes(pair.a, pair.examples, deadline):
        if used and (time.thread_time() > deadline or len(used) >= most):
            break
        try:
            pair.hold(sizes)
        except _OneSidedError:
            raise
        except NotCoveredError as error:
            failed = failed or error
        else:
            used.append(sizes)
    if not used:
        return failed
    if len(used) < 2:  # time is up, or there is one size: a second point where it is known that it can be evaluated
        pair.hold(used[0])
        used.append(used[0])
    looking = time.thread_time() + _LOOKING * seconds
    nothing: tuple[list[Sizes], list[Sizes], Sizes | None, int] = ([], [], None, 0)
    decided, steps, unlike, pair.looked = (
        turning_sizes(pair.a, pair.b, used[0], looking, deadline + patience) if used[0] else nothing
    )
    if unlike is not None:
        told = f"not shown to be the same real function: the shapes of the outputs differ at {_told(unlike)}"
        raise _DifferentError(reason=told, unlike=pair.shapes(unlike))
    held = [*used]
    deadline += patience
    for sizes in (*decided, *steps):
        if sizes in held:
            continue
        if not pair.affordable(sizes, deadline if sizes in decided else enough):
            if sizes in decided and min(sizes.values()) > 1:
                raise NotCoveredError(f"there was no time to compare at {_told(sizes)}, where sizes decide something")
            continue
        try:
            pair.hold(sizes)
            held.append(sizes)
        except NotCoveredError:
            if 0 not in sizes.values():
                raise
    _hold_at_all_parts(pair, held, deadline)
    return failed


def _hold_at_all_parts(pair: _Pair, held: Sequence[Sizes], deadline: float) -> None:
    """Compare at sizes that reach what no size before did: rows of tables, and places of windows.

    Raises:
        _DifferentError: the models differ.
        NotCoveredError: some part of a model takes no part at any size that was compared.
    """
    further, unread = unread_sizes(pair.a, pair.b, held, deadline)
    for sizes in further:
        if not pair.affordable(sizes, deadline):
            unread = unread or "a table"
            break
        pair.hold(sizes)
    if unread:
        raise NotCoveredError(f"constant {unread!r} is none of A's, and no size that was compared reads all of it")
    alone = [n for n, places in pair.reached.items() if not places.all()]
    for sizes, reached in reaching_sizes(pair.a, pair.b, held[0], alone, deadline):
        new = [n for n, places in reached.items() if (places & ~pair.reached[n]).any()]
        if new and not pair.affordable(sizes, deadline):
            raise NotCoveredError(f"the edges of the window of {new[0]!r} meet padding alone at the sizes compared")
        if new:
            pair.hold(sizes)
        if all(pair.reached[n].all() for n in alone):
            break
    _hold_at_larger(pair, held, deadline)
    for name, node in pair.empty.items():
        if name not in pair.full:
            raise NotCoveredError(f"{node.op_type} {node.name or name!r} has no element at any size that was compared")


def _hold_at_larger(pair: _Pair, held: Sequence[Sizes], deadline: float) -> None:
    """Compare at larger sizes as long as more rows of constant matrices take part there, or fewer zeros hide something.

    Raises:
        _DifferentError: the models differ.
        NotCoveredError: there was no time for it.
    """
    usual, fewer = held[0], True  # zeros at each larger size; those that stay are the model's own
    for factor in (4, 16, 64, 256, 1024):
        unread = {n: p for n, p in pair.reached.items() if not p.all()}
        zeros = pair.filled.zeros() if fewer else 0
        sizes = {k: n * factor if n > 1 else n for k, n in usual.items()}
        if any(all(n <= known[k] for k, n in sizes.items()) for known in held):
            continue
        grown = np.prod([*sizes.values()], dtype=float)
        if not (unread or zeros) or sizes == usual or grown > _LARGEST:
            return
        slow = not pair.affordable(sizes, deadline)
        if slow and (unread or pair.filled.is_padded()):
            where = f"of {next(iter(unread))!r} " if unread else ""
            raise NotCoveredError(f"parts {where}meet zeros alone at the sizes that there was time for")
        if slow:
            return
        try:
            pair.hold(sizes)
        except NotCoveredError:
            return
        fewer = pair.filled.zeros() < zeros
        if factor > 16 and not fewer and all(np.array_equal(p, pair.reached[n]) for n, p in unread.items()):
            return


def _difference(a: onnx.ModelProto, b: onnx.ModelProto, node: str) -> dict[str, str]:
    change = only_change(a, b)
    told = f"not shown to be the same real function: {node} has no partner" + (f" ({change})" if change else "")
    return {"reason": told, "first": node, "change": change}


def _unlike(a: onnx.ModelProto, b: onnx.ModelProto) -> str:
    """What keeps two models from being compared at all."""
    if [o.name for o in a.graph.output] != [o.name for o in b.graph.output] and len(a.graph.output) != len(
        b.graph.output
    ):
        return "they have other outputs"
    left, right = {i.name for i in free_inputs(a)}, {i.name for i in free_inputs(b)}
    if not right <= left and len(left) != len(right):
        return "they have other inputs"
    return ""


def _wrong_types(model: onnx.ModelProto) -> str:
    """Why ONNX's inference refuses a model; the interpreter takes more types and axes than operators do."""
    copy = light_copy(model)
    copy.graph.ClearField("value_info")
    for output in copy.graph.output:  # which shape it has is compared, not which is declared
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    try:
        onnx.shape_inference.infer_shapes(copy, check_type=True, strict_mode=True)
    except Exception as error:
        return first_line(error)
    return ""


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
