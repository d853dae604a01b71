"""What operators compute, in the field: ONNX's formulas, and those of com.microsoft that our passes write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
from onnx import helper

from onnxtool.equality.certificate import attention, encoders, trees
from onnxtool.equality.certificate.bounds import bound_of
from onnxtool.equality.certificate.field import ONE, Field
from onnxtool.equality.certificate.interpreter import Interpreter, operator
from onnxtool.equality.certificate.places import ends_of, taken_between
from onnxtool.equality.certificate.recurrent import recurrent_layer
from onnxtool.equality.certificate.values import (
    Array,
    Attributes,
    Item,
    NotCoveredError,
    Tag,
    UndefinedError,
    Value,
    exact,
    is_float,
    tag_of_each,
)

BOOL = np.dtype(bool)
operator("LSTM", "GRU", "RNN")(recurrent_layer)
operator("TreeEnsembleRegressor")(trees.regressor)
operator("TreeEnsembleClassifier")(trees.classifier)
operator("ArrayFeatureExtractor")(trees.extracted)
operator("OneHotEncoder")(encoders.one_hot)
operator("LabelEncoder")(encoders.labels)
operator("com.microsoft.MultiHeadAttention")(attention.multi_head_attention)
operator("com.microsoft.Attention")(attention.packed_attention)
operator("com.microsoft.RotaryEmbedding")(attention.rotary_embedding)


def register() -> None:
    """Importing this module has registered all operators."""


def _unary(name: str, f: Callable[[Field, Array, Attributes], Array], dtype: Any = None) -> None:
    operator(name)(lambda m, i, a: m.symbol(f(m.field, m.elements(i[0]), a), dtype or i[0].dtype))


def _float(attributes: Attributes, name: str, default: float) -> float:
    return float(np.float32(attributes.get(name, default)))


def _leaky(f: Field, x: Array, slope: Array) -> Array:
    positive = f.relu(x)
    return f.add(positive, f.mul(slope, f.sub(x, positive)))


def _elu(f: Field, x: Array, alpha: float, gamma: float = 1.0, inner: float = 1.0) -> Array:
    below = f.mul(f.sub(f.exp(f.div(x, f.from_float(inner))), ONE), f.from_float(alpha))
    return f.mul(f.from_float(gamma), f.where(f.positive(x), x, below))


def _normal(f: Field, x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    return f.layer_norm(x, axes, float(np.float32(epsilon)))


def _rms(f: Field, x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    square = f.mean(f.mul(x, x), axes, keepdims=True)
    return f.div(x, f.sqrt(f.add(square, f.from_float(np.float32(epsilon)))))


for _name in (
    *("Erf", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Floor"),
    *("Ceil", "Round", "Sign"),
):
    _unary(_name, lambda f, x, _, n=_name: f.function(n, x))  # type: ignore[misc]
_unary("Neg", lambda f, x, _: f.neg(x))
_unary("Reciprocal", lambda f, x, _: f.inverse(x))
_unary("Exp", lambda f, x, _: f.exp(x))
_unary("Tanh", lambda f, x, _: f.tanh(x))
_unary("LeakyRelu", lambda f, x, a: _leaky(f, x, f.scalar(_float(a, "alpha", 0.01))))
_unary("Elu", lambda f, x, a: _elu(f, x, _float(a, "alpha", 1.0)))
_unary("Celu", lambda f, x, a: _elu(f, x, _float(a, "alpha", 1.0), inner=_float(a, "alpha", 1.0)))
_unary("Selu", lambda f, x, a: _elu(f, x, _float(a, "alpha", 1.6732632), _float(a, "gamma", 1.050701)))
_unary("Gelu", lambda f, x, a: f.gelu(x, a.get("approximate", b"none") == b"tanh"))
_unary("QuickGelu", lambda f, x, a: f.mul(x, f.sigmoid(f.mul(x, f.scalar(_float(a, "alpha", 1.702))))))


@operator("LpNormalization")
def _lp_normalization(m: Interpreter, i: list[Item], a: Attributes) -> Value:
    """Each number over sum(|x|), or over sqrt(sum(x^2))."""
    f, x, axis = m.field, m.elements(i[0]), a.get("axis", -1)
    if a.get("p", 2) == 1:
        return m.symbol(f.div(x, f.sum(f.abs(x), axis, keepdims=True)), i[0].dtype)
    return m.symbol(f.div(x, f.sqrt(f.sum(f.mul(x, x), axis, keepdims=True))), i[0].dtype)


@operator("IsNaN", "IsInf")
def _none(m: Interpreter, i: list[Item], a: Attributes) -> Value:
    """Known not to hold where the numbers have a bound, and known where a mask alone decides."""
    asked = (a["_kind"], a.get("detect_negative", 1), a.get("detect_positive", 1))
    if bound_of(i[0]) is not None:
        return exact(np.zeros(i[0].data.shape, bool))
    if asked[0] == "IsNaN" and i[0].nan is not None:
        return m.symbol(np.broadcast_to(i[0].nan, i[0].data.shape), BOOL)
    if i[0].tag[:1] == ("lowest",):
        return m.symbol(i[0].tag[1], BOOL) if asked[:2] == ("IsInf", 1) else exact(np.zeros(i[0].data.shape, bool))
    return m.symbol(m.field.hash("not finite", m.elements(i[0]), attributes=asked), BOOL)


@operator("Sigmoid")
def _sigmoid(m: Interpreter, i: list[Item], _: Attributes) -> Value:
    return m.symbol(m.field.sigmoid(m.elements(i[0])), i[0].dtype, ("positive",))


@operator("Abs")
def _abs(m: Interpreter, i: list[Item], _: Attributes) -> Value:
    return i[0] if i[0].tag == ("positive",) else m.symbol(m.field.abs(m.elements(i[0])), i[0].dtype)


def _binary(name: str, f: Callable[[Field, Array, Array], Array], dtype: Any = None) -> None:
    operator(name)(lambda m, i, _: m.symbol(f(m.field, m.elements(i[0]), m.elements(i[1])), dtype or i[0].dtype))


_binary("Add", lambda f, a, b: f.add(a, b))
_binary("And", lambda f, a, b: f.mul(a, b), BOOL)
_binary("Or", lambda f, a, b: f.sub(f.add(a, b), f.mul(a, b)), BOOL)
_binary("Xor", lambda f, a, b: f.sub(f.add(a, b), f.mul(f.scalar(2.0), f.mul(a, b))), BOOL)
_binary("PRelu", _leaky)


@operator("Equal")
def _equal(m: Interpreter, i: list[Item], _: Attributes) -> Value:
    """Whether a = b; of floats, x = x is whether x is a number."""
    x, y, f = m.elements(i[0]), m.elements(i[1]), m.field
    found = f.equal(x, y)
    if is_float(i[0].dtype) and i[0].tag[:1] not in (("whole",), ("bool",)) and bound_of(i[0]) is None:
        found = np.where(x == y, f.sub(ONE, _is_nan(f, x)), found)
    return m.symbol(found, BOOL)


def _is_nan(f: Field, x: Array) -> Array:
    return f.hash("not finite", x, attributes=("IsNaN", 1, 1))


@operator("Less", "Greater", "LessOrEqual", "GreaterOrEqual")
def _compared(m: Interpreter, i: list[Item], a: Attributes) -> Value:
    """Whether d > 0, or not -d > 0; d is kept for a Where, of integers with both sides."""
    x, y, f = m.elements(i[0]), m.elements(i[1]), m.field
    d = f.sub(y, x) if a["_kind"].startswith("Less") else f.sub(x, y)
    equal = a["_kind"].endswith("Equal")
    found = f.sub(ONE, f.positive(f.neg(d))) if equal else f.positive(d)
    return m.symbol(found, BOOL, ("above", d, *([] if is_float(i[0].dtype) else np.broadcast_arrays(x, y))))


@operator("Not")
def _not(m: Interpreter, i: list[Item], _: Attributes) -> Value:
    f, tag = m.field, i[0].tag
    turned = ("above", f.neg(tag[1]), *tag[2:]) if tag[:1] == ("above",) else ()
    return m.symbol(f.sub(ONE, m.elements(i[0])), BOOL, turned)


@operator("Mod", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "StringConcat")
def _hashed(m: Interpreter, i: list[Item], a: Attributes) -> Value:
    kind = i[0].dtype.name if a.get("direction") == b"LEFT" else ""  # what is shifted out hangs on the type
    attributes = (a.get("fmod", 0), a.get("direction"), kind)
    return m.symbol(m.field.hash(a["_kind"], m.elements(i[0]), m.elements(i[1]), attributes=attributes), i[0].dtype)


@operator("StringNormalizer")
def _normalized(m: Interpreter, i: list[Item], a: Attributes) -> Any:
    """Each text by itself. Where words are left out, the data decide the shape."""
    if a.get("stopwords") or a.get("is_case_sensitive", 0) not in (0, 1):  # which says how words are found
        raise NotCoveredError("StringNormalizer with stopwords")
    change = a.get("case_change_action", b"NONE")
    if change == b"NONE":
        return i[0]
    return m.symbol(m.field.hash("case", m.elements(i[0]), attributes=(change, a.get("locale"))), i[0].dtype)


@operator("Sub")
def _sub(m: Interpreter, i: list[Item], _: Attributes) -> Value:
    x, y = m.elements(i[0]), m.elements(i[1])
    shifted = i[1].tag[:3] == ("max", "Max", x.shape) and len(i[1].tag[3]) == 1
    return m.symbol(m.field.sub(x, y), i[0].dtype, ("shifted", x, y, *i[1].tag[3]) if shifted else ())


@operator("Exp")
def _exp(m: Interpreter, i: list[Item], _: Attributes) -> Value:
    if i[0].tag[:1] == ("log",):
        return m.symbol(i[0].tag[1], i[0].dtype)
    x, shifted = m.elements(i[0]), i[0].tag[:1] == ("shifted",)
    return m.symbol(m.field.shifted_exp(*i[0].tag[1:]) if shifted else m.field.exp(x), i[0].dtype, ("power", x))


@operator("Log")
def _log(m: Interpreter, i: list[Item], _: Attributes) -> Value:
    """Of a sum of powers, and of a softmax, as ReduceLogSumExp and LogSoftmax are made."""
    x = m.elements(i[0])
    return m.symbol(i[0].tag[1] if i[0].tag[:1] == ("logarithm",) else m.field.function("Log", x), i[0].dtype)


@operator("Mul")
def _mul(m: Interpreter, i: list[Item], _: Attributes) -> Value:
    if i[0] is i[1] and i[0].tag[:1] == ("root",):
        return m.symbol(i[0].tag[1], i[0].dtype)
    return m.symbol(m.field.mul(m.elements(i[0]), m.elements(i[1])), i[0].dtype)


@operator("Div")
def _div(m: Interpreter, i: list[Item], _: Attributes) -> Value:
    x, y = m.elements(i[0]), m.elements(i[1])
    whole = not is_float(i[0].dtype)
    return m.symbol(m.field.hash("whole quotient", x, y) if whole else m.field.div(x, y), i[0].dtype)


@operator("Sqrt")
def _sqrt(m: Interpreter, i: list[Item], _: Attributes) -> Value:
    x = m.elements(i[0])
    return m.symbol(m.field.sqrt(x), i[0].dtype, ("root", x))


@operator("Pow")
def _pow(m: Interpreter, i: list[Item], _: Attributes) -> Value:
    x, f = m.elements(i[0]), m.field
    exponents = np.unique(i[1].data) if i[1].exact else np.array([0.3, 0.7])
    if (
        is_float(i[0].dtype)
        and len(exponents) == 1
        and abs(exponents[0]) <= 64
        and float(exponents[0] * 2).is_integer()
    ):
        twice = int(exponents[0] * 2)
        shape = np.broadcast_shapes(x.shape, i[1].data.shape)
        if twice % 2 == 0 and i[0].tag[:1] == ("root",) and twice % 4 == 0:
            found = f.power(i[0].tag[1], twice // 4)
        else:
            found = f.power(x, twice // 2) if twice % 2 == 0 else f.power(f.sqrt(x), twice)
        return m.symbol(np.broadcast_to(found, shape), i[0].dtype)
    kind = "" if is_float(i[0].dtype) else i[0].dtype.name  # integers are rounded to their type, or wrap around
    return m.symbol(f.hash("Pow", x, m.elements(i[1]), attributes=kind), i[0].dtype)


@operator("Sum", "Mean")
def _sum(m: Interpreter, i: list[Item], a: Attributes) -> Value:
    found = m.elements(i[0])
    for v in i[1:]:
        found = m.field.add(found, m.elements(v))
    if a["_kind"] == "Mean":
        found = m.field.div(found, m.field.from_int(len(i)))
    return m.symbol(found, i[0].dtype)


@operator("Relu", "Clip", "Max", "Min")
def _clip(m: Interpreter, i: list[Item], a: Attributes) -> Any:
    """Bounds that are single numbers are kept: a clip of a clip is one clip."""
    f, kind, data = m.field, a["_kind"], i[0]
    low: float | None
    high: float | None
    if any(v.exact and not is_float(v.dtype) and np.any(np.abs(v.data.astype(object)) > 2**53) for v in i if v):
        raise NotCoveredError(f"{kind} by integers beyond 2^53")
    if kind == "Relu":
        low, high = 0.0, None
    elif kind == "Clip":
        bounds = [a.get("min"), a.get("max")] if a["_version"] < 11 else [*i[1:], None, None][:2]
        if any(isinstance(b, Value) and not b.exact for b in bounds):
            found = m.elements(data)
            for b, g in zip(bounds, (f.maximum, f.minimum), strict=True):
                found = found if b is None else g(found, m.elements(b))
            return m.symbol(found, data.dtype)
        low, high = (None if b is None else float(b.data.reshape(())) if isinstance(b, Value) else b for b in bounds)
    else:
        constants = [v for v in i if v.exact and v.data.size == 1]
        others = [v for v in i if not (v.exact and v.data.size == 1)]
        if len(others) != 1 or not constants or max(v.data.ndim for v in constants) > others[0].data.ndim:
            return _extreme(m, i, kind)
        data, numbers = others[0], [float(v.data.reshape(())) for v in constants]
        low, high = (max(numbers), None) if kind == "Max" else (None, min(numbers))
    x, bottom, top = m.elements(data), -np.inf, np.inf
    if data.tag[:1] == ("clip",):
        x, bottom, top = data.tag[1:]
    low = -np.inf if low is None or np.isnan(low) else low
    high = np.inf if high is None or np.isnan(high) else high
    bottom, top = (min(max(b, low), high) for b in (bottom, top))
    return m.symbol(f.clip(x, bottom, top), data.dtype, ("clip", x, bottom, top))


def _extreme(m: Interpreter, i: list[Item], kind: str) -> Value:
    """The largest of two, or of more in any order."""
    f = m.field
    parts = [m.elements(v) if kind == "Max" else f.neg(m.elements(v)) for v in i]
    if len(parts) == 2:
        found = f.maximum(*parts)
    elif len(parts) == 1:
        found = parts[0]
    else:
        found = f.reduce_max(np.stack(np.broadcast_arrays(*parts)), 0)
    return m.symbol(found if kind == "Max" else f.neg(found), i[0].dtype)


@operator("Where")
def _where(m: Interpreter, i: list[Item], _: Attributes) -> Value:
    """Where(d > 0, a, b) = b + k max(d, 0) if a - b = k d: then it is b for d = 0, above or not.

    A difference of integers may wrap around, so that they have to be what is compared themselves.
    """
    f, (condition, a, b) = m.field, (m.elements(v) for v in i)
    compared = i[0].tag[1:] if i[0].tag[:1] == ("above",) else ()
    if compared:
        d, (chosen, other) = compared[0], (m.elements(m.modulo(v)) for v in i[1:])
        factor = f.div(f.sub(chosen, other), d)
        held = is_float(i[1].dtype) or _are(compared[1:], *np.broadcast_arrays(chosen, other))
        if held and m.is_constant(factor):
            return m.symbol(f.add(f.mul(factor, f.relu(d)), other), i[1].dtype)
    return m.symbol(f.where(condition, a, b), i[1].dtype)


def _are(sides: Sequence[Array], a: Array, b: Array) -> bool:
    """Whether two arrays are the two of a comparison, in any order."""
    return any(len(s) == 2 and np.array_equal(a, s[0]) and np.array_equal(b, s[1]) for s in (sides, sides[::-1]))


@operator("Cast", "CastLike", alike=True)
def _cast(m: Interpreter, i: list[Item], a: Attributes) -> Any:
    target = np.dtype(helper.tensor_dtype_to_np_dtype(a["to"])) if "to" in a else i[1].dtype
    value, source = i[0], i[0].dtype
    if value.exact:
        return m.by_reference("Cast", [value], {"to": helper.np_dtype_to_tensor_dtype(target)})
    if target == source:
        return value
    value, f = m.modulo(value), m.field
    x = value.data
    if target == BOOL:
        return m.symbol(x if value.tag[:1] == ("bool",) else f.sub(ONE, f.equal(x, np.zeros_like(x))), target)
    if source == BOOL:
        m.note_choices(x, (0.0, 1.0))
        return m.symbol(x, target, ("bool",))
    whole = value.tag[1] if value.tag[:1] == ("whole",) and not is_float(source) else source
    if value.tag[:1] == ("bool",) or _holds(target, whole):
        return m.symbol(x, target, value.tag or ("whole", source))
    if is_float(source) and is_float(target):
        if _widens(target, source):
            return m.symbol(x, target, ("wide", source))
        if value.tag[:1] == ("wide",) and _widens(target, value.tag[1]):
            return m.symbol(x, target)
    elif not is_float(source) and target.itemsize > source.itemsize and target.kind == "i":
        return m.symbol(x, target, value.tag or ("whole", source))
    elif value.tag[:1] == ("whole",) and target.kind == value.tag[1].kind and target.itemsize >= value.tag[1].itemsize:
        return m.symbol(x, target)
    return m.symbol(f.hash("Cast", x, attributes=(target.name, whole.name, a.get("saturate", 1))), target)


def _holds(target: np.dtype[Any], source: np.dtype[Any]) -> bool:
    """Whether a float holds every integer of a type."""
    bits = 8 * source.itemsize - (source.kind == "i")
    return source.kind in "iu" and is_float(target) and bits <= {"float64": 53, "float32": 24}.get(target.name, 0)


def _widens(target: np.dtype[Any], source: np.dtype[Any]) -> bool:
    """Whether a float type holds all finite numbers of another."""
    wide, narrow = (ml_dtypes.finfo(kind) for kind in (target, source))  # type: ignore[no-untyped-call]
    smallest = (w.minexp - w.nmant for w in (wide, narrow))
    return bool(wide.nmant >= narrow.nmant and wide.maxexp >= narrow.maxexp and next(smallest) <= next(smallest))


def _axes(m: Interpreter, i: list[Item], a: Attributes, rank: int) -> tuple[int, ...]:
    listed, none_means_none = a.get("axes"), a.get("noop_with_empty_axes", 0) == 1
    if listed is None and len(i) > 1 and i[1] is not None:
        listed = m.numbers(i[1], "which dims are reduced").reshape(-1).tolist()
    if not listed:
        return () if none_means_none else tuple(range(rank))
    return tuple(sorted(int(axis) % rank for axis in listed))


@operator(
    *(f"Reduce{k}" for k in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"))
)
def _reduce(m: Interpreter, i: list[Item], a: Attributes) -> Value:
    f, x, kind = m.field, m.elements(i[0]), a["_kind"][6:]
    axes, keep = _axes(m, i, a, x.ndim), a.get("keepdims", 1) == 1
    if kind in ("Mean", "L2", "LogSum", "LogSumExp") and not is_float(i[0].dtype):
        raise NotCoveredError(f"Reduce{kind} of integers, which rounds to one")
    tag: tuple[Any, ...] = ()
    if kind in ("Max", "Min"):
        return _most(m, i[0], kind, axes, keep)
    if kind == "Prod":
        found = x
        for axis in reversed(axes):
            found = f.product(found, axis, keep)
        return m.symbol(_saturated(f, found, x, i[0]), i[0].dtype)
    if kind == "LogSumExp" or (kind == "Sum" and i[0].tag[:1] == ("power",)):
        logarithm = f.log_sum_exp(x if kind == "LogSumExp" else i[0].tag[1], axes, keep)
        if kind == "LogSumExp":
            return m.symbol(logarithm, i[0].dtype)
        tag = ("logarithm", logarithm)
    if kind in ("L2", "SumSquare"):
        x = f.mul(x, x)
    elif kind == "L1":
        x = f.abs(x)
    found = f.mean(x, axes, keep) if kind == "Mean" else _saturated(f, f.sum(x, axes, keep), x, i[0])
    if kind == "L2":
        return m.symbol(f.sqrt(found), i[0].dtype, ("root", found))
    return m.symbol(f.function("Log", found) if kind == "LogSum" else found, i[0].dtype, tag)


def _saturated(f: Field, found: Array, x: Array, given: Value) -> Array:
    """What a reduction gives of integers: ONNX Runtime 1.31 sums in a wider type, and keeps to the bounds of theirs,
    which as many zeros and ones as are there may not reach.
    """
    dtype = given.dtype
    few = is_float(dtype) or (given.tag[:1] == ("bool",) and x.size <= _limits(dtype)[1] * found.size)
    if few or (f.has_values and np.array_equal(found.reshape(-1), x.reshape(-1))):
        return found
    return f.hash("saturated", found, attributes=dtype.name)


def _most(m: Interpreter, data: Value, kind: str, axes: tuple[int, ...], keep: bool) -> Value:
    """The largest or smallest along axes; of those of others, all that these were taken of count."""
    f, x = m.field, m.elements(data)
    one = data.tag[4] if data.tag[:2] == ("max", kind) else f.hash("one of", x if kind == "Max" else f.neg(x))
    total = f.sum(one, axes, keep)
    found = f.hash("max", total)
    found = found if kind == "Max" else f.neg(found)
    if all(x.shape[a] == 1 for a in axes):  # of single elements themselves
        found = x if keep else np.squeeze(x, axes)
    return m.symbol(found, data.dtype, ("max", kind, x.shape, axes if keep else (), total))


@operator("CumSum")
def _cumsum(m: Interpreter, i: list[Item], a: Attributes) -> Value:
    axis = int(m.numbers(i[1], "the axis of CumSum").reshape(()))
    x = np.moveaxis(m.elements(i[0]), axis, -1)
    x = x[..., ::-1] if a.get("reverse", 0) else x
    found = m.field.cumsum(x)
    found = m.field.sub(found, x) if a.get("exclusive", 0) else found
    return m.symbol(np.moveaxis(found[..., ::-1] if a.get("reverse", 0) else found, -1, axis), i[0].dtype)


@operator("MatMul", "FusedMatMul", "MatMulInteger")
def _matmul(m: Interpreter, i: list[Item], a: Attributes) -> Value:
    x, y = m.elements(i[0]), m.elements(i[1])
    f, dtype = m.field, i[0].dtype
    if a["_kind"] == "MatMulInteger":
        x, y = (
            v if z is None else f.sub(v, _beside(m.elements(z), v, -2 + k))
            for k, v, z in zip((0, 1), (x, y), [*i[2:], None, None], strict=False)
        )
        dtype = np.dtype(np.int32)
    if a.get("transBatchA", 0) or a.get("transBatchB", 0):
        raise NotCoveredError("FusedMatMul with transposed batches")
    x = np.swapaxes(x, -1, -2) if a.get("transA", 0) else x
    y = np.swapaxes(y, -1, -2) if a.get("transB", 0) else y
    _meet(m, (i[0], x), (i[1], y))
    found = f.matmul(x, y)
    return m.symbol(f.mul(found, m.factor(a, "alpha")), dtype)


def _meet(m: Interpreter, left: tuple[Value, Array], right: tuple[Value, Array]) -> None:
    """Note what of the constant one of two factors is read."""
    if right[0].exact and not left[0].exact:
        m.meet(left[1], -1)
    elif left[0].exact and not right[0].exact:
        m.meet(right[1], max(right[1].ndim - 2, 0))


def _beside(z: Array, x: Array, axis: int, block: int = 0) -> Array:
    """A zero point or scale of each channel of an axis, or of a block of them, with the rank of what it belongs to."""
    if block:
        return np.repeat(z, block, axis).take(range(x.shape[axis]), axis)
    if z.ndim != 1 or z.size == 1:
        return z.reshape(()) if z.size == 1 else z
    shape = [1] * x.ndim
    shape[axis] = z.size
    return z.reshape(shape)


@operator("Gemm")
def _gemm(m: Interpreter, i: list[Item], a: Attributes) -> Value:
    x, y, f = m.elements(i[0]), m.elements(i[1]), m.field
    x, y = x.T if a.get("transA", 0) else x, y.T if a.get("transB", 0) else y
    _meet(m, (i[0], x), (i[1], y))
    found = f.matmul(x, y)
    alpha, beta = a.get("alpha", 1.0), a.get("beta", 1.0)
    if alpha != 1.0:
        found = f.mul(found, f.scalar(alpha))
    if len(i) > 2 and i[2] is not None:
        found = f.add(found, f.mul(m.elements(i[2]), f.from_float(beta)))
    return m.symbol(found, i[0].dtype)


@operator("Einsum")
def _einsum(m: Interpreter, i: list[Item], a: Attributes) -> Value:
    equation, f = a["equation"].decode(), m.field
    return m.symbol(f.einsum(equation, *(m.elements(v) for v in i)), i[0].dtype)


def _windows(a: Attributes, size: Sequence[int], kernel: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """Strides, dilations and pads of a convolution or pooling."""
    rank = len(kernel)
    if list(a.get("kernel_shape") or kernel) != list(kernel):
        raise NotCoveredError(f"kernel_shape {a['kernel_shape']} of a weight of {list(kernel)}")
    strides, dilations = list(a.get("strides") or [1] * rank), list(a.get("dilations") or [1] * rank)
    pads, auto = list(a.get("pads") or [0] * 2 * rank), a.get("auto_pad", b"NOTSET")
    if auto == b"VALID":
        pads = [0] * 2 * rank
    elif auto in (b"SAME_UPPER", b"SAME_LOWER"):
        wanted = [-(-n // s) for n, s in zip(size, strides, strict=True)]
        total = [
            max(0, (w - 1) * s + (k - 1) * d + 1 - n)
            for w, s, k, d, n in zip(wanted, strides, kernel, dilations, size, strict=True)
        ]
        small, large = [t // 2 for t in total], [t - t // 2 for t in total]
        pads = small + large if auto == b"SAME_UPPER" else large + small
    return strides, dilations, pads


@operator("Conv", "FusedConv", "ConvInteger")
def _conv(m: Interpreter, i: list[Item], a: Attributes) -> Any:
    f, x, w = m.field, m.elements(i[0]), m.elements(i[1])
    whole = a["_kind"] == "ConvInteger"
    if whole:
        zeros = [*i[2:], None, None]
        x = x if zeros[0] is None else f.sub(x, m.elements(zeros[0]).reshape(()))
        w = w if zeros[1] is None else f.sub(w, _beside(m.elements(zeros[1]), w, 0))
    windows = _windows(a, x.shape[2:], w.shape[2:])
    m.reach(x.shape[2:], w.shape[2:], windows)
    found = f.conv(x, w, *windows, a.get("group", 1))
    if not whole and len(i) > 2 and i[2] is not None:
        found = f.add(found, m.elements(i[2]).reshape(1, -1, *[1] * (x.ndim - 2)))
    if len(i) > 3 and not whole and i[3] is not None:
        found = f.add(found, m.elements(i[3]))
    value = m.symbol(found, np.int32 if whole else i[0].dtype)
    if a["_kind"] != "FusedConv" or not a.get("activation"):
        return value
    parameters = a.get("activation_params") or []
    kind = a["activation"].decode()
    if kind == "Clip":
        return _clip(m, [value, *(exact(np.float32(p)) for p in parameters)], {"_kind": kind, "_version": 13})
    names = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta")}.get(kind, ())
    if kind not in ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid"):
        raise NotCoveredError(f"FusedConv with {kind}")
    return m.apply(kind, [value], dict(zip(names, parameters, strict=False)))


@operator("ConvTranspose")
def _conv_transpose(m: Interpreter, i: list[Item], a: Attributes) -> Value:
    f, x, w = m.field, m.elements(i[0]), m.elements(i[1])
    rank, kernel, given = x.ndim - 2, w.shape[2:], a.get("output_shape")
    if list(a.get("kernel_shape") or kernel) != list(kernel):
        raise NotCoveredError(f"kernel_shape {a['kernel_shape']} of a weight of {list(kernel)}")
    strides, dilations = list(a.get("strides") or [1] * rank), list(a.get("dilations") or [1] * rank)
    extra = list(a.get("output_padding") or [0] * rank)
    full = [
        (n - 1) * s + e + (k - 1) * d + 1
        for n, s, e, k, d in zip(x.shape[2:], strides, extra, kernel, dilations, strict=True)
    ]
    pads, auto = list(a.get("pads") or [0] * 2 * rank), a.get("auto_pad", b"NOTSET")
    if given or auto in (b"SAME_UPPER", b"SAME_LOWER"):
        wanted = list(given)[-rank:] if given else [n * s for n, s in zip(x.shape[2:], strides, strict=True)]
        total = [max(0, n - w) for n, w in zip(full, wanted, strict=True)]
        upper = auto == b"SAME_UPPER"
        first = [t // 2 if upper else t - t // 2 for t in total]
        pads = first + [t - s for t, s in zip(total, first, strict=True)]
        size = wanted  # beyond the last window there is the bias alone
    else:
        size = [n - pads[k] - pads[rank + k] for k, n in enumerate(full)]
    found = f.conv_transpose(x, w, strides, dilations, pads, size, a.get("group", 1))
    if len(i) > 2 and i[2] is not None:
        found = f.add(found, m.elements(i[2]).reshape(1, -1, *[1] * rank))
    return m.symbol(found, i[0].dtype)


@operator("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool")
def _global_pool(m: Interpreter, i: list[Item], a: Attributes) -> Value:
    """A pooling whose window is all of its input."""
    f, x, kind = m.field, m.elements(i[0]), a["_kind"]
    axes, order = tuple(range(2, x.ndim)), int(a.get("p", 2))
    if kind == "GlobalMaxPool":
        return _most(m, i[0], "Max", axes, True)
    if kind == "GlobalAveragePool":
        return m.symbol(f.mean(x, axes, keepdims=True), i[0].dtype)
    return m.symbol(_root(f, f.sum(_power(f, x, order), axes, keepdims=True), order), i[0].dtype)


@operator("MaxPool", "AveragePool", "LpPool")
def _pool(m: Interpreter, i: list[Item], a: Attributes) -> Any:
    """A pooling: a sum over windows; of hashes, for the maximum. Where it was found hangs on the whole tensor."""
    f, x, kind, kernel = m.field, m.elements(i[0]), a["_kind"], list(a["kernel_shape"])
    if a["_outputs"] > 1:
        own = {name: value for name, value in a.items() if not name.startswith("_")}
        return _pool(m, i, {**a, "_outputs": 1}), m.opaque(kind, i, own, 2, "", by_rows=False)[1]
    rank, order = len(kernel), int(a.get("p", 2))
    strides, dilations, pads = _windows(a, x.shape[2:], kernel)
    ends = list(pads[rank:])
    if a.get("ceil_mode", 0) == 1:
        for d in range(rank):
            reach = dilations[d] * (kernel[d] - 1) + 1
            free = x.shape[2 + d] + pads[d] + pads[rank + d] - reach
            steps = -(-free // strides[d])
            if steps * strides[d] >= x.shape[2 + d] + pads[d]:
                steps -= 1
            ends[d] += max(0, steps * strides[d] - free)
    summand = f.hash("one of", x) if kind == "MaxPool" else _power(f, x, order) if kind == "LpPool" else x
    summand = f.pad(summand, [(0, 0), (0, 0), *((pads[d], ends[d]) for d in range(rank))])
    size = [(n - dilations[d] * (kernel[d] - 1) - 1) // strides[d] + 1 for d, n in enumerate(summand.shape[2:])]
    if min(size, default=1) < bool(x.size):
        raise UndefinedError(f"{kind} whose window is larger than its input")  # each runtime does something else
    m.reach(x.shape[2:], kernel, (strides, dilations, pads))
    if kind == "MaxPool" and int(np.prod(kernel)) == 1 and not any(pads):  # it moves elements
        one = f.window((0,) * rank, size, strides, dilations)
        return m.symbol(x[(slice(None), slice(None), *one)], i[0].dtype)
    total, counts_padding = f.window_sum(summand, kernel, size, strides, dilations), a.get("count_include_pad", 0)
    if kind == "MaxPool":
        return m.symbol(f.hash("max", total), i[0].dtype)
    if kind == "LpPool":
        return m.symbol(_root(f, total, order), i[0].dtype)
    if f.has_values:
        padded = [(pads[d], pads[rank + d]) for d in range(rank)]
        inside = np.pad(np.ones(x.shape[2:], np.int64), padded, constant_values=counts_padding)
        inside = np.pad(inside, [(0, ends[d] - pads[rank + d]) for d in range(rank)])
        count = f.window_sum(f.from_int(inside[None, None]), kernel, size, strides, dilations)
        total = f.mul(total, f.inverse(count))
    return m.symbol(total, i[0].dtype)


def _power(f: Field, x: Array, order: int) -> Array:
    """|x| to a power."""
    return f.power(f.abs(x), order) if order % 2 else f.power(x, order)


def _root(f: Field, x: Array, order: int) -> Array:
    """The root that takes back a power."""
    return x if order == 1 else f.sqrt(x) if order == 2 else f.hash("root", x, attributes=order)


@operator("BatchNormalization")
def _batch_norm(m: Interpreter, i: list[Item], a: Attributes) -> Value:
    if a["_outputs"] > 1:
        raise NotCoveredError("BatchNormalization in training")
    f, x = m.field, m.elements(i[0])
    shape = (1, -1, *[1] * (x.ndim - 2))
    scale, bias, mean, variance = (m.elements(v).reshape(shape) for v in i[1:5])
    root = f.sqrt(f.add(variance, f.from_float(_float(a, "epsilon", 1e-5))))
    return m.symbol(f.add(f.mul(f.sub(x, mean), f.div(scale, root)), bias), i[0].dtype)


@operator("InstanceNormalization")
def _instance_norm(m: Interpreter, i: list[Item], a: Attributes) -> Value:
    f, x = m.field, m.elements(i[0])
    shape = (1, -1, *[1] * (x.ndim - 2))
    found = _normal(f, x, tuple(range(2, x.ndim)), a.get("epsilon", 1e-5))
    return m.symbol(f.add(f.mul(found, m.elements(i[1]).reshape(shape)), m.elements(i[2]).reshape(shape)), i[0].dtype)


@operator("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
def _layer_norm(m: Interpreter, i: list[Item], a: Attributes) -> Any:
    f, x = m.field, m.elements(i[0])
    axes, epsilon = tuple(range(a.get("axis", -1) % x.ndim, x.ndim)), a.get("epsilon", 1e-5)
    norm = _normal if a["_kind"] == "LayerNormalization" else _rms
    found = f.mul(norm(f, x, axes, epsilon), m.elements(i[1]))
    found = f.add(found, m.elements(i[2])) if len(i) > 2 and i[2] is not None else found
    if a["_outputs"] == 1:
        return m.symbol(found, i[0].dtype)
    mean = f.mean(x, axes, keepdims=True)
    centred = f.sub(x, mean) if norm is _normal else x
    variance = f.mean(f.mul(centred, centred), axes, keepdims=True)
    deviation = f.inverse(f.sqrt(f.add(variance, f.from_float(np.float32(epsilon)))))
    parts = [mean, deviation] if norm is _normal else [deviation]
    return tuple(m.symbol(part, i[0].dtype) for part in (found, *parts))


@operator("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def _skip_norm(m: Interpreter, i: list[Item], a: Attributes) -> Any:
    f, x = m.field, _added(m, i[0], i[1])
    simple = "Simplified" in a["_kind"]
    beta, bias = (None, [*i, None][3]) if simple else ([*i, None, None][3], [*i, None, None][4])
    x = x if bias is None else f.add(x, m.elements(bias))
    norm = _rms if simple else _normal
    found = f.mul(norm(f, x, (x.ndim - 1,), a.get("epsilon", 1e-12)), m.elements(i[2]))
    found = found if beta is None else f.add(found, m.elements(beta))
    if a["_outputs"] == 1:
        return m.symbol(found, i[0].dtype)
    return m.symbol(found, i[0].dtype), None, None, m.symbol(x, i[0].dtype)


def _added(m: Interpreter, a: Value, b: Value) -> Array:
    """The sum of two tensors."""
    return m.field.add(m.elements(a), m.elements(b))


@operator("BiasGelu", "FastGelu")
def _bias_gelu(m: Interpreter, i: list[Item], a: Attributes) -> Value:
    x = _added(m, i[0], i[1]) if len(i) > 1 and i[1] is not None else m.elements(i[0])
    return m.symbol(m.field.gelu(x, a["_kind"] == "FastGelu"), i[0].dtype)


@operator("Softmax", "LogSoftmax")
def _softmax(m: Interpreter, i: list[Item], a: Attributes) -> Value:
    f, x = m.field, m.elements(i[0])
    axis = a.get("axis", 1 if a["_version"] < 13 else -1) % max(x.ndim, 1)
    rows = x
    if a["_version"] < 13:
        rows, axis = x.reshape(int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:]))), 1
    found = f.softmax(rows, axis).reshape(x.shape)
    logarithm = f.sub(rows, f.log_sum_exp(rows, (axis,), True)).reshape(x.shape)
    if a["_kind"] == "LogSoftmax":
        return m.symbol(logarithm, i[0].dtype, ("log", found))
    return m.symbol(found, i[0].dtype, ("logarithm", logarithm))


@operator("LRN")
def _lrn(m: Interpreter, i: list[Item], a: Attributes) -> Value:
    f, x, size = m.field, m.elements(i[0]), a["size"]
    before = (size - 1) // 2
    square = f.pad(f.mul(x, x), [(0, 0), (before, size - 1 - before), *[(0, 0)] * (x.ndim - 2)])
    total = f.sum(np.stack([square[:, k : k + x.shape[1]] for k in range(size)]), 0)
    scale = f.div(f.mul(total, f.from_float(_float(a, "alpha", 1e-4))), f.from_int(size))
    base = f.add(scale, f.from_float(_float(a, "bias", 1.0)))
    return m.symbol(f.div(x, f.hash("power", base, attributes=_float(a, "beta", 0.75))), i[0].dtype)


@operator("ArgMax", "ArgMin", "TopK", "Hardmax")
def _ranked(m: Interpreter, i: list[Item], a: Attributes) -> Any:
    """A function of all numbers along the axis, in their order; the smallest are the largest of their negatives."""
    f, x, kind = m.field, m.elements(i[0]), a["_kind"]
    smallest = kind == "ArgMin" or a.get("largest", 1) != 1
    x = f.neg(x) if smallest else x
    axis = a.get("axis", {"ArgMax": 0, "ArgMin": 0, "Hardmax": 1 if a["_version"] < 13 else -1}.get(kind, -1)) % x.ndim
    names = sorted(
        (k, str(v))
        for k, v in a.items()
        if k not in ("_kind", "_outputs", "_version", "axis", "keepdims", "k", "largest")
    )
    if kind == "Hardmax" and a["_version"] < 13:
        raise NotCoveredError("Hardmax before opset 13")
    seen = np.expand_dims(f.digest(x, axis), axis)
    if kind in ("ArgMax", "ArgMin"):  # the first of equal ones, as with TopK
        found = f.hash("TopK indices", seen, np.zeros(seen.shape, np.int64), attributes=names)
        return m.symbol(found if a.get("keepdims", 1) == 1 else np.squeeze(found, axis), np.int64)
    count = (
        x.shape[axis]
        if kind == "Hardmax"
        else int(m.numbers(i[1], "k of TopK").reshape(-1)[0])
        if len(i) > 1
        else a["k"]
    )
    if count > x.shape[axis]:
        raise UndefinedError("TopK of more than there is")
    names += [] if a.get("sorted", 1) == 1 else [("k", str(count))]  # in which order, hangs on how many
    places = np.arange(count).reshape([-1 if d == axis else 1 for d in range(x.ndim)])
    results = [f.hash(f"{kind} {part}", seen, places, attributes=names) for part in ("values", "indices")]
    if kind == "TopK" and count and a.get("sorted", 1) == 1:  # the first is the largest
        behind = [slice(1 if d == axis else 0, None) for d in range(x.ndim)]
        most = f.reduce_max(x, (axis,), keepdims=True)
        results[0] = f.concat([most, results[0][tuple(behind)]], axis)
    results[0] = f.neg(results[0]) if smallest else results[0]
    if kind == "Hardmax":
        return m.symbol(results[0], i[0].dtype)
    return m.symbol(results[0], i[0].dtype), m.symbol(results[1], np.int64)


@operator("DFT")
def _dft(m: Interpreter, i: list[Item], a: Attributes) -> Value:
    """A function of all numbers along the axis, real and imaginary parts, which are last."""
    f, (data, length, chosen) = m.field, (*i, None, None)[:3]
    axis = a.get("axis", -2 if a["_version"] >= 20 else 1)
    axis = axis if chosen is None else int(m.numbers(chosen, "the axis of DFT").reshape(()))
    x = np.moveaxis(m.elements(data), axis, -2)
    count = x.shape[-2] if length is None else int(m.numbers(length, "the length of DFT").reshape(()))
    x = f.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, max(count - x.shape[-2], 0)), (0, 0)])[..., :count, :]
    kind = a.get("inverse", 0), a.get("onesided", 0)
    if all(kind):
        raise NotCoveredError("DFT back to real numbers")
    places = np.arange(2 * (count // 2 + 1 if kind[1] else count)).reshape(-1, 2)  # the first ones are the same
    seen = f.digest(x.reshape(*x.shape[:-2], -1))[..., None, None]
    return m.symbol(np.moveaxis(f.hash("DFT", seen, places, attributes=(kind[0], count)), -2, axis), data.dtype)


@operator("Gather")
def _gather(m: Interpreter, i: list[Item], a: Attributes) -> Any:
    """Elements by their places; of two numbers, by a truth value, a line through both."""
    (table, indices), f = i, m.field
    axis = a.get("axis", 0) % table.data.ndim
    two = table.exact and table.data.shape == (2,) and table.dtype.kind in "iuf" and np.isfinite(table.data).all()
    if two and not indices.exact and indices.tag[:1] == ("bool",):
        low, high = m.elements(table)
        line = f.add(low, f.mul(f.sub(high, low), indices.data))
        return m.symbol(line, table.dtype, indices.tag if table.data.tolist() == [0, 1] else ())
    if indices.exact:
        if table.exact:
            return m.by_reference("Gather", i, {"axis": axis})
        return m.symbol(m.field.rows(table.data, indices.data, axis), table.dtype)
    x, ends = m.elements(table), ends_of(indices)
    each = None if ends is None else (ends[0][..., None], ends[1][..., None])
    found = taken_between(f, np.moveaxis(x, axis, 0), indices.data[..., None], each)
    if found is not None:
        first = indices.data.ndim
        return m.symbol(np.moveaxis(found, range(first, first + axis), range(axis)), table.dtype)
    return m.symbol(f.take(x, indices.data, axis), table.dtype)


@operator("GatherElements", "GatherND")
def _gather_symbols(m: Interpreter, i: list[Item], a: Attributes) -> Any:
    table, indices, f = m.elements(i[0]), m.elements(i[1]), m.field
    if a["_kind"] == "GatherElements" and not i[1].exact:
        axis = a.get("axis", 0) % table.ndim
        columns = np.expand_dims(f.digest(table, axis), axis)
        columns = columns[tuple(slice(n) if d != axis else slice(None) for d, n in enumerate(indices.shape))]
        return m.symbol(f.hash("take element", columns, indices), i[0].dtype)
    attributes = {k: v for k, v in a.items() if not k.startswith("_")}
    if a["_kind"] == "GatherND" and not attributes.get("batch_dims", 0):
        found = taken_between(f, table, indices, ends_of(i[1]))
        if found is not None:
            return m.symbol(found, i[0].dtype)
    return m.opaque(a["_kind"], i, attributes, 1, "")


@operator("ScatterElements", "Scatter", alike=True)
def _scatter(m: Interpreter, i: list[Item], a: Attributes) -> Any:
    """A function of all that lies along the axis, as far as places reach: of elements, places and what goes there."""
    f, (data, places, updates) = m.field, (m.elements(v) for v in i[:3])
    axis = a.get("axis", 0) % data.ndim
    if any(n != places.shape[d] for d, n in enumerate(data.shape) if d != axis):
        return m.opaque("ScatterElements", i, {k: v for k, v in a.items() if not k.startswith("_")}, 1, "")
    columns = (np.expand_dims(f.digest(x, axis), axis) for x in (data, places, updates))
    at = np.arange(data.shape[axis]).reshape([-1 if d == axis else 1 for d in range(data.ndim)])
    return m.symbol(f.hash("scatter", *columns, at, attributes=a.get("reduction")), i[0].dtype)


@operator("OneHot")
def _one_hot(m: Interpreter, i: list[Item], a: Attributes) -> Value:
    depth = int(m.numbers(i[1], "the depth of OneHot").reshape(-1)[0])
    x, values, f = m.elements(i[0]), m.elements(i[2]), m.field
    axis = a.get("axis", -1) % (x.ndim + 1)
    places = np.arange(depth).reshape([-1 if d == axis else 1 for d in range(x.ndim + 1)])
    hit = f.hash("one hot", np.expand_dims(x, axis), places, attributes=depth)
    return m.symbol(f.where(hit, values[1], values[0]), i[2].dtype)


@operator("Concat")
def _concat(m: Interpreter, i: list[Item], a: Attributes) -> Value:
    if all(v.exact for v in i):
        return exact(np.concatenate([v.data for v in i], a["axis"]))
    return m.symbol(m.field.concat([m.elements(v) for v in i], a["axis"]), i[0].dtype, tag_of_each(i))


@operator("QuantizeLinear")
def _quantize(m: Interpreter, i: list[Item], a: Attributes) -> Value:
    f, x, scale = m.field, m.elements(i[0]), m.elements(i[1])
    zero = i[2] if len(i) > 2 else None
    held = [v for v in i[1:] if v is not None and v.exact and v.data.size == 1]
    dtype = (
        zero.dtype
        if zero is not None
        else np.dtype(helper.tensor_dtype_to_np_dtype(a["output_dtype"]) if a.get("output_dtype") else np.uint8)
    )
    axis, block = a.get("axis", 1), a.get("block_size", 0)
    if i[0].tag[:1] == ("clip",) and not is_float(dtype) and len(held) == len(i) - 1:
        x = _before_saturation(f, i[0].tag, [float(v.data.reshape(())) for v in held], dtype)
    steps = f.div(x, _beside(scale, x, axis, block))
    middle = np.array(0) if zero is None else _beside(m.elements(zero), x, axis, block)
    if is_float(dtype):
        return m.symbol(f.hash("round and saturate", steps, middle, attributes=dtype.name), dtype)
    ends = (f.sub(f.from_int(n), middle) for n in _limits(dtype))  # zero point 128 of uint8 is 0 of int8
    return m.symbol(f.add(f.hash("round and saturate", steps, *ends), middle), dtype)


def _before_saturation(f: Field, clip: Tag, quantizer: Sequence[float], dtype: np.dtype[Any]) -> Array:
    """What is clipped, without bounds that saturation keeps anyway, by a scale and a zero point."""
    scale, zero, (_, x, bottom, top) = *[*quantizer, 0.0][:2], clip
    least, most = (n - zero for n in _limits(dtype))
    return f.clip(x, -np.inf if bottom / scale <= least else bottom, np.inf if top / scale >= most else top)


def _limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The smallest and largest integer of a type, of 4 bits too."""
    found = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    return found.min, found.max


