"""Constants of one model as expressions over the constants of another, each with its distance from the exact value."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from onnxtool.equality.certificate.field import Field
from onnxtool.equality.certificate.interpreter import TREES, Interpreter
from onnxtool.equality.certificate.trees import leaf_weights
from onnxtool.equality.certificate.values import NotCoveredError, exact, is_float
from onnxtool.errors import OnnxToolError
from onnxtool.model.cut_model import captured_names, cut_model
from onnxtool.report.certificate import ConstantStep, RoundedConstant
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import EXACT

Array = np.ndarray
_PREFIX = "onnxtool.certificate."
_SINGLE = ("Mul", "Div", "Add", "Sub", "Neg", "Reciprocal", "Identity")  # number by number
_AFFINE = ("Mul", "Div", "Add", "Sub", "BatchNormalization")


@dataclass
class Known:
    """A constant, or what follows from constants alone; its numbers are worked out when they are asked for.

    Attributes:
        shape: of the tensor.
        floats: it holds floats.
        derived: it is no constant of the model itself.
        make: gives `number` and `stepwise`.
    """

    shape: tuple[int, ...]
    floats: bool
    derived: bool
    make: Callable[[], tuple[Array, Array]]

    @functools.cached_property
    def _made(self) -> tuple[Array, Array]:
        return self.make()

    @property
    def number(self) -> Array:
        """In float64, exact but for its rounding."""
        return self._made[0]

    @property
    def stepwise(self) -> Array:
        """Rounded to the tensor's precision after each step, as passes leave it."""
        return self._made[1]

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return int(np.prod(self.shape))


def _literal(array: Array) -> Known:
    return Known(array.shape, is_float(array.dtype), False, lambda: (_wide(array),) * 2)


@dataclass(frozen=True)
class _Linear:
    """A product with a constant weight, whose output some affine steps follow."""

    weight: str
    bias: str | None
    shape: tuple[int, ...]  # of one number for each output, beside the weight
    channels: int
    rank: int  # of the output, from the dim of the channels on


