#!/usr/bin/env python3
"""Check a certificate of onnxtool with numpy and onnx alone, by an implementation of its own.

    python check_certificate.py certificate.json a.onnx b.onnx

The certificate says that two ONNX models compute the same real function of their inputs. This program takes from it
no more than the sizes at which that is said, and how rounded constants of B follow from constants of A. Everything
else it works out again: it evaluates both models in fields GF(p) at points that it draws itself. Two rational
functions of degree d that differ agree at a random point with a probability of at most d / p (Schwartz 1980, Zippel
1979), with p about 2^31. What is not rational (Relu, exp, comparisons, sorting) is a random function of its name, its
attributes and its arguments. docs/certificates.md says what that does not cover.

Exit code 0: confirmed. 1: not confirmed, with the reason. 2: the files cannot be read.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

MOST_ULPS = 16.0  # a constant that is further from its exact value is not the same constant
SMALL = 16  # elements of a tensor whose own numbers are kept beside its elements, since they may decide a shape
BLOCK = 2**20  # products of two 16 bit numbers whose sum is exact in float64


class NotConfirmedError(Exception):
    """The certificate does not hold, or this program cannot tell."""


class Point:
    """A random prime p, and random functions. Elements are int64 in [0, p)."""

    def __init__(self) -> None:
        self.salt = secrets.token_bytes(16)
        while True:  # p = 7 mod 8: 2 has a square root; no power of two in a float's range may be 1
            self.p = p = secrets.randbelow(2**28) * 8 + 7
            prime = p > 2**30 and all(p % n for n in range(3, 2**15 + 2**14, 2))
            if prime and 1 not in (pow(2, e, p) for e in range(1, 2300)):
                break
        self.twos = np.array([pow(2, e, p) for e in range(-1200, 1100)], np.int64)
        self.named = {  # rounded constants that stand for themselves
            1 / 6: pow(6, -1, p),
            0.044715: 44715 * pow(10**6, -1, p) % p,
            2**0.5: pow(2, (p + 1) // 4, p),
            0.5**0.5: pow(pow(2, (p + 1) // 4, p), -1, p),
            (2 / np.pi) ** 0.5: self.key("sqrt(2 / pi)") % p,
        }

    def key(self, *parts: object) -> int:
        """A random whole number below 2^64 for what is named."""
        text = repr(parts).encode()
        return int.from_bytes(hashlib.blake2b(text, key=self.salt, digest_size=8).digest(), "big")

    def real(self, x: np.ndarray) -> np.ndarray:
        """Floats, exactly: each is a whole number times a power of two. Infinities and NaN are random elements."""
        x = np.asarray(x).astype(np.float64)
        if x.size == 1:
            for number, element in self.named.items():
                if float(x.reshape(())) in (number, float(np.float32(number))):
                    return np.full(x.shape, element)
        fraction, exponent = np.frexp(np.where(np.isfinite(x), x, 0.0))
        whole = np.ldexp(fraction, 53).astype(np.int64) % self.p
        found = whole * self.twos[exponent.astype(np.int64) - 53 + 1200] % self.p
        for name, where in (("nan", np.isnan(x)), ("inf", x == np.inf), ("inf", x == -np.inf)):
            if where.any():
                found = np.where(where, self.key(name) % self.p, found)
        return np.where(x == -np.inf, (self.p - found) % self.p, found)

    def mul(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The product."""
        return a * b % self.p

    def power(self, x: np.ndarray, n: int) -> np.ndarray:
        """x^n for a whole n; of 0 and a negative n a random element."""
        if n < 0:
            return np.where(x == 0, self.key("1 / 0") % self.p, self.power(x, (-n) * (self.p - 2) % (self.p - 1)))
        found, x = np.ones_like(x), np.asarray(x)
        for bit in bin(n)[:1:-1]:
            found = found * x % self.p if bit == "1" else found
            x = x * x % self.p
        return found

    def div(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The quotient."""
        return a * self.power(b, -1) % self.p

    def matmul(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """numpy's matmul: four products of halves of 16 bits, each exact in float64."""
        depth = a.shape[-1]
        if depth > BLOCK:
            rows = (slice(None),) * (b.ndim - 2) if b.ndim > 1 else ()
            cuts = [slice(k, k + BLOCK) for k in range(0, depth, BLOCK)]
            return sum(self.matmul(a[..., cut], b[(*rows, cut)]) for cut in cuts) % self.p
        halves = [(np.asarray(x & 0xFFFF, np.float64), np.asarray(x >> 16, np.float64)) for x in (a, b)]
        low = (halves[0][0] @ halves[1][0]).astype(np.int64)
        middle = (halves[0][0] @ halves[1][1] + halves[0][1] @ halves[1][0]).astype(np.int64) % self.p
        high = (halves[0][1] @ halves[1][1]).astype(np.int64) % self.p
        return (low + (middle << 16) + ((high << 16) % self.p << 16)) % self.p

    def hash(self, name: str, *arguments: np.ndarray, given: object = ()) -> np.ndarray:
        """A random function, element by element."""
        found = np.array(self.key(name, len(arguments), given), np.uint64)
        with np.errstate(over="ignore"):
            for place, x in enumerate(arguments):
                odd, plus = (np.uint64(self.key("mix", place, k) | 1) for k in range(2))
                found = (found ^ (np.asarray(x).astype(np.uint64) * odd + plus)) * np.uint64(0xFF51AFD7ED558CCD)
                found = (found ^ (found >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
                found = found ^ (found >> np.uint64(29))
        return (found % np.uint64(self.p)).astype(np.int64)

    def digest(self, x: np.ndarray, axis: int) -> np.ndarray:
        """One element for all along an axis, in their order."""
        x = np.moveaxis(x, axis, -1)
        weights = self.hash("digest", np.arange(x.shape[-1]))
        return (self.matmul(x, weights) + self.key("length", x.shape[-1]) % self.p) % self.p

    def signs(self, x: np.ndarray, name: str, given: object = ()) -> tuple[np.ndarray, np.ndarray]:
        """Of x and -x the smaller element's value of a random function, and whether that was -x: one is random."""
        turned = x > self.p // 2
        return self.hash(name, np.where(turned, self.p - x, x), given=given), turned

    def exp(self, x: np.ndarray) -> np.ndarray:
        """exp(-x) = 1 / exp(x)."""
        found, turned = self.signs(x, "exp")
        return np.where(x == 0, 1, np.where(turned, self.power(found, -1), found))

    def relu(self, x: np.ndarray) -> np.ndarray:
        """max(x, 0) - max(-x, 0) = x."""
        found, turned = self.signs(x, "relu")
        return np.where(x == 0, 0, np.where(turned, (found + x) % self.p, found))

    def root(self, x: np.ndarray) -> np.ndarray:
        """The square root."""
        return np.where(x <= 1, x, np.where(x == 2, self.named[2**0.5], self.hash("root", x)))

    def largest(self, x: np.ndarray, axes: tuple[int, ...], keep: bool) -> np.ndarray:
        """A random function of the elements along axes, in any order."""
        if all(x.shape[a] == 1 for a in axes):
            return x if keep else np.squeeze(x, axes)
        return self.hash("largest", self.hash("one of", x).sum(axes, keepdims=keep) % self.p)

    def clip(self, x: np.ndarray, low: float, high: float) -> np.ndarray:
        """Between two bounds: one is a max(., 0), both are a random function of where x lies between them."""
        bottom, top = self.real(np.array([low, low]))[0], self.real(np.array([high, high]))[0]
        if low == -np.inf and high == np.inf:
            return x
        if high == np.inf:
            return (bottom + self.relu((x - bottom) % self.p)) % self.p
        if low == -np.inf:
            return (x - self.relu((x - top) % self.p)) % self.p
        if not low < high:
            return np.full(x.shape, top)
        width = (top - bottom) % self.p
        return (bottom + self.mul(self.hash("clip", self.div((x - bottom) % self.p, width)), width)) % self.p


class Tensor:
    """Whole numbers, booleans and texts as they are, or elements of the field.

    `own`: the numbers themselves, of elements that follow from constants alone. `note`: how it was computed.
    """

    def __init__(self, data: object, dtype: object = None, own: object = None, note: tuple = ()) -> None:
        self.data = np.asarray(data)
        self.field = dtype is not None
        self.dtype = np.dtype(dtype) if self.field else self.data.dtype
        known = own is not None and np.size(own) <= SMALL
        self.own, self.note = (own if known else None) if self.field else self.data, note

    def numbers(self, what: str) -> np.ndarray:
        """The numbers themselves."""
        if self.own is None:
            raise NotConfirmedError(f"{what}: the inputs' values decide it, which is not covered")
        return np.asarray(self.own)


def is_float(dtype: np.dtype) -> bool:
    """Whether a type is one of floats, bfloat16 and float8 too."""
    return "float" in dtype.name


MOVING = (
    "Reshape Transpose Slice Squeeze Unsqueeze Expand Tile Identity Flatten Split DepthToSpace SpaceToDepth Trilu "
    "ReverseSequence GatherND Compress Gather GatherElements Dropout Resize"
)
MOVES = (
    dict.fromkeys(MOVING.split(), (0,))
    | dict.fromkeys(("Pad", "ScatterND", "ScatterElements"), (0, 2))
    | {"Where": (1, 2), "Concat": None}
)


def number_of(given: dict) -> np.ndarray:
    """What a Constant node of one attribute gives."""
    ((name, held),) = given.items()
    kinds = {"value_float": "f4", "value_floats": "f4", "value_int": "i8", "value_ints": "i8"}
    if name == "value":
        return numpy_helper.to_array(held)
    if name not in kinds:
        raise NotConfirmedError(f"Constant of {name} is not covered")
    return np.array(held, kinds[name])


def constants(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Initializers and Constant nodes of the main graph."""
    found = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    nodes = [n for n in model.graph.node if n.op_type == "Constant"]
    return found | {n.output[0]: number_of({a.name: helper.get_attribute_value(a) for a in n.attribute}) for n in nodes}


class Model:
    """A model at a point."""

    def __init__(self, proto: onnx.ModelProto, point: Point, replaced: dict[str, np.ndarray] | None = None) -> None:
        self.proto, self.point, self.replaced = proto, point, replaced or {}
        self.opsets = {o.domain: o.version for o in proto.opset_import}
        self.functions = {(f.domain, f.name, f.overload): f for f in proto.functions}

    def elements(self, tensor: Tensor) -> np.ndarray:
        """A tensor in the field."""
        if tensor.field:
            return tensor.data
        if is_float(tensor.dtype):
            return self.point.real(tensor.data)
        if tensor.dtype.kind not in "bi" and tensor.dtype != np.uint8:
            raise NotConfirmedError(f"constants of {tensor.dtype} are not covered")
        return tensor.data.astype(np.int64) % self.point.p

    def constant(self, name: str, array: np.ndarray) -> Tensor:
        """A constant, or the exact value that it is rounded from."""
        if name in self.replaced:
            return Tensor(self.replaced[name].reshape(array.shape), array.dtype, array)
        return Tensor(self.point.real(array), array.dtype, array) if is_float(array.dtype) else Tensor(array)

    def run(self, feeds: dict[str, Tensor]) -> list[Tensor]:
        """The outputs."""
        values = {t.name: self.constant(t.name, numpy_helper.to_array(t)) for t in self.proto.graph.initializer} | feeds
        for node in self.proto.graph.node:
            found = self.node(node, values, {})
            values.update((n, v) for n, v in zip(node.output, found, strict=False) if n)
        return [values[o.name] for o in self.proto.graph.output]

    def node(self, node: onnx.NodeProto, values: dict, outer: dict) -> list:
        """The outputs of a node."""
        inputs = [values[n] if n else None for n in node.input]
        given = {a.name: helper.get_attribute_value(a) for a in node.attribute if not a.ref_attr_name}
        given |= {a.name: outer[a.ref_attr_name] for a in node.attribute if a.ref_attr_name in outer}
        if node.op_type == "Constant":
            return [self.constant(node.output[0], number_of(given))]
        try:
            found = self.apply(node.op_type, inputs, given, len(node.output), node.domain, node.overload)
        except NotConfirmedError:
            raise
        except Exception as error:
            raise NotConfirmedError(f"{node.op_type} {node.name or node.output[0]}: {error}") from error
        return found if isinstance(found, list) else [found]

    def function(self, function: onnx.FunctionProto, inputs: list, given: dict) -> list:
        """The outputs of a function."""
        given = {a.name: helper.get_attribute_value(a) for a in function.attribute_proto} | given
        values = dict(zip(function.input, [*inputs, *[None] * len(function.input)], strict=False))
        before = self.opsets, self.replaced
        self.opsets, self.replaced = {o.domain: o.version for o in function.opset_import} or self.opsets, {}
        for node in function.node:
            values.update(zip(node.output, self.node(node, values, given), strict=False))
        self.opsets, self.replaced = before
        return [values.get(name) for name in function.output]

    def apply(self, kind: str, inputs: list, given: dict, count: int = 1, domain: str = "", overload: str = ""):
        """The outputs of an operator."""
        if (domain, kind, overload) in self.functions:
            return self.function(self.functions[domain, kind, overload], inputs, given)
        if domain not in ("", "ai.onnx"):
            raise NotConfirmedError(f"operators of {domain} are not covered")
        values = [v for v in inputs if v is not None]
        if kind in ("Shape", "Size"):
            return self.onnx(kind, [np.broadcast_to(np.int8(0), inputs[0].data.shape)], given, 1)
        owns = [None if v is None else v.own for v in inputs]
        makes = kind in ("ConstantOfShape", "EyeLike", "Range", "Cast", "CastLike")
        if not makes and not any(v.field or is_float(v.dtype) for v in values):
            return self.onnx(kind, owns, given, count)
        number = None
        if all(v.own is not None and v.own.size <= SMALL for v in values):
            number = self.onnx(kind, owns, given, count)
            whole = isinstance(number, Tensor) and not is_float(number.dtype)
            if whole or kind in ("Floor", "Ceil", "Round", "ConstantOfShape", "EyeLike", "Range"):
                return number if whole else self.constant("", number.data)
        found = self.moved(kind, inputs, given, count) if kind in MOVES else None
        if found is None and kind in OPERATORS:
            found = OPERATORS[kind](self, inputs, given | {"_kind": kind, "_count": count})
            if isinstance(found, Tensor) and found.dtype.kind in "iu" and OPERATORS[kind] in WRAP:
                found.data = self.point.hash("modulo", found.data, given=(found.dtype.name, kind[:6] == "Reduce"))
        if found is None:
            found = self.defined(kind, inputs, given, count)
        if isinstance(found, Tensor) and found.field and isinstance(number, Tensor) and found.own is None:
            found.own = number.data
        return found

    def onnx(self, kind: str, inputs: list, given: dict, count: int = 1):
        """By onnx's own implementation, on numbers; GatherElements, which fails there in some shapes, by numpy's."""
        if kind == "GatherElements":
            (data, index), axis = inputs, given.get("axis", 0) % inputs[0].ndim
            rows = tuple(slice(None if d == axis else n) for d, n in enumerate(index.shape))
            return Tensor(np.take_along_axis(data[rows], index % data.shape[axis], axis))
        names = ["" if v is None else f"i{k}" for k, v in enumerate(inputs)]
        node = helper.make_node(kind, names, [f"o{k}" for k in range(count)], **given)
        opsets = [helper.make_opsetid("", self.opsets.get("", self.opsets.get("ai.onnx", 1)))]
        body = helper.make_function("check", "f", [n for n in names if n], list(node.output), [node], opsets)
        feeds = {n: v for n, v in zip(names, inputs, strict=True) if n}
        results = [Tensor(x) for x in ReferenceEvaluator(body).run(None, feeds, attributes={})]
        return results[0] if count == 1 else results

    def moved(self, kind: str, inputs: list, given: dict, count: int):
        """What operators that only move elements make; None where they do more."""
        if kind == "Dropout":
            training = len(inputs) > 2 and inputs[2] is not None and bool(np.any(inputs[2].own))
            if training or count > 1:
                raise NotConfirmedError("Dropout in training is not covered")
            return inputs[0]
        mixes = kind == "Resize" and (
            given.get("mode", b"nearest") != b"nearest" or b"tf_crop_and_resize" in given.values()
        )
        if mixes or given.get("reduction", b"none") != b"none":
            return None
        of = MOVES[kind] or range(len(inputs))
        data = [k for k in of if k < len(inputs) and inputs[k] is not None]
        others = [v for k, v in enumerate(inputs) if k not in data and v is not None]
        if any(v.own is None for v in others):
            return None
        parts = [None if v is None else self.elements(v) if k in data else v.own for k, v in enumerate(inputs)]
        if kind == "Pad" and (len(parts) < 2 or (np.asarray(parts[1]) < 0).any()):
            raise NotConfirmedError("Pad before opset 11, or by less than nothing, is not covered")
        if kind == "Flatten":  # onnx's own fails where there is nothing
            shape, at = parts[0].shape, given.get("axis", 1)
            at += parts[0].ndim if at < 0 else 0
            parts[0], kind, given = parts[0].reshape(int(np.prod(shape[:at])), int(np.prod(shape[at:]))), "Identity", {}
        found = self.onnx(kind, parts, given, count)
        dtype, note = inputs[data[0]].dtype, inputs[data[0]].note
        note = note if note[:1] == ("whole",) and all(inputs[k].note[:2] == note for k in data) else ()
        results = [Tensor(x.data, dtype, None, note) for x in (found if isinstance(found, list) else [found])]
        return results if isinstance(found, list) else results[0]

    def defined(self, kind: str, inputs: list, given: dict, count: int):
        """By the formula that ONNX defines the operator by."""
        schema = onnx.defs.get_schema(kind, self.opsets.get("", 1), "")
        body = schema.function_body if schema.has_function else None
        if schema.has_context_dependent_function:
            names = ["" if v is None else f"i{k}" for k, v in enumerate(inputs)]
            node = helper.make_node(kind, names, [f"o{k}" for k in range(count)], **given)
            kinds = [None if v is None else (helper.np_dtype_to_tensor_dtype(v.dtype), v.data.shape) for v in inputs]
            types = [b"" if k is None else helper.make_tensor_type_proto(*k).SerializeToString() for k in kinds]
            body = onnx.FunctionProto.FromString(schema.get_context_dependent_function(node.SerializeToString(), types))
        if body is None or not body.node:
            raise NotConfirmedError(f"{kind} is not covered by this program")
        usual = {n: helper.get_attribute_value(d) for n, a in schema.attributes.items() if (d := a.default_value).name}
        found = self.function(body, inputs, usual | given)
        return found if count > 1 else found[0]


def arithmetic(m: Model, i: list, a: dict) -> Tensor:
    """Element by element."""
    f, kind, parts = m.point, a["_kind"], [m.elements(v) for v in i]
    x, y = parts[0], parts[-1]
    if kind in ("Sum", "Mean"):
        x = sum(parts) % f.p
        return Tensor(f.div(x, np.array(len(parts))) if kind == "Mean" else x, i[0].dtype)
    if kind == "Sub" and i[1].note[:1] == ("largest",) and i[1].note[1] is i[0].data:
        return Tensor((x - y) % f.p, i[0].dtype, None, ("shifted", x, y, i[1].note[2]))
    if kind == "Mul" and i[0] is i[1] and i[0].note[:1] == ("root",):
        return Tensor(i[0].note[1], i[0].dtype)
    if kind == "Div" and not is_float(i[0].dtype):
        return Tensor(f.hash(kind, x, y, given=i[0].dtype.name), i[0].dtype)
    found = {
        "Add": lambda: x + y,
        "Sub": lambda: x - y,
        "Mul": lambda: x * y,
        "Div": lambda: f.div(x, y),
        "And": lambda: x * y,
        "Or": lambda: x + y - f.mul(x, y),
        "Xor": lambda: x + y - 2 * f.mul(x, y),
        "Where": lambda: x * ((parts[1] - y) % f.p) + y,
    }[kind]()
    return Tensor(found % f.p, i[-1].dtype)


def compared(m: Model, i: list, a: dict) -> Tensor:
    """A comparison, by the sign of a difference."""
    f, kind = m.point, a["_kind"]
    x, y = (m.elements(v) for v in i)
    d = (y - x if kind in ("Less", "GreaterOrEqual") else x - y) % f.p
    if kind == "Equal":
        return Tensor(np.where(d == 0, 1, f.signs(d, "is zero")[0]), bool)
    positive = np.where(d == 0, 0, f.hash("positive", d))
    return Tensor(positive if kind in ("Less", "Greater") else (1 - positive) % f.p, bool)


ODD = ("Erf", "Sin", "Tan", "Atan", "Asin", "Sinh", "Asinh", "Sign", "Round")
PLAIN = ("Cos", "Acos", "Acosh", "Cosh", "Atanh", "Log", "Floor", "Ceil", "IsNaN", "IsInf")


def single(m: Model, i: list, a: dict) -> Tensor:
    """A function of one element."""
    f, kind, x = m.point, a["_kind"], m.elements(i[0])
    if kind == "Sqrt":
        return Tensor(f.root(x), i[0].dtype, None, ("root", x))
    if kind == "Exp" and i[0].note[:1] == ("shifted",):  # exp(x - max) = exp(x - x[0]) / exp(max - x[0])
        _, x, shift, axis = i[0].note
        first = np.take(x, [0], axis)
        return Tensor(f.div(f.exp((x - first) % f.p), f.exp((shift - first) % f.p)), i[0].dtype)
    if kind in ODD:  # f(-x) = -f(x)
        found, turned = f.signs(x, kind)
        return Tensor(np.where(x == 0, 0, np.where(turned, (f.p - found) % f.p, found)), i[0].dtype)
    if kind in PLAIN:
        named = sorted((k, repr(v)) for k, v in a.items() if k[0] != "_")
        return Tensor(f.hash(kind, x, given=named), bool if kind[:2] == "Is" else i[0].dtype)
    found = {
        "Neg": lambda: -x,
        "Abs": lambda: 2 * f.relu(x) - x,
        "Exp": lambda: f.exp(x),
        "Sigmoid": lambda: f.power((1 + f.exp(-x % f.p)) % f.p, -1),
        "Tanh": lambda: 2 * f.power((1 + f.exp(-2 * x % f.p)) % f.p, -1) - 1,
        "Reciprocal": lambda: f.power(x, -1),
        "Not": lambda: 1 - x,
    }[kind]()
    return Tensor(found % f.p, i[0].dtype)


def power(m: Model, i: list, _: dict) -> Tensor:
    """Whole and half exponents as products and roots."""
    f, x = m.point, m.elements(i[0])
    exponent = float(i[1].own.reshape(())) if i[1].own is not None and i[1].own.size == 1 else 0.3
    if abs(exponent) > 64 or not (2 * exponent).is_integer() or not is_float(i[0].dtype):
        return Tensor(f.hash("Pow", x, m.elements(i[1])), i[0].dtype)
    twice = int(2 * exponent)
    if twice % 4 == 0 and i[0].note[:1] == ("root",):
        found = f.power(i[0].note[1], twice // 4)
    else:
        found = f.power(x, twice // 2) if twice % 2 == 0 else f.power(f.root(x), twice)
    return Tensor(np.broadcast_to(found, np.broadcast_shapes(x.shape, i[1].data.shape)), i[0].dtype)


def bounded(m: Model, i: list, a: dict) -> Tensor:
    """Bounds that are single numbers: a clip of a clip is one clip."""
    f, kind, data = m.point, a["_kind"], i[0]
    if kind in ("Relu", "Clip"):
        given = [*i[1:], None, None][:2] if m.opsets.get("", 1) > 10 else [a.get("min"), a.get("max")]
        given = [0.0, None] if kind == "Relu" else given
        numbers = [b.numbers("bounds of Clip").reshape(-1)[0] if isinstance(b, Tensor) else b for b in given]
        low, high = (x if n is None else float(n) for n, x in zip(numbers, (-np.inf, np.inf), strict=True))
    else:
        single_ = [v for v in i if v.own is not None and v.data.size == 1]
        others = [v for v in i if v not in single_]
        if len(others) != 1 or max((v.data.ndim for v in single_), default=0) > others[0].data.ndim:
            sign = 1 if kind == "Max" else -1
            parts = np.stack(np.broadcast_arrays(*(sign * m.elements(v) % f.p for v in i)))
            if len(i) == 2:
                return Tensor(sign * (parts[1] + f.relu((parts[0] - parts[1]) % f.p)) % f.p, data.dtype)
            return Tensor(sign * f.largest(parts, (0,), False) % f.p, data.dtype)
        data, numbers = others[0], [float(v.own.reshape(())) for v in single_]
        low, high = (max(numbers), np.inf) if kind == "Max" else (-np.inf, min(numbers))
    if (
        np.isnan(low)
        or np.isnan(high)
        or any(2**53 <= abs(n) < np.inf and not is_float(data.dtype) for n in (low, high))
    ):
        raise NotConfirmedError("bounds that are not numbers, or beyond 2^53, are not covered")
    x, bottom, top = data.note[1:] if data.note[:1] == ("clip",) else (m.elements(data), -np.inf, np.inf)
    bottom, top = (min(max(b, low), high) for b in (bottom, top))
    return Tensor(f.clip(x, bottom, top), data.dtype, None, ("clip", x, bottom, top))


def cast(m: Model, i: list, a: dict) -> Tensor:
    """Exact where the wider type holds all numbers, else a random function."""
    v, f = i[0], m.point
    target = np.dtype(helper.tensor_dtype_to_np_dtype(a["to"])) if "to" in a else i[1].dtype
    source, x = v.dtype, m.elements(v)
    if not v.field and not is_float(target) and not is_float(source):
        return Tensor(v.data.astype(target))
    digits = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
    if target == source:
        return v
    if target.kind == "b":
        return Tensor(x if v.note == ("bit",) else (1 - np.where(x == 0, 1, f.signs(x, "is zero")[0])) % f.p, bool)
    if source.kind == "b" or v.note == ("bit",):
        return Tensor(x, target, None, ("bit",))
    if source.kind in "iu" and 8 * source.itemsize - (source.kind == "i") <= digits.get(target.name, 0):
        return Tensor(x, target, None, ("whole", source))
    if not v.field and is_float(target):
        return m.constant("", v.data.astype(target))
    if target.name == "float64" and digits.get(source.name, 99) < 53:
        return Tensor(x, target, None, ("wide", source))
    if v.note[:1] in (("wide",), ("whole",)) and target == v.note[1]:
        return Tensor(x, target)
    return Tensor(f.hash("Cast", x, given=(target.name, source.name, a.get("saturate", 1))), target)


def reduced(m: Model, i: list, a: dict) -> Tensor:
    """Over axes."""
    f, kind, x = m.point, a["_kind"], m.elements(i[0])
    axes = range(2, x.ndim) if kind == "GlobalAveragePool" else a.get("axes")
    if len(i) > 1 and i[1] is not None:
        axes = i[1].numbers("axes").reshape(-1)
    if axes is None or not len(axes):
        axes = () if a.get("noop_with_empty_axes") else range(x.ndim)
    axes, keep = tuple(sorted(int(k) % x.ndim for k in axes)), bool(a.get("keepdims", 1))
    if kind in ("ReduceMax", "ReduceMin"):
        sign = 1 if kind == "ReduceMax" else -1
        note = ("largest", i[0].data, axes[0]) if sign == 1 and keep and len(axes) == 1 else ()
        return Tensor(sign * f.largest(sign * x % f.p, axes, keep) % f.p, i[0].dtype, None, note)
    x = x * x % f.p if kind in ("ReduceSumSquare", "ReduceL2") else x
    found = x.sum(axes, keepdims=keep) % f.p
    if kind in ("ReduceMean", "GlobalAveragePool"):
        if not is_float(i[0].dtype):
            raise NotConfirmedError("a mean of whole numbers is not covered")
        found = f.div(found, np.array(max(x.size, 1) // max(found.size, 1)))
    return Tensor(f.root(found) if kind == "ReduceL2" else found, i[0].dtype)


def products(m: Model, i: list, a: dict) -> Tensor:
    """Matrix products."""
    f, kind, x, y = m.point, a["_kind"], m.elements(i[0]), m.elements(i[1])
    x = np.swapaxes(x, -1, -2) if a.get("transA") else x
    y = np.swapaxes(y, -1, -2) if a.get("transB") else y
    found = f.mul(f.matmul(x, y), f.real(np.float32(a.get("alpha", 1.0))))
    if kind == "Gemm" and len(i) > 2 and i[2] is not None:
        found = (found + f.mul(m.elements(i[2]), f.real(np.float32(a.get("beta", 1.0))))) % f.p
    return Tensor(found, i[0].dtype)


def windows(a: dict, size: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[list[int], list[int], list[int]]:
    """Strides, dilations and pads (before each dim, then behind each) of a convolution or pooling."""
    n = len(kernel)
    strides, dilations = list(a.get("strides") or [1] * n), list(a.get("dilations") or [1] * n)
    auto = a.get("auto_pad", b"NOTSET")
    pads = list((auto != b"VALID" and a.get("pads")) or [0] * 2 * n)
    if auto in (b"SAME_UPPER", b"SAME_LOWER"):
        dims = zip(size, strides, kernel, dilations, strict=True)
        total = [max(0, (-(-s // t) - 1) * t + (k - 1) * d + 1 - s) for s, t, k, d in dims]
        less, more = [t // 2 for t in total], [t - t // 2 for t in total]
        pads = less + more if auto == b"SAME_UPPER" else more + less
    return strides, dilations, pads


def unfolded(x: np.ndarray, kernel: tuple[int, ...], strides: list[int], dilations: list[int]) -> np.ndarray:
    """All windows: [batch, channels, *size, *kernel]."""
    spans = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True))
    n = len(kernel)
    found = np.lib.stride_tricks.sliding_window_view(x, spans, tuple(range(2, 2 + n)))
    steps = (slice(None),) * 2 + tuple(slice(None, None, s) for s in strides)
    return found[steps + tuple(slice(None, None, d) for d in dilations)]


def padded(x: np.ndarray, pads: list[int], value: int = 0) -> np.ndarray:
    """With elements around the spatial dims."""
    n = len(pads) // 2
    return np.pad(x, [(0, 0), (0, 0), *zip(pads[:n], pads[n:], strict=True)], constant_values=value)


def convolution(m: Model, i: list, a: dict) -> Tensor:
    """Products of windows with the weight."""
    f, x, w, groups = m.point, m.elements(i[0]), m.elements(i[1]), a.get("group", 1)
    kernel, n = w.shape[2:], x.ndim - 2
    strides, dilations, pads = windows(a, x.shape[2:], kernel)
    seen = unfolded(padded(x, pads), kernel, strides, dilations)
    size = seen.shape[2 : 2 + n]
    seen = np.moveaxis(seen, 1, 1 + n).reshape(x.shape[0], int(np.prod(size)), groups, -1)  # [batch, place, group, .]
    rows = w.reshape(groups, w.shape[0] // groups, -1)
    found = np.concatenate([f.matmul(seen[:, :, g], rows[g].T) for g in range(groups)], 2)
    found = np.moveaxis(found, 2, 1).reshape(x.shape[0], w.shape[0], *size)
    if len(i) > 2 and i[2] is not None:
        found = (found + m.elements(i[2]).reshape(1, -1, *[1] * n)) % f.p
    return Tensor(found, i[0].dtype)


def pooled(m: Model, i: list, a: dict) -> Tensor:
    """Sums over windows; for the maximum, of random functions of the elements."""
    f, kind, x = m.point, a["_kind"], m.elements(i[0])
    if a["_count"] > 1 or a.get("ceil_mode"):
        raise NotConfirmedError(f"{kind} with indices or ceil_mode is not covered")
    kernel = x.shape[2:] if kind == "GlobalMaxPool" else tuple(a["kernel_shape"])
    strides, dilations, pads = windows(a, x.shape[2:], kernel)
    last = tuple(range(-len(kernel), 0))
    inside = np.ones((1, 1, *x.shape[2:]), np.int64)
    if "Max" in kind:
        found = unfolded(padded(f.hash("one of", x), pads), kernel, strides, dilations).sum(last) % f.p
        if int(np.prod(kernel)) == 1 and not any(pads):
            return Tensor(unfolded(x, kernel, strides, dilations).sum(last), i[0].dtype)
        return Tensor(f.hash("largest", found), i[0].dtype)
    total = unfolded(padded(x, pads), kernel, strides, dilations).sum(last) % f.p
    count = unfolded(padded(inside, pads, a.get("count_include_pad", 0)), kernel, strides, dilations).sum(last)
    return Tensor(f.div(total, count), i[0].dtype)


def normalized(m: Model, i: list, a: dict) -> Tensor:
    """By given statistics, or those of each picture."""
    f, x = m.point, m.elements(i[0])
    if a.get("training_mode") or a["_count"] > 1 or not a.get("spatial", 1):
        raise NotConfirmedError("BatchNormalization in training, or of each place, is not covered")
    scale, bias, *statistics = (m.elements(v).reshape(1, -1, *[1] * (x.ndim - 2)) for v in i[1:])
    epsilon = f.real(np.full(2, np.float32(a.get("epsilon", 1e-5))))[0]
    if statistics:
        mean, variance = statistics
    else:
        axes, n = tuple(range(2, x.ndim)), np.array(int(np.prod(x.shape[2:])))
        mean = f.div(x.sum(axes, keepdims=True) % f.p, n)
        variance = f.div((((x - mean) % f.p) ** 2 % f.p).sum(axes, keepdims=True) % f.p, n)
    factor = f.div(scale, f.root((variance + epsilon) % f.p))
    return Tensor(((x - mean) % f.p * factor + bias) % f.p, i[0].dtype)


def softmax(m: Model, i: list, a: dict) -> Tensor:
    """exp(x - x[0]) over its sum: the same for x + c."""
    f, x, version = m.point, m.elements(i[0]), m.opsets.get("", 1)
    shape, axis = x.shape, a.get("axis", -1 if version > 12 else 1) % max(x.ndim, 1)
    if version < 13:
        x, axis = x.reshape(int(np.prod(shape[:axis])), -1), 1
    powers = f.exp((x - np.take(x, [0], axis)) % f.p) if x.shape[axis] else x
    found = f.div(powers, powers.sum(axis, keepdims=True) % f.p).reshape(shape)
    return Tensor(f.hash("Log", found, given=[]) if a["_kind"] == "LogSoftmax" else found, i[0].dtype)


def ranked(m: Model, i: list, a: dict):
    """Random functions of all numbers along an axis, in their order; of the index too for a Gather."""
    f, x, kind = m.point, m.elements(i[0]), a["_kind"]
    axis = a.get("axis", -1 if kind == "TopK" else 0) % x.ndim
    named = [(k, repr(v)) for k, v in sorted(a.items()) if k[0] != "_" and k not in ("axis", "keepdims", "k")]
    if kind == "GatherElements":
        x = x[tuple(slice(None if d == axis else n) for d, n in enumerate(i[1].data.shape))]
        return Tensor(f.hash("element", np.expand_dims(f.digest(x, axis), axis), m.elements(i[1])), i[0].dtype)
    seen = f.digest(x, axis)
    if kind in ("ArgMax", "ArgMin"):
        found = f.hash(kind, seen, given=named)
        return Tensor(np.expand_dims(found, axis) if a.get("keepdims", 1) else found, np.int64)
    if kind == "Gather":
        index = m.elements(i[1])
        columns = seen.reshape(*seen.shape[:axis], *[1] * index.ndim, *seen.shape[axis:])
        return Tensor(f.hash("row", columns, index.reshape(*index.shape, *[1] * (x.ndim - axis - 1))), i[0].dtype)
    seen = np.expand_dims(seen, axis)
    count = int(i[1].numbers("k of TopK").reshape(-1)[0]) if len(i) > 1 else a["k"]
    named += [] if a.get("sorted", 1) else [("k", count)]  # in which order, hangs on how many
    places = np.arange(count).reshape([-1 if d == axis else 1 for d in range(x.ndim)])
    values, indices = (f.hash(f"TopK {what}", seen, places, given=named) for what in ("values", "indices"))
    return [Tensor(values, i[0].dtype), Tensor(indices, np.int64)]


def quantized(m: Model, i: list, a: dict) -> Tensor:
    """Exact, but for rounding and saturation, which are a random function."""
    f, kind, x = m.point, a["_kind"], m.elements(i[0])
    if a.get("block_size") or a.get("precision") or not a.get("saturate", 1):
        raise NotConfirmedError(f"{kind} in blocks, in a precision of its own or without saturation is not covered")
    axis = a.get("axis", 1) % max(x.ndim, 1)
    shape = [-1 if d == axis else 1 for d in range(x.ndim)] if i[1].data.size > 1 else []
    scale = m.elements(i[1]).reshape(shape)
    zero = m.elements(i[2]).reshape(shape) if len(i) > 2 and i[2] is not None else np.zeros_like(scale)
    if kind == "DequantizeLinear":
        return Tensor(f.mul((x - zero) % f.p, scale), i[1].dtype)
    usual = helper.tensor_dtype_to_np_dtype(a.get("output_dtype") or onnx.TensorProto.UINT8)
    dtype = i[2].dtype if len(i) > 2 and i[2] is not None else np.dtype(usual)
    return Tensor(f.hash("round and saturate", f.div(x, scale), zero, given=dtype.name), dtype)


OPERATORS = {
    name: function
    for function, names in {
        arithmetic: "Add Sub Mul Div Sum Mean And Or Xor Where",
        compared: "Less Greater LessOrEqual GreaterOrEqual Equal",
        single: "Neg Abs Exp Sigmoid Tanh Reciprocal Sqrt Not",
        power: "Pow",
        bounded: "Relu Clip Max Min",
        cast: "Cast CastLike",
        reduced: "ReduceSum ReduceMean ReduceMax ReduceMin ReduceSumSquare ReduceL2 GlobalAveragePool",
        products: "MatMul Gemm",
        convolution: "Conv",
        pooled: "MaxPool AveragePool GlobalMaxPool",
        normalized: "BatchNormalization InstanceNormalization",
        softmax: "Softmax LogSoftmax",
        ranked: "ArgMax ArgMin TopK Gather GatherElements",
        quantized: "QuantizeLinear DequantizeLinear",
    }.items()
    for name in names.split()
} | dict.fromkeys(ODD + PLAIN, single)
WRAP = (arithmetic, single, reduced, products)  # of integers these wrap around; ONNX Runtime's reductions saturate


def exact_constants(certificate: dict, a: onnx.ModelProto, b: onnx.ModelProto, m: Model) -> tuple[dict, float]:
    """The exact values of B's rounded constants in a field, and the largest distance from them in ulp."""
    literal = constants(a)
    wide = {n: x.astype(np.float64) if is_float(x.dtype) else x for n, x in literal.items()}
    values, rounded, shaken = {n: m.constant("", x) for n, x in literal.items()}, dict(wide), dict(wide)
    own_steps = {(n.op_type, *n.input, n.output[0]) for n in a.graph.node if not n.domain}
    for step in certificate["steps"]:
        kind, name, given = step["operator"], step["output"], step["attributes"]
        if kind == "Constant":
            array = np.array(given["value"], given["dtype"])
            wide[name], values[name] = array.astype("f8" if is_float(array.dtype) else "i8"), m.constant("", array)
            rounded[name] = shaken[name] = wide[name]
            continue
        floats = kind == "Cast" and is_float(np.dtype(helper.tensor_dtype_to_np_dtype(given["to"])))
        wider = {"to": onnx.TensorProto.DOUBLE} if floats else given  # what a cast loses is part of the distance
        names = step["inputs"]
        wide[name] = m.onnx(kind, [wide[n] if n else None for n in names], wider).data
        shaken[name] = m.onnx(kind, [shaken[n] if n else None for n in names], wider).data
        if shaken[name].dtype == np.float64:  # coarser rounding may not show: numbers that cancel hide anything
            shaken[name] = shaken[name] * (1 + 2.0**-51 * np.random.default_rng().uniform(0.5, 1, shaken[name].shape))
        values[name] = m.apply(kind, [values[n] if n else None for n in names], given)
        if (kind, *names, name) in own_steps and all(n in rounded for n in names if n):  # as A itself rounds it
            number = m.onnx(kind, [rounded[n] if n else None for n in names], wider).data
            rounded[name] = number.astype(values[name].dtype).astype(number.dtype)
    held, found, most = constants(b), {}, 0.0
    for item in certificate["constants"]:
        array, source, factor = held[item["name"]], item["source"], item["factor"]
        if not is_float(array.dtype):
            raise NotConfirmedError(f"constant {item['name']!r} is of {array.dtype}, which rounds nothing")
        number, moved, element = wide[source], shaken[source], m.elements(values[source])
        if number.ndim == 2 and number.shape == array.shape[::-1] != array.shape:
            number, moved, element = number.T, moved.T, element.T
        number, moved, element = (x.reshape(array.shape) for x in (number, moved, element))
        if factor:
            number, moved = number * wide[factor].reshape(()), moved * shaken[factor].reshape(())
            element = m.point.mul(element, m.elements(values[factor]).reshape(()))
        kind = array.dtype if array.dtype in (np.float16, np.float32, np.float64) else np.dtype(np.float32)
        numbers = [number, number if factor else rounded.get(source, number).reshape(array.shape)]
        ulps = [np.maximum(np.spacing(np.abs(x).astype(kind)).astype("f8"), np.finfo(kind).tiny) for x in numbers]
        off = [np.max(np.abs(array.astype("f8") - x) / u, initial=0.0) for x, u in zip(numbers, ulps, strict=True)]
        found[item["name"]], away = element, np.max(np.abs(moved - number) / ulps[0], initial=0.0)
        most = float(np.max([most, np.fmin(*off), away * (away > 1)]))
    return found, most


def check(certificate: dict, a: onnx.ModelProto, b: onnx.ModelProto) -> str:
    """What was confirmed, in a line."""
    points, most, filled = certificate["points"], 0.0, set()
    if certificate.get("verdict") != "certified" or len(points) < 2:
        raise NotConfirmedError(f"the file says {certificate.get('verdict')!r} at {len(points)} points")
    types = {i.name: helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type) for i in a.graph.input}
    held = [{t.name: t.SerializeToString() for t in m.graph.initializer} for m in (a, b)]
    own, others = ([i.name for i in m.graph.input] for m in (a, b))
    both = {n for n in own if n in others and n in held[0] and n in held[1] and is_float(types[n]) and a.ir_version > 3}
    if any(held[0][n] != held[1][n] for n in both):
        raise NotConfirmedError("an input has another default in each")
    names, own_names = [[n for n in x if n in both or n not in t] for x, t in zip((own, others), held, strict=True)]
    for listed in points:
        point, feeds, sizes = Point(), {}, {}
        for name, dims in ((i.name, i.type.tensor_type.shape.dim) for i in a.graph.input if i.name in names):
            shape = tuple(listed["shapes"][name])
            for d, n in zip(dims, shape, strict=True):  # dims of one name are equal, unless it says nothing
                named = d.dim_param if d.dim_param[:3] not in ("", "?", "unk", "Non") else object()
                if n != (d.dim_value if d.HasField("dim_value") else sizes.setdefault(named, n)):
                    raise NotConfirmedError(f"input {name!r} is of no shape {list(shape)}")
            drawn = point.hash("draw", np.arange(int(np.prod(shape))).reshape(shape), given=name)
            feeds[name] = Tensor(drawn, types[name])
        left = Model(a, point)
        replaced, distance = exact_constants(certificate, a, b, left)
        if not distance <= MOST_ULPS:
            raise NotConfirmedError(f"a constant of B is {distance:.0f} ulp from its exact value")
        others = feeds if set(own_names) <= set(feeds) else dict(zip(own_names, feeds.values(), strict=True))
        for k, (x, y) in enumerate(zip(left.run(feeds), Model(b, point, replaced).run(others), strict=True)):
            alike = (x.data.shape, x.dtype) == (y.data.shape, y.dtype)
            if not (alike and np.array_equal(left.elements(x), left.elements(y))):
                raise NotConfirmedError(f"output {k} is not shown to be the same at {listed['shapes']}")
            filled |= {k} if x.data.size else set()
        most = max(most, distance)
    if len(filled) < len(a.graph.output):
        raise NotConfirmedError("an output has no element at any of the sizes")
    within = f", {len(certificate['constants'])} constants within {most:.3g} ulp" if certificate["constants"] else ""
    return f"confirmed at {len(points)} points of its sizes{within}"


def main(arguments: list[str]) -> int:
    """The program."""
    if len(arguments) != 3:
        print(__doc__)
        return 2
    try:
        certificate = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
        a, b = (onnx.load(path) for path in arguments[1:])
        for key, path in (("a_sha256", arguments[1]), ("b_sha256", arguments[2])):
            if certificate[key] != hashlib.sha256(Path(path).read_bytes()).hexdigest():
                raise NotConfirmedError(f"{path} is not the file that the certificate is of")
        with np.errstate(all="ignore"):
            print(check(certificate, a, b))
    except NotConfirmedError as error:
        print(f"not confirmed: {error}")
        return 1
    except (OSError, ValueError, LookupError) as error:
        print(f"error: {error}")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