@operator("DequantizeLinear")
def _dequantize(m: Interpreter, i: list[Item], a: Attributes) -> Value:
    if is_float(i[0].dtype) != i[0].dtype.name.startswith("float8") or not is_float(i[1].dtype):
        raise NotCoveredError(f"DequantizeLinear of {i[0].dtype} by {i[1].dtype}")
    f, x, scale, axis = m.field, m.elements(i[0]), m.elements(i[1]), a.get("axis", 1)
    zero = m.elements(i[2]) if len(i) > 2 and i[2] is not None else None
    block = a.get("block_size", 0)
    x = x if zero is None else f.sub(x, _beside(zero, x, axis, block))
    return m.symbol(f.mul(x, _beside(scale, x, axis, block)), i[1].dtype)


@operator(
    "SequenceConstruct",
    "SequenceEmpty",
    "SequenceInsert",
    "SequenceAt",
    "SequenceLength",
    "SequenceErase",
    "ConcatFromSequence",
)
def _sequence(m: Interpreter, i: list[Item], a: Attributes) -> Any:
    kind = a["_kind"]
    if kind in ("SequenceConstruct", "SequenceEmpty"):
        return list(i)
    items = list(i[0])
    if kind == "SequenceLength":
        return exact(np.int64(len(items)))
    if kind == "ConcatFromSequence":
        return m.stack(items, a["axis"]) if a.get("new_axis", 0) else _concat(m, items, a)
    place = i[2 if kind == "SequenceInsert" else 1] if len(i) > (2 if kind == "SequenceInsert" else 1) else None
    at = len(items) if place is None else int(m.numbers(place, "a place in a sequence").reshape(-1)[0])
    if kind == "SequenceAt":
        return items[at]
    if kind == "SequenceErase":
        del items[at if place is not None else -1]
    else:
        items.insert(at, i[1])
    return items