class Constants:
    """What is constant in a model, and what its affine steps make of the weights of its products.

    Args:
        model: with the data of its weights.
        made: what the framework of the model computes of its constants, by the names of values, where that is known.
        fixed: integers that the model computes from sizes and that are the same at all of them, by names of values.

    Attributes:
        nodes: those with constant inputs alone, and those that are added: weights with the steps after them taken in.
        known: the numbers by name.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        made: Mapping[str, Array] | None = None,
        fixed: Mapping[str, Array] | None = None,
    ) -> None:
        self.model, self._made = model, made or {}
        self.literal = constants_of(model)
        self.known = {name: _literal(a) for name, a in self.literal.items()}
        self._types = {name: a.dtype for name, a in self.literal.items()}
        self._interpreter = Interpreter(model, Field(0))
        self._written = set[str]()
        self.nodes: list[onnx.NodeProto] = []
        for node in model.graph.node:
            if node.op_type in ("Constant", "If", "Loop", "Scan") or node.domain != "" or len(node.output) != 1:
                continue
            number = (fixed or {}).get(node.output[0])
            if number is not None and not all(n in self.known for n in node.input if n):
                self._write(node.output[0], number)
            elif node.op_type == "Shape" and node.input[0] in self.known:
                shape, ends = self.known[node.input[0]].shape, {a.name: a.i for a in node.attribute}
                self._write(node.output[0], np.array(shape[ends.get("start", 0) : ends.get("end")], np.int64))
            elif node.op_type == "CastLike":  # of a constant, to the type of what it is added to
                self._add(helper.make_node("Identity", node.input[:1], node.output))
            else:
                self._add(node)
        self._follow()
        divisors = dict.fromkeys(n.input[1] for n in model.graph.node if n.op_type == "Div")
        floats = [n for n in divisors if n in self.known and self.known[n].floats]
        self.reciprocals = [self._emit("Reciprocal", (name,)) for name in floats]
        for name, known in [*self.known.items()]:
            if known.floats and len(known.shape) == 2 and known.shape[0] == known.shape[1] > 1:
                self._emit("Transpose", (name,))

    def elements(self, field: Field, names: Collection[str]) -> dict[str, Array]:
        """Some of them in a field."""
        interpreter = Interpreter(self.model, field)
        needed = set(names)
        for node in reversed(self.nodes):
            if node.output[0] in needed:
                needed.update(node.input)
        found = {name: exact(a) for name, a in self.literal.items() if name in needed}
        for node in self.nodes:
            if node.output[0] not in needed:
                continue
            inputs = [found[n] if n else None for n in node.input]
            attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            found[node.output[0]] = interpreter.apply(node.op_type, inputs, attributes)
        return {name: interpreter.elements(found[name]) for name in names}

    def steps(self, expressions: Iterable[RoundedConstant]) -> tuple[ConstantStep, ...]:
        """What leads from the constants of the model to the sources of some expressions, in its order."""
        needed = {name for e in expressions for name in (e.source, e.factor)}
        found = []
        for node in reversed(self.nodes):
            if node.output[0] in needed:
                needed |= set(node.input)
                attributes = {a.name: _plain(helper.get_attribute_value(a)) for a in node.attribute}
                found.append(ConstantStep(node.op_type, tuple(node.input), node.output[0], attributes))
        for name in sorted(self._written & needed):
            array = self.literal[name]
            held = {"value": array.tolist(), "dtype": array.dtype.name}
            found.append(ConstantStep("Constant", (), name, held))
        return tuple(reversed(found))

    def join(self, parts: Iterable[RoundedConstant], axis: int) -> str:
        """Add constants side by side, each times its factor; the name."""
        names = [self._emit("Mul", (p.source, p.factor)) if p.factor else p.source for p in parts]
        return self._emit("Concat", names, axis=axis)

    def folded(self, names: Sequence[str]) -> list[Mapping[str, Array]]:
        """What the runtime, and what ONNX's own implementation make of constants that follow from others: sums over
        them and cosines are not the same to the last bit.
        """
        needed = set(names)
        nodes = []
        for node in reversed(self.model.graph.node):
            if needed & (set(node.output) - self._written):
                nodes.append(node)
                needed |= set(node.input)
        written = {n: self.literal[n] for n in sorted(needed & self._written)}
        cut = cut_model(self.model, [o for n in nodes for o in n.output], written, names)
        found: list[Mapping[str, Array]] = []
        with suppress(OnnxToolError):
            found.append(OnnxRunner.open(cut, EXACT).run(written))
        with suppress(Exception), np.errstate(all="ignore"):  # which raises what it likes on what it does not know
            results = map(np.asarray, ReferenceEvaluator(cut).run(None, written))
            found.append(dict(zip(names, results, strict=True)))
        return found

    def _add(self, node: onnx.NodeProto) -> bool:
        """Work a node out where all it reads is known."""
        if not "".join(node.input[:1]) or not all(n in self.known for n in node.input if n):
            return False
        if any(a.HasField("t") or a.HasField("g") for a in node.attribute):
            return False
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        dtype = self._types[node.input[0]]
        if node.op_type == "Cast":
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(attributes["to"]))
        elif node.op_type in ("ConstantOfShape", "Shape", "Equal", "Less", "Greater", "Not", "And", "Or", "Where"):
            return False
        inputs = [self.known[n] if n else None for n in node.input]

        def made() -> tuple[Array, Array]:
            pair = []
            for stepwise in (False, True):
                values = [None if k is None else exact(k.stepwise if stepwise else k.number) for k in inputs]
                if node.op_type == "Cast":
                    pair.append(values[0].data.astype(dtype))  # type: ignore[union-attr]
                else:
                    with np.errstate(all="ignore"):
                        pair.append(self._interpreter.by_reference(node.op_type, list(values), attributes).data)
            own = self._made.get(node.output[0])
            return _wide(pair[0]), _wide(pair[1].astype(dtype) if own is None else own)

        try:
            if node.op_type == "Transpose" and not attributes and inputs[0] is not None:
                known = Known(inputs[0].shape[::-1], inputs[0].floats, True, made)
            elif node.op_type in _SINGLE and all(k is not None and k.floats for k in inputs):
                shape, floats = np.broadcast_shapes(*(k.shape for k in inputs if k is not None)), True
                same = inputs[0] if node.op_type == "Identity" else None
                known = Known(shape, floats, True, made if same is None else lambda: (same.number, same.stepwise))
            else:
                pair = made()
                known = Known(pair[0].shape, pair[0].dtype == np.float64, True, lambda: pair)
        except Exception:  # ONNX's implementation raises what it likes on what it does not know
            return False
        self.known[node.output[0]] = known
        self._types[node.output[0]] = dtype
        self.nodes.append(node)
        return True

    def _emit(self, kind: str, inputs: Iterable[str], **attributes: Any) -> str:
        name = f"{_PREFIX}{len(self.nodes)}"
        if not self._add(helper.make_node(kind, list(inputs), [name], **attributes)):
            raise NotCoveredError(kind)
        return name

    def _dims(self, name: str, shape: Iterable[int]) -> str:
        wanted = np.array(list(shape), np.int64)
        key = f"{_PREFIX}shape.{'.'.join(map(str, wanted))}"
        if key not in self.literal:
            self._write(key, wanted)
        return self._emit("Reshape", (name, key))

    def _write(self, name: str, number: Array) -> None:
        """Enter a constant that the model does not have."""
        self._written.add(name)
        self.literal[name] = number
        self.known[name] = _literal(number)
        self._types[name] = number.dtype

    def _follow(self) -> None:
        """Take the affine steps around each product into its weight."""
        producers = {o: n for n in self.model.graph.node for o in n.output}
        states: dict[str, _Linear] = {}
        for node in self.model.graph.node:
            try:
                if node.op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul") and node.domain == "":
                    found = self._product(node, producers)
                elif node.op_type in TREES:
                    found = _Linear(f"{node.output[-1]}.weights", None, (-1,), 1, 1)
                elif node.op_type in ("Cast", "Identity") and node.input[0] in states:
                    found = states[node.input[0]]
                elif node.op_type == "Transpose" and node.input[0] in states:
                    state, perm = states[node.input[0]], list(node.attribute[0].ints) if node.attribute else []
                    place = len(perm) - state.rank  # of the channels
                    found = replace(state, rank=len(perm) - perm.index(place)) if place in perm else None
                elif node.op_type in _AFFINE and node.domain == "":
                    found = self._step(node, states)
                else:
                    continue
            except NotCoveredError:
                continue
            if found is not None:
                states[node.output[-1]] = found

    def _product(self, node: onnx.NodeProto, producers: Mapping[str, onnx.NodeProto]) -> _Linear | None:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        weight = node.input[1]
        bias = node.input[2] if len(node.input) > 2 and node.input[2] else None
        if weight not in self.known or (bias is not None and bias not in self.known):
            return None
        shape = self.known[weight].shape
        before = producers.get(node.input[0])
        if node.op_type == "MatMul" and before is not None and before.op_type in ("Mul", "Div"):
            scale = next((n for n in before.input if n in self.known), None)
            if scale is not None and self.known[scale].size in (1, shape[-2] if len(shape) > 1 else 1):
                self._emit(before.op_type, (weight, self._dims(scale, (-1, 1))))
        if node.op_type == "Conv":
            return _Linear(weight, bias, (-1, *[1] * (len(shape) - 1)), shape[0], len(shape) - 1)
        if node.op_type == "ConvTranspose" and attributes.get("group", 1) == 1:
            return _Linear(weight, bias, (1, -1, *[1] * (len(shape) - 2)), shape[1], len(shape) - 1)
        if node.op_type == "Gemm" and attributes.get("alpha", 1.0) == attributes.get("beta", 1.0) == 1.0:
            turned = attributes.get("transB", 0)
            return _Linear(weight, bias, (-1, 1) if turned else (1, -1), shape[0 if turned else 1], 1)
        if node.op_type == "MatMul" and len(shape) == 2:
            return _Linear(weight, None, (1, -1), shape[1], 1)
        return None

    def _step(self, node: onnx.NodeProto, states: Mapping[str, _Linear]) -> _Linear | None:
        at = next((k for k, n in enumerate(node.input) if n in states), None)
        if at is None:
            if node.op_type == "BatchNormalization":
                self._batch_norm(node)
            return None
        state = states[node.input[at]]
        if node.op_type == "BatchNormalization":
            if at:
                return None
            scale, shift = self._batch_norm(node)
        else:
            other = node.input[1 - at]
            if other not in self.known or not self._fits(self.known[other].shape, state):
                return None
            flat = self._dims(other, (-1,))
            if node.op_type in ("Add", "Sub"):
                return self._shifted(node, state, flat, at)
            if node.op_type == "Div" and at:
                return None
            weight = self._emit(node.op_type, (state.weight, self._dims(flat, state.shape)))
            bias = None if state.bias is None else self._emit(node.op_type, (state.bias, flat))
            return replace(state, weight=weight, bias=bias)
        weight = self._emit("Mul", (state.weight, self._dims(scale, state.shape)))
        if state.bias is not None:
            centred = self._emit("Sub", (state.bias, node.input[3]))  # the order in which torch's exporter rounds
            self._emit("Add", (self._emit("Mul", (centred, scale)), node.input[2]))
            shift = self._emit("Add", (self._emit("Mul", (state.bias, scale)), shift))
        return replace(state, weight=weight, bias=shift)

    def _shifted(self, node: onnx.NodeProto, state: _Linear, flat: str, at: int) -> _Linear:
        if node.op_type == "Sub" and at:
            weight = self._emit("Neg", (state.weight,))
            bias = flat if state.bias is None else self._emit("Sub", (flat, state.bias))
            return replace(state, weight=weight, bias=bias)
        if state.bias is None:
            return replace(state, bias=flat if node.op_type == "Add" else self._emit("Neg", (flat,)))
        return replace(state, bias=self._emit(node.op_type, (state.bias, flat)))

    @staticmethod
    def _fits(shape: tuple[int, ...], state: _Linear) -> bool:
        if int(np.prod(shape)) == 1:
            return True
        behind = state.rank - 1
        if int(np.prod(shape)) != state.channels or len(shape) <= behind:
            return False
        return shape[len(shape) - 1 - behind] == state.channels

    def _batch_norm(self, node: onnx.NodeProto) -> tuple[str, str]:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        scale, bias, mean, variance = node.input[1:5]
        if any(n not in self.known for n in (scale, bias, mean, variance)):
            raise NotCoveredError("computed statistics")
        epsilon = np.array([attributes.get("epsilon", np.float32(1e-5))], np.float32)
        key = f"{_PREFIX}epsilon.{epsilon[0]!r}"
        if key not in self.literal:
            self._write(key, epsilon)
        root = self._emit("Sqrt", (self._emit("Add", (variance, key)),))
        factor = self._emit("Div", (scale, root))
        return factor, self._emit("Sub", (bias, self._emit("Mul", (mean, factor))))


def constants_of(model: onnx.ModelProto) -> dict[str, Array]:
    """Initializers, Constant nodes and factors of the runtime's products in the main graph, by name."""
    found = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    kinds = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    for node in model.graph.node:
        if node.op_type in TREES:
            found[f"{node.output[-1]}.weights"] = leaf_weights(
                {a.name: helper.get_attribute_value(a) for a in node.attribute}
            )
        if node.domain == "com.microsoft":
            factors = [a for a in node.attribute if a.name in ("scale", "alpha") and a.f not in (0, 1)]
            found |= {f"{node.output[0]}.{a.name}": np.array(a.f, np.float32) for a in factors}
        if node.op_type != "Constant" or not node.attribute:
            continue
        held = node.attribute[0]
        if held.name == "value":
            found[node.output[0]] = numpy_helper.to_array(held.t)
        elif held.name in kinds:
            found[node.output[0]] = np.array(helper.get_attribute_value(held), kinds[held.name])
    return found


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _wide(array: Array) -> Array:
    return array.astype(np.float64) if is_float(array.dtype) else array


