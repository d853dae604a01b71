"""Arithmetic in a finite field GF(p), and functions of it that stand for real functions.

Two programs that compute the same rational expression of their inputs give the same number in GF(p). Two that do not
agree at a random point with a probability of at most degree / p (Schwartz 1980, Zippel 1979; Hu et al. 2024, "Mirage",
do it for tensor programs). Functions that are not rational (exp, erf, comparisons) are *uninterpreted*: a hash of the
function's name, its attributes and its arguments. Equal arguments give equal values, and nothing else is assumed, but
for the identities that the canonical forms below keep.

How an interpreter of a framework uses it: make one `Field(salt)` per random point, and evaluate both programs in it.

    field = Field(salt=1)
    weight = field.from_float(module.weight)        # floats are exact: fractions of 2^n
    x = field.draw("x", (2, 8))                     # a random point: the same name gives the same numbers
    y = field.relu(field.add(field.matmul(x, weight.T), bias))

An element is an int64 in [0, p). A boolean that depends on floats is an element too and stands for 0 or 1: `not c` is
1 - c, `a and b` is a * b, and a selection is c * a + (1 - c) * b. An integer that depends on floats (ArgMax) is an
element, made by `field.opaque` and hashed when it selects rows (`field.take`). What is equal in two fields with
different salts is the same real function, wherever both are defined, but for that probability.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

# p = 2^31 - c is prime, 2 has an order of at least 2^27 modulo p, so that no power of two of a float's range is 1, and
# p = 7 modulo 8, so that 2 has a square root.
_OFFSETS = (105, 225, 249, 697, 705, 985)
_GELU = 0.7978845608028654  # sqrt(2 / pi)
_AT_ONCE = 2**14  # elements
_DEPTH = 2**11  # products of 31 and 11 bits whose sum is exact in float64
_MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))

Array = np.ndarray
ONE = np.array(1, np.int64)


@dataclass(frozen=True)
class Decisions:
    """The nodes of trees at which a column is compared with a number.

    Attributes:
        nodes: which of all nodes, that is leaves too.
        features: the column of each.
        largest: the largest float of the column's type that goes the lower way; NaN where none does.
        missing_low: whether a missing value goes that way.
        low, high: where the two ways lead.
        levels: places in `nodes`, those that nothing leads to first.
        count: of all nodes.
    """

    nodes: Array
    features: Array
    largest: Array
    missing_low: Array
    low: Array
    high: Array
    levels: Sequence[Array]
    count: int


@functools.cache
def _powers_of_two(p: int) -> Array:
    """Modulo a prime, for the exponents from -1200 on that floats have."""
    return np.array([*itertools.accumulate(range(2299), lambda power, _: 2 * power % p, initial=pow(2, -1200, p))])


class Field:
    """One random point: a prime, and what is drawn and hashed.

    Args:
        salt: another one gives another prime, other draws and other hashes.

    Attributes:
        p: the prime, a little below 2^31.
        has_values: elements are computed, and not their shapes alone.
    """

    has_values = True

    def __init__(self, salt: int) -> None:
        self.salt = salt
        self._c = _OFFSETS[self._seed("prime") % len(_OFFSETS)]
        self.p = 2**31 - self._c
        self._powers = _powers_of_two(self.p)
        self._choices: dict[int, tuple[float, ...]] = {}

    # Elements

    def fold(self, x: Array) -> Array:
        """Any int64 in [0, 2^63) modulo p; numpy divides by one number four to six times as fast as it takes %."""
        x = np.asarray(x)
        found = np.asarray(x // self.p)
        found *= self.p
        return np.asarray(np.subtract(x, found, out=found))

    @staticmethod
    def _least(x: Array, y: Array) -> Array:
        """Of two numbers that are equal modulo p the one in [0, p): as unsigned integers negative ones are large."""
        return np.minimum(np.asarray(x).view(np.uint64), np.asarray(y).view(np.uint64)).view(np.int64)

    def from_int(self, x: ArrayLike) -> Array:
        """Integers or booleans of any type."""
        x = np.asarray(x)
        return np.asarray(
            np.mod(x, np.uint64(self.p)) if x.dtype == np.uint64 else np.mod(x.astype(np.int64), self.p)
        ).astype(np.int64)

    def from_float(self, x: ArrayLike) -> Array:
        """Floats of any precision, exactly; infinities and NaN become symbols."""
        x = np.asarray(x)
        if x.size > _AT_ONCE:  # a part whose intermediate results the processor's cache holds
            flat, whole = x.reshape(-1), np.empty(x.size, np.int64)
            for start in range(0, x.size, _AT_ONCE):
                whole[start : start + _AT_ONCE] = self.from_float(flat[start : start + _AT_ONCE])
            return whole.reshape(x.shape)
        if x.dtype == np.float32:
            bits = np.ascontiguousarray(x).view(np.int32)
            exponent = (bits >> 23) & 0xFF
            whole = (bits & 0x7FFFFF) + np.where(exponent > 0, 1 << 23, 0)
            found = self.fold(whole.astype(np.int64) * self._powers[np.maximum(exponent, 1) + (1200 - 150)])
            found = np.where((bits < 0) & (found > 0), self.p - found, found).reshape(x.shape)
            finite = (exponent < 0xFF).reshape(x.shape)
        else:
            x = x.astype(np.float64)
            finite = np.isfinite(x)
            mantissa, exponent = np.frexp(np.where(finite, x, 0.0))
            whole = np.mod(np.ldexp(mantissa, 53).astype(np.int64), self.p)
            found = self.fold(whole * self._powers[exponent.astype(np.int64) - 53 + 1200])
        if finite.all():
            return found
        infinity, nan = self._seed("infinity") % self.p, self._seed("nan") % self.p
        return np.where(finite, found, np.where(np.isnan(x), nan, np.where(x > 0, infinity, self.p - infinity)))

    def scalar(self, x: float) -> Array:
        """A single number; a rounded sqrt(2) and the like are taken for what they are rounded from.

        So Gelu is its formula in any spelling: both programs say constants that are half an ulp off at most.
        """
        root = pow(2, (self.p + 1) // 4, self.p)
        ratio = {1 / 6: (1, 6), 0.044715: (44715, 10**6)}
        for number, (over, under) in ratio.items():
            if x in (number, float(np.float32(number))):
                return np.array(over * pow(under, -1, self.p) % self.p)
        for number, element in ((2**0.5, root), (0.5**0.5, root * pow(2, -1, self.p) % self.p)):
            if x in (number, float(np.float32(number))):
                return np.array(element)
        if x in (_GELU, float(np.float32(_GELU))):
            return np.array(self._seed("sqrt(2 / pi)") % self.p)
        return self.from_float(x)

    def draw(self, name: str, shape: Sequence[int]) -> Array:
        """Random elements; those of a name are the same each time, whatever draws before."""
        return self.hash("draw", np.arange(int(np.prod(shape)), dtype=np.int64), attributes=name).reshape(tuple(shape))

    # Rational functions

    def add(self, a: Array, b: Array) -> Array:
        """The sum."""
        x = a + b
        return self._least(x, x - self.p)

    def sub(self, a: Array, b: Array) -> Array:
        """The difference."""
        x = a - b
        return self._least(x, x + self.p)

    def neg(self, a: Array) -> Array:
        """-a."""
        return np.where(a == 0, a, self.p - a)

    def mul(self, a: Array, b: Array) -> Array:
        """The product."""
        return self.fold(a * b)

    def div(self, a: Array, b: Array) -> Array:
        """The quotient."""
        return self.fold(a * self.inverse(b))

    def inverse(self, x: Array) -> Array:
        """1 / x, by one power and three products an element (Montgomery); 1 / 0 is a symbol."""
        x = np.asarray(x)
        zero = x == 0
        found = self._inverse(np.where(zero, 1, x).reshape(-1))[: x.size].reshape(x.shape)
        return np.where(zero, self._seed("1/0") % self.p, found) if zero.any() else found

    def _inverse(self, x: Array) -> Array:
        if x.size <= 64:
            return self.power(x, self.p - 2)
        x = np.append(x, np.ones(x.size % 2, np.int64))
        left, right = x[: x.size // 2], x[x.size // 2 :]
        pairs = self._inverse(self.fold(left * right))[: left.size]
        return np.concatenate([self.fold(pairs * right), self.fold(pairs * left)])

    def power(self, x: Array, exponent: int) -> Array:
        """A power with a whole exponent, which may be negative."""
        if exponent < 0:
            return self.inverse(self.power(x, -exponent))
        found = np.ones_like(x)
        while exponent:
            if exponent & 1:
                found = self.fold(found * x)
            x, exponent = self.fold(x * x), exponent >> 1
        return found

    def sum(self, x: Array, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Array:
        """The sum over axes."""
        return np.asarray(self.fold(np.asarray(np.sum(x, axis=axis, keepdims=keepdims))))

    def mean(self, x: Array, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Array:
        """The mean over axes."""
        total = self.sum(x, axis, keepdims)
        count = x.size // max(total.size, 1)
        return self.mul(total, np.array(pow(count % self.p, self.p - 2, self.p)))

    def cumsum(self, x: Array) -> Array:
        """Sums of all up to each place of the last axis."""
        return self.fold(np.cumsum(x, -1))

    def product(self, x: Array, axis: int, keepdims: bool = False) -> Array:
        """The product over an axis."""
        found = np.ones_like(np.take(x, 0, axis)) if x.shape[axis] else np.ones(np.delete(x.shape, axis), np.int64)
        for i in range(x.shape[axis]):
            found = self.fold(found * np.take(x, i, axis))
        return np.expand_dims(found, axis) if keepdims else found

    def matmul(self, a: Array, b: Array) -> Array:
        """As numpy's, by three exact products in float64: 31 bits of the smaller factor are 9, 11 and 11 bits."""
        if a.ndim == 0 or b.ndim == 0:
            raise ValueError("matmul takes no scalars")
        if a.shape[-1] > _DEPTH:
            split = np.arange(_DEPTH, a.shape[-1], _DEPTH)
            parts = zip(np.split(a, split, -1), np.split(b, split, 0 if b.ndim == 1 else -2), strict=True)
            return functools.reduce(self.add, (self.matmul(x, y) for x, y in parts))
        first = a.size <= b.size
        small, large = (a, b.astype(np.float64)) if first else (b, a.astype(np.float64))
        found: Array = np.array(0)
        for shift, bits in ((22, 0x1FF), (11, 0x7FF), (0, 0x7FF)):
            part = ((small >> shift) & bits).astype(np.float64)
            found = self.fold((found << 11) + np.asarray(part @ large if first else large @ part).astype(np.int64))
        return found

    def einsum(self, equation: str, *parts: Array) -> Array:
        """As numpy's, two arrays after the other, by exact products of halves of 16 bits in float64."""
        if len(parts) == 1:
            return self.fold(np.einsum(equation, parts[0]))
        if len(parts) > 2:
            labels, arrow, result = equation.replace(" ", "").partition("->")
            one, other, *rest = labels.split(",")
            if "." in labels:
                raise ValueError("an Einsum of several tensors with an ellipsis is not covered")
            result = result if arrow else "".join(n for n in sorted({*labels} - {","}) if labels.count(n) == 1)
            kept = "".join(sorted({*one, *other} & {*result, *"".join(rest)}))
            product = self.einsum(f"{one},{other}->{kept}", *parts[:2])
            return self.einsum(f"{','.join((kept, *rest))}->{result}", product, *parts[2:])
        found: Array = np.array(0)
        for shifts in ((16, 16), (16, 0), (0, 16), (0, 0)):
            x, y = ((p >> 16 if s else p & 0xFFFF).astype(np.float64) for p, s in zip(parts, shifts, strict=True))
            product = self.fold(np.einsum(equation, x, y, optimize=True).astype(np.int64))
            found = self.add(found, self.fold(self.fold(product << shifts[0]) << shifts[1]))
        return found

    def conv(
        self,
        x: Array,
        weight: Array,
        strides: Sequence[int],
        dilations: Sequence[int],
        pads: Sequence[int],
        groups: int = 1,
    ) -> Array:
        """A convolution as ONNX's Conv (a correlation).

        Args:
            x: [batch, channels, *spatial].
            weight: [outputs, channels / groups, *kernel].
            strides: one per spatial dim.
            dilations: one per spatial dim.
            pads: before each spatial dim, then behind each.
            groups: of channels.
        """
        rank = x.ndim - 2
        kernel = weight.shape[2:]
        if groups < 1 or weight.shape[0] % groups or x.shape[1] != groups * weight.shape[1] or len(kernel) != rank:
            raise ValueError(f"{x.shape} by {weight.shape} in {groups} groups")
        x = self.pad(x, [(0, 0), (0, 0), *((pads[i], pads[rank + i]) for i in range(rank))])
        size = [(x.shape[2 + i] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1 for i in range(rank)]
        if min(size, default=1) < 1 and x.size:
            raise ValueError("the kernel is larger than its input")
        batch, outputs, inputs = x.shape[0], weight.shape[0] // groups, weight.shape[1]
        found = np.zeros((batch, groups, outputs, int(np.prod(size))), np.int64)
        places = list(np.ndindex(*kernel))
        step = max(1, 2**22 // max(1, batch * x.shape[1] * int(np.prod(size))))
        for start in range(0, len(places), step):
            some = places[start : start + step]
            parts = [x[(slice(None), slice(None), *self.window(at, size, strides, dilations))] for at in some]
            columns = np.stack([p.reshape(batch, groups, inputs, -1) for p in parts], axis=3)
            rows = np.stack([weight[(slice(None), slice(None), *at)] for at in some], axis=2).reshape(
                groups, outputs, -1
            )
            found = self.add(found, self.matmul(rows[None], columns.reshape(batch, groups, inputs * len(some), -1)))
        return found.reshape(batch, groups * outputs, *size)

    def pad(self, x: Array, widths: Sequence[tuple[int, int]], mode: str = "constant", fill: ArrayLike = 0) -> Array:
        """Elements before and behind each dim: one, zero by default, or in another mode of numpy's those of x."""
        return np.pad(x, widths, constant_values=fill) if mode == "constant" else np.pad(x, widths, mode)  # type: ignore

    def concat(self, arrays: Sequence[Array], axis: int) -> Array:
        """One behind the other, along a dim."""
        return np.concatenate(arrays, axis)

    def conv_transpose(
        self,
        x: Array,
        weight: Array,
        strides: Sequence[int],
        dilations: Sequence[int],
        pads: Sequence[int],
        size: Sequence[int],
        groups: int = 1,
    ) -> Array:
        """The transpose of a convolution.

        Args:
            x: [batch, channels, *spatial].
            weight: [channels, outputs / groups, *kernel].
            strides: one per spatial dim.
            dilations: one per spatial dim.
            pads: before each spatial dim.
            size: of the result's spatial dims.
            groups: of channels.
        """
        rank, kernel = x.ndim - 2, weight.shape[2:]
        if groups < 1 or x.shape[1] % groups or x.shape[1] != weight.shape[0]:
            raise ValueError(f"{x.shape} by {weight.shape} in {groups} groups")
        batch, inputs, outputs = x.shape[0], x.shape[1] // groups, weight.shape[1]
        full = [
            max((x.shape[2 + i] - 1) * strides[i] + dilations[i] * (kernel[i] - 1) + 1, pads[i] + size[i])
            for i in range(rank)
        ]
        found = np.zeros((batch, groups * outputs, *full), np.int64)
        columns = x.reshape(batch, groups, inputs, -1)
        for at in np.ndindex(*kernel):
            rows = weight[(slice(None), slice(None), *at)].reshape(groups, inputs, outputs).transpose(0, 2, 1)
            window = (slice(None), slice(None), *self.window(at, x.shape[2:], strides, dilations))
            found[window] = self.add(found[window], self.matmul(rows[None], columns).reshape(batch, -1, *x.shape[2:]))
        return found[(slice(None), slice(None), *(slice(pads[i], pads[i] + size[i]) for i in range(rank)))]

    def window_sum(
        self, x: Array, kernel: Sequence[int], size: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
    ) -> Array:
        """The sums over windows, along one spatial dim after the other.

        Args:
            x: [batch, channels, *spatial], padded.
            kernel: of each spatial dim, the places of a window.
            size: of each spatial dim, how many windows.
            strides, dilations: of each spatial dim.

        Returns:
            [batch, channels, *size]
        """
        for axis, (places, n, s, d) in enumerate(zip(kernel, size, strides, dilations, strict=True), start=2):
            before, total = (slice(None),) * axis, x
            for at in range(places):
                seen = x[(*before, *self.window((at,), (n,), (s,), (d,)))]
                total = self.add(total, seen) if at else seen
            x = total
        return x

    @staticmethod
    def window(at: Sequence[int], size: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> list[slice]:
        """What one place of a kernel sees, along each spatial dim."""
        first = [k * d for k, d in zip(at, dilations, strict=True)]
        return [slice(f, f + (n - 1) * s + 1 if n else f, s) for f, n, s in zip(first, size, strides, strict=True)]

    # Uninterpreted functions

    def _seed(self, *parts: object) -> int:
        return int.from_bytes(hashlib.blake2b(repr((self.salt, *parts)).encode(), digest_size=8).digest(), "little")

    def hash(self, name: str, *arguments: Array, attributes: object = ()) -> Array:
        """An uninterpreted function, element by element (arguments broadcast).

        Args:
            name: of the function.
            arguments: elements.
            attributes: whatever else it depends on; its `repr` counts.
        """
        seed = np.uint64(self._seed(name, len(arguments), attributes))
        found: Array = np.array(seed)
        for argument in arguments:
            with np.errstate(over="ignore"):
                x = (found * _MIX[0]) ^ np.asarray(argument).astype(np.uint64)
                x = (x ^ seed) * _MIX[1]
                x = (x ^ (x >> np.uint64(32)) ^ seed) * _MIX[2]
                x = (x ^ (x >> np.uint64(29))) * _MIX[1]
                found = x ^ (x >> np.uint64(32))
        return self.fold((found >> np.uint64(3)).astype(np.int64) & (2**61 - 1))

    def digest(self, x: Array, axis: int = -1) -> Array:
        """One element for all along an axis, in their order: their product with random numbers."""
        x = np.moveaxis(x, axis, -1)
        factors = self.draw("digest", (x.shape[-1],))
        return self.add(self.matmul(x, factors), self.hash("length", np.array(x.shape[-1])))

    def fingerprint(self, x: Array) -> int:
        """One number for a whole tensor of elements and its shape: a hash of their bytes."""
        content = np.ascontiguousarray(x, np.int64).tobytes()
        return int.from_bytes(hashlib.sha256(repr(x.shape).encode() + content).digest()[:7], "little")

    def opaque(self, name: str, attributes: object, arguments: Sequence[Array], shape: Sequence[int]) -> Array:
        """An uninterpreted function of whole tensors: each element of the result depends on all of them.

        Args:
            name: of the function.
            attributes: whatever else it depends on.
            arguments: tensors of elements.
            shape: of the result, which must follow from the arguments.
        """
        seen = [np.array(self.fingerprint(np.asarray(a))) for a in arguments]
        return self.hash(name, np.arange(int(np.prod(shape))).reshape(tuple(shape)), *seen, attributes=attributes)

    # Canonical forms of functions: each line is an identity of real numbers, so it makes nothing equal that is not

    def _odd(self, name: str, x: Array, attributes: object = ()) -> Array:
        """f(-x) = -f(x)."""
        flipped = x > self.p // 2
        found = self.hash(name, np.where(flipped, self.p - x, x), attributes=attributes)
        return np.where(x == 0, 0, np.where(flipped, self.neg(found), found))

    def function(self, name: str, *arguments: Array, attributes: object = ()) -> Array:
        """Any function of single elements by ONNX's name: Sin, Erf, Log, Floor, Round ..."""
        if name in ("Erf", "Sin", "Tan", "Atan", "Asin", "Sinh", "Asinh", "Sign", "Round"):
            return self._odd(name, *arguments)
        return self.hash(name, *arguments, attributes=attributes)

    def positive(self, x: Array) -> Array:
        """Whether x > 0, as 0 or 1."""
        return np.where(x == 0, 0, self.hash("positive", x))

    def less(self, a: Array, b: Array) -> Array:
        """Whether a < b; b > a and not (b <= a) are the same."""
        return self.positive(self.sub(b, a))

    def equal(self, a: Array, b: Array) -> Array:
        """Whether a = b; b = a is the same."""
        x = self.sub(a, b)
        return np.where(x == 0, 1, self.hash("zero", np.minimum(x, self.p - x)))

    def where(self, condition: Array, a: Array, b: Array) -> Array:
        """Where(condition, a, b) = condition * (a - b) + b."""
        return self.add(self.mul(condition, self.sub(a, b)), b)

    def relu(self, x: Array) -> Array:
        """max(x, 0) = x + max(-x, 0); of two signs one is hashed."""
        flipped = x > self.p // 2
        found = self.hash("relu", np.where(flipped, self.p - x, x))
        return np.where(x == 0, 0, np.where(flipped, self.add(found, x), found))

    def abs(self, x: Array) -> Array:
        """|x| = 2 max(x, 0) - x."""
        return self.sub(self.fold(2 * self.relu(x)), x)

    def maximum(self, a: Array, b: Array) -> Array:
        """max(a, b) = b + max(a - b, 0), the same for (b, a)."""
        return self.add(self.relu(self.sub(a, b)), b)

    def minimum(self, a: Array, b: Array) -> Array:
        """min(a, b) = a - max(a - b, 0)."""
        return self.sub(a, self.relu(self.sub(a, b)))

    def clip(self, x: Array, low: float | None, high: float | None) -> Array:
        """Between bounds: low + (high - low) u((x - low) / (high - low)), with u the clip to [0, 1]."""
        if low is not None and not low > -np.inf:
            low = None
        if high is not None and not high < np.inf:
            high = None
        if low is None or high is None:
            if low is not None:
                return self.maximum(x, self.from_float(low))
            return x if high is None else self.minimum(x, self.from_float(high))
        if not low < high:
            return np.full(x.shape, self.from_float(high))
        bottom, top = self.from_float(low), self.from_float(high)
        width = self.sub(top, bottom)
        u = self.hash("clip", self.mul(self.sub(x, bottom), self.inverse(width)))
        return self.add(self.mul(u, width), bottom)

    def exp(self, x: Array) -> Array:
        """exp(-x) = 1 / exp(x)."""
        flipped = x > self.p // 2
        found = self.hash("exp", np.where(flipped, self.p - x, x))
        found = np.where(flipped, self.inverse(np.where(flipped, found, 1)), found)
        return np.where(x == 0, 1, found)

    def sqrt(self, x: Array) -> Array:
        """The square root; 0 and 1 are their own."""
        return np.where(x <= 1, x, self.hash("sqrt", x))

    def sigmoid(self, x: Array) -> Array:
        """1 / (1 + exp(-x))."""
        return self.inverse(self.add(ONE, self.exp(self.neg(x))))

    def tanh(self, x: Array) -> Array:
        """2 sigmoid(2 x) - 1."""
        return self.sub(self.fold(2 * self.sigmoid(self.fold(2 * x))), ONE)

    def softmax(self, x: Array, axis: int) -> Array:
        """exp(x - x[0]) / sum: the same for x + c, and as exp(x - max) / sum where `shifted_exp` makes the powers."""
        powers = self.exp(self.sub(x, np.take(x, [0], axis))) if x.shape[axis] else x
        return self.div(powers, self.sum(powers, axis, keepdims=True))

    def log_sum_exp(self, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        """log(sum(exp(x))) = x[0] + log(sum(exp(x - x[0]))), so that x + c gives c more."""
        first = x[tuple(slice(0, 1) if axis in axes else slice(None) for axis in range(x.ndim))]
        total = self.sum(self.exp(self.sub(x, first)), axes, keepdims=True)
        found = self.add(self.function("Log", total), first) if x.size else total
        return found if keepdims else np.squeeze(found, axes)

    def shifted_exp(self, x: Array, shift: Array, axis: int) -> Array:
        """exp(x - shift), shift the same along the axis, as exp(x - x[0]) / exp(shift - x[0])."""
        first = np.take(x, [0], axis)
        return self.div(self.exp(self.sub(x, first)), self.exp(self.sub(shift, first)))

    def reduce_max(self, x: Array, axis: int | tuple[int, ...], keepdims: bool = False) -> Array:
        """The largest along axes: of single elements themselves, else a function of them in any order."""
        axes = (axis,) if isinstance(axis, int) else axis
        if all(x.shape[a] == 1 for a in axes):
            return x if keepdims else np.squeeze(x, axes)
        return self.hash("max", self.sum(self.hash("one of", x), axes, keepdims))

    def gelu(self, x: Array, tanh: bool = False) -> Array:
        """Half of x (1 + erf(x / sqrt 2)), or its form with tanh."""
        if tanh:
            cube = self.mul(self.power(x, 3), self.scalar(0.044715))
            inner = self.tanh(self.mul(self.add(x, cube), self.scalar(_GELU)))
        else:
            inner = self.function("Erf", self.mul(x, self.scalar(0.5**0.5)))
        half = self.mul(x, self.from_float(0.5))
        return self.mul(half, self.add(inner, ONE))

    def layer_norm(self, x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
        """(x - mean) / sqrt(variance + epsilon)."""
        centred = self.sub(x, self.mean(x, axes, keepdims=True))
        variance = self.mean(self.mul(centred, centred), axes, keepdims=True)
        return self.div(centred, self.sqrt(self.add(variance, self.from_float(epsilon))))

    def reached(self, x: Array, trees: Decisions) -> Array:
        """[rows, nodes]: whether each row comes to each node, as 0 or 1.

        Args:
            x: [rows, columns].
            trees: their decisions.
        """
        lower = self._lower(x, trees)
        found = np.ones((x.shape[0], trees.count), np.int64)
        for level in trees.levels:
            here, low = found[:, trees.nodes[level]], lower[:, level]
            found[:, trees.low[level]] = self.mul(here, low)
            found[:, trees.high[level]] = self.mul(here, self.sub(ONE, low))
        return found

    def note_choices(self, x: Array, values: tuple[float, ...]) -> None:
        """Keep that elements stand for numbers of which each is one of a few, in rising order."""
        self._choices.update(dict.fromkeys(x.ravel().tolist(), values))

    def _lower(self, x: Array, trees: Decisions) -> Array:
        """[rows, nodes]: whether a number goes the lower way.

        Of a column that has a few numbers alone, thresholds between the same two are one decision.
        """
        largest, missing_low = trees.largest.copy(), trees.missing_low.copy()
        known: list[tuple[Array, Array]] = []
        for feature in np.unique(trees.features) if self._choices else ():
            found = {self._choices.get(int(e)) for e in x[:, feature]}
            values = found.pop() if len(found) == 1 else None
            if values is None:
                continue
            at = np.flatnonzero(trees.features == feature)
            below = np.searchsorted(values, np.nan_to_num(largest[at], nan=-np.inf), side="right")
            largest[at], missing_low[at] = np.take(values, np.maximum(below - 1, 0)), False
            known += [(at[below == 0], np.array([[0]])), (at[below == len(values)], np.array([[1]]))]
            if values == (0.0, 1.0):
                known.append((at[below == 1], self.sub(ONE, x[:, [feature]])))
        lower = self.hash("lower", x[:, trees.features], self.from_float(largest), missing_low)
        for places, decided in known:
            lower[:, places] = decided
        return lower

    def rows(self, table: Array, indices: Array, axis: int = 0) -> Array:
        """Rows of a table for indices that are whole numbers."""
        return np.take(table, indices.astype(np.int64), axis)

    def take(self, table: Array, indices: Array, axis: int = 0) -> Array:
        """Rows of a table for indices that are elements: a function of the index and of all rows.

        Returns:
            Of shape table[:axis] + indices + table[axis + 1:].
        """
        columns = self.digest(table, axis)
        before, behind = columns.shape[:axis], columns.shape[axis:]
        columns = columns.reshape(*before, *(1,) * indices.ndim, *behind)
        return self.hash("take", columns, indices.reshape(*(1,) * axis, *indices.shape, *(1,) * len(behind)))


__all__ = ["ONE", "Decisions", "Field"]