@operator("Optional", "OptionalGetElement", "OptionalHasElement")
def _optional(_: Interpreter, i: list[Item], a: Attributes) -> Any:
    """What may be there is itself, or None."""
    held, declared = i[0] if i else None, a.get("type")
    if a["_kind"] == "OptionalHasElement":
        return exact(np.array(held is not None))
    if held is None and declared is None:
        raise UndefinedError("what an empty optional holds")
    return held


@operator("SplitToSequence")
def _split_to_sequence(m: Interpreter, i: list[Item], a: Attributes) -> Any:
    whole, given = (*i, None)[:2]
    axis, keeps = a.get("axis", 0), a.get("keepdims", 1)
    size = whole.data.shape[axis]
    parts = np.array(1) if given is None else m.numbers(given, "the sizes of SplitToSequence")
    ends = [*range(0, size, int(parts)), size] if parts.ndim == 0 else [0, *np.cumsum(parts)]
    if parts.min(initial=1) < 1 or ends[-1] != size:
        raise UndefinedError("SplitToSequence into other sizes than there are")
    found = [m.apply("Slice", [whole, *(exact(np.array([n])) for n in (*pair, axis))], {}) for pair in pairwise(ends)]
    if given is None and not keeps:
        found = [m.apply("Reshape", [v, exact(np.array(np.squeeze(v.data, axis).shape))], {}) for v in found]
    return found