def content_of(array: Array) -> tuple[str, bytes]:
    """What two constants have in common that are the same but for their shape."""
    return array.dtype.name, array.tobytes()


def find_expressions(a: Constants, b: onnx.ModelProto) -> list[RoundedConstant]:
    """For each float constant of B that is none of A: what of A it is rounded from, where that is found."""
    own = {content_of(x) for x in a.literal.values()}
    # What A has to compute another from, and B to compute with, is rather that other: a weight fresh from weight_norm
    # is its direction, bit by bit.
    parts = {n for node in a.nodes for n in node.input} - _read(a.model, a.known)
    hidden = own - {content_of(x) for n, x in a.literal.items() if n not in parts}
    read = _read(b, constants_of(b)) if hidden else set()
    by_size: dict[int, list[str]] = {}
    for name, known in a.known.items():
        if known.floats and known.size:
            by_size.setdefault(known.size, []).append(name)
    single = [n for n in by_size.get(1, ()) if not n.startswith(_PREFIX) or n in a.reciprocals]
    found, open_ones = [], {}
    for name, constant in constants_of(b).items():
        if not is_float(constant.dtype) or not constant.size:
            continue
        content = content_of(constant)
        if content in own and not (content in hidden and name in read):
            continue
        candidates = by_size.get(constant.size, [])
        best = _nearest(name, constant, a.known, [n for n in candidates if a.known[n].derived], ())
        # Products of doubles are rounded to doubles here: x / 3 * 3 may be a step beside x.
        factors = () if constant.dtype == np.float64 else single
        if best is None and content not in own:
            best = _nearest(name, constant, a.known, candidates, factors)
            if best is None and (joined := _side_by_side(constant, a, factors)):
                best = _nearest(name, constant, a.known, [joined], ())
        if best is not None:
            found.append(best)
        else:
            open_ones[name] = constant
    return found + _folded(a, open_ones, by_size)


def _read(model: onnx.ModelProto, known: Collection[str]) -> set[str]:
    """What is read by nodes that read more than what is known."""
    nodes, all_known = map(captured_names, model.graph.node), set(known)
    return {name for names in nodes if not names <= all_known for name in names}


def _folded(
    a: Constants, constants: Mapping[str, Array], by_size: Mapping[int, Sequence[str]]
) -> list[RoundedConstant]:
    """Of constants those that the runtime or ONNX's own implementation makes of A's, bit for bit."""
    close = {
        (name, candidate)
        for name, constant in constants.items()
        for candidate in by_size.get(constant.size, ())
        if a.known[candidate].derived
        and not candidate.startswith(_PREFIX)
        and np.allclose(a.known[candidate].stepwise.reshape(-1), _wide(constant).reshape(-1), rtol=1e-3, atol=1e-5)
    }
    made = a.folded(sorted({candidate for _, candidate in close})) if close else []
    found = {}
    for name, candidate in sorted(close):
        constant = constants[name]
        if any(m[candidate].dtype == constant.dtype and m[candidate].tobytes() == constant.tobytes() for m in made):
            found[name] = RoundedConstant(name, candidate, "", 0.0)
    return list(found.values())


def _nearest(
    name: str, constant: Array, known: Mapping[str, Known], candidates: Iterable[str], factors: Iterable[str]
) -> RoundedConstant | None:
    flat, kind = _wide(constant).reshape(-1), constant.dtype
    at = int(np.argmax(np.abs(flat)))
    for candidate in candidates:
        for number, stepwise in zip(*(orders(x, constant) for x in _both(known[candidate])), strict=True):
            if factors:
                for factor in factors:
                    by, rounded = (float(x.reshape(())) for x in _both(known[factor]))
                    if np.isfinite((by, number[at])).all() and abs(number[at] * by - flat[at]) <= abs(flat[at]) * 1e-6:
                        ulps = _distance(flat, number * by, (stepwise * rounded).astype(kind).astype(np.float64), kind)
                        if ulps is not None:
                            return RoundedConstant(name, candidate, factor, ulps)
            elif abs(number[at] - flat[at]) <= abs(flat[at]) * 1e-3:
                rounded = stepwise.astype(kind).astype(np.float64)
                ulps = _distance(flat, number, rounded, kind)
                if ulps is not None:
                    as_in_a = known[candidate].derived and not candidate.startswith(_PREFIX) and (flat == rounded).all()
                    return RoundedConstant(name, candidate, "", 0.0 if as_in_a else ulps)
    return None