@operator("Dropout")
def _dropout(m: Interpreter, i: list[Item], a: Attributes) -> Any:
    x, _ratio, training = [*i, None, None][:3]
    if a["_outputs"] > 1 or (training is not None and bool(m.numbers(training, "training").reshape(-1)[0])):
        raise NotCoveredError("Dropout in training")
    return x


@operator("Resize", "Upsample")
def _resize(m: Interpreter, i: list[Item], a: Attributes) -> Value:
    """Along each axis the product with a matrix, which is what ONNX's implementation makes of unit vectors."""
    mode, kind = a.get("mode", b"nearest"), a["_kind"]
    x = i[0].data if mode == b"nearest" else m.elements(i[0])
    if mode != b"nearest" and not is_float(i[0].dtype):
        raise NotCoveredError(f"{kind} of integers between which it takes others")
    if (
        a.get("coordinate_transformation_mode") == b"tf_crop_and_resize"
        or a.get("keep_aspect_ratio_policy", b"stretch") != b"stretch"
    ):
        raise NotCoveredError(f"{kind} that crops or keeps the ratio")
    given = [None if v is None else m.numbers(v, "the size of Resize").reshape(-1) for v in i[1:]]
    scales = next((v for v in given[-2:] if v is not None and v.dtype.kind == "f" and v.size), None)
    sizes = given[2] if len(given) > 2 else None
    ratios = np.ones(0) if scales is None else scales
    axes = [axis % x.ndim for axis in a.get("axes") or range(x.ndim)]
    names = {k: v for k, v in a.items() if not k.startswith("_") and k not in ("axes", "scales")}
    if kind == "Upsample" or a["_version"] < 11:
        if mode == b"nearest" and (ratios < 1).any():
            raise NotCoveredError(f"{kind} to fewer elements before opset 11")
        names.update(coordinate_transformation_mode=b"asymmetric", nearest_mode=b"floor")
    for at, axis in enumerate(axes):
        n = x.shape[axis]
        one = np.array([1, sizes[at]]) if sizes is not None and sizes.size else None
        if one is None and scales is None:
            raise NotCoveredError(f"{kind} without scales or sizes")
        if (one is not None and one[1] == n) or (one is None and ratios.size and ratios[at] == 1):
            continue
        if one is None:
            inputs = [exact(np.eye(n, dtype=np.float64)), None, exact(np.array([1, ratios[at]], np.float32))]
        else:
            inputs = [exact(np.eye(n, dtype=np.float64)), None, None, exact(np.array([n, one[1]]))]
        weights = m.by_reference(
            "Resize",
            inputs,
            {**names, "mode": b"linear" if mode == b"bilinear" else mode},
            opset=max(13, a["_version"]),
        )
        if mode == b"nearest":  # each comes from one place
            x = np.take(x, weights.data.argmax(0), axis)
        else:
            x = np.moveaxis(m.field.matmul(np.moveaxis(x, axis, -1), m.field.from_float(weights.data)), -1, axis)
    return exact(x) if mode == b"nearest" and i[0].exact else m.symbol(x, i[0].dtype)