def _side_by_side(constant: Array, a: Constants, factors: Sequence[str]) -> str:
    """The name of what joins constants of A, some times a factor, to this one; "" where none is found."""
    for axis in reversed(range(constant.ndim)):
        others = [n for k, n in enumerate(constant.shape) if k != axis]
        widths = {
            name: known.shape[axis]
            for name, known in a.known.items()
            if known.floats
            and len(known.shape) == constant.ndim
            and 0 < known.shape[axis] < constant.shape[axis]
            and [n for k, n in enumerate(known.shape) if k != axis] == others
        }
        parts: list[RoundedConstant] = []
        end = 0
        while end < constant.shape[axis]:
            found = None
            for name, width in widths.items():
                part = constant.take(range(end, min(end + width, constant.shape[axis])), axis)
                if part.shape[axis] == width:
                    found = _nearest("", part, a.known, [name], ()) or _nearest("", part, a.known, [name], factors)
                if found is not None:
                    break
            if found is None:
                break
            parts.append(found)
            end += widths[found.source]
        else:
            return a.join(parts, axis)
    return ""


def _both(known: Known) -> tuple[Array, Array]:
    return known.number, known.stepwise


def orders(array: Array, beside: Array) -> list[Array]:
    """A flat array as it is, and transposed where the other one has the transposed shape; of a square one the shape
    does not tell, so that its transpose is a constant of its own.
    """
    found = [array.reshape(-1)]
    if array.ndim == beside.ndim == 2 and array.shape == beside.shape[::-1] != array.shape:
        found.append(array.T.reshape(-1))
    return found


def _distance(constant: Array, number: Array, stepwise: Array, kind: np.dtype[np.generic]) -> float | None:
    """The largest distance in ulp; None where the constant is neither correctly rounded nor rounded step by step."""
    with np.errstate(all="ignore"):
        rounded = number.astype(kind).astype(np.float64)
        if not ((constant == rounded).all() or (constant == stepwise).all()):
            return None
        ulp = np.maximum(np.spacing(np.abs(constant).astype(np.float32 if kind != np.float64 else kind)), 1e-300)
        return float(np.max(np.abs(constant - number) / ulp, initial=0.0))


def constants_in_field(
    a: Constants, b: onnx.ModelProto, expressions: Iterable[RoundedConstant], field: Field
) -> dict[str, Array]:
    """The exact values of B's constants that have an expression, in a field."""
    known = a.elements(field, {n for item in expressions for n in (item.source, item.factor) if n})
    shapes = {name: c.shape for name, c in constants_of(b).items()}
    found = {}
    for item in expressions:
        shape = shapes[item.name]
        value = known[item.source]
        if value.ndim == 2 and value.shape != shape and value.shape == shape[::-1]:
            value = value.T
        value = value.reshape(shape)
        if item.factor:
            value = field.mul(value, known[item.factor].reshape(()))
        found[item.name] = value
    return found


__all__ = ["Constants", "constants_in_field", "content_of", "find_expressions"]
