"""The one rule on how far two tensors may be apart; docs/equality.md gives it with its reasons.

Every element of a float output may be off by `rtol` times its own magnitude plus `atol` times the scale of its column:
the root mean square of the reference's values in that column, in that run. Integers, booleans and strings are equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

RTOL, ATOL = 1e-3, 1e-5

# Distance from 1 to the next number: float16 has 10 bits of fraction, bfloat16 has 7, float32 has 23 (IEEE 754-2019,
# table 3.5; bfloat16 as in Kalamkar et al. 2019).
_STEP = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
_STEP_FLOAT32 = 2.0**-23
# Two correct implementations in half precision differ by a few rounding steps: each rounds every inner tensor by half
# a step, and 64 independent roundings (an average network has fewer layers) add up to sqrt(64) / 2 = 4 on either side.
HALF_STEPS = 8
# What rounding may excuse at most, as a share of the column's scale, whatever was measured: in float32 ten times RTOL.
# Half precision by its own steps: four times what is allowed anyway.
MOST_ROUNDING = 1e-2
MOST_HALF_STEPS = 4 * HALF_STEPS
# The least scale of a column beside others of about one, so that atol never asks for less than one rounding step of
# 1.0 in float32: a column of 1e-7 computed from numbers around one holds nothing but their rounding.
LEAST_SCALE = _STEP_FLOAT32 / ATOL
# With n numbers drawn around zero, the root mean square comes out below the t-th part of the true one with probability
# of about t**-n. Of C columns the smallest is therefore by chance C**(1/n) too small; 100 makes that 1 in 100.
CHANCE = 100.0
# A grouping of so many numbers each tells their scale to about a third.
ENOUGH = 8
# Of more numbers in a column, chance explains next to nothing: 1000 columns of 512 are within 1.023 of each other.
_FEW = 512
_ALIKE = 1e-5  # of the largest element
# The smallest normal float32: what lies below it may be flushed to zero, by vector units and by choice.
_FLUSHED = 2.0**-126
# Elements looked at in one go: a dozen arrays of doubles are needed for each.
_CHUNK = 1 << 18


@dataclass(frozen=True)
class Tolerance:
    """How far floats may be apart: `rtol` of the element itself, `atol` of its column's scale.

    Attributes:
        rtol: relative to the reference's element.
        atol: relative to the scale of its column; with `absolute`, in the output's own units.
        integer_steps: how far apart integers may be that stand for quantized numbers; 0 for all others.
        absolute: `atol` is in the output's own units, as a user gives it for one output.
        bits: equal to the last bit, the sign of zero included; NaN is equal to NaN.
        alone: the user gave it for one output: nothing widens it, and nothing is excused.
        least_scale: what a column's scale is at least, as a share of the largest column's, or of one.
    """

    rtol: float = RTOL
    atol: float = ATOL
    integer_steps: int = 0
    absolute: bool = False
    bits: bool = False
    alone: bool = False
    least_scale: float = LEAST_SCALE

    def widened(self, *dtypes: str | None) -> Tolerance:
        """With what rounding in half precision does, where one of the types is such; never narrower.

        Args:
            dtypes: of the output ("float16"), and the narrowest that the model computes in.
        """
        step = max((_STEP.get(d or "", 0.0) for d in dtypes), default=0.0)
        if not step or self.bits or self.alone or not (self.rtol or self.atol):
            return self
        return replace(self, rtol=max(self.rtol, HALF_STEPS * step), atol=max(self.atol, HALF_STEPS * step))

    def __str__(self) -> str:
        if self.bits:
            return "equal to the last bit"
        scale = "" if self.absolute else " x root mean square of a's column"
        return f"|a - b| <= {self.rtol:g} |a| + {self.atol:g}{scale}"


BITS = Tolerance(0.0, 0.0, bits=True)
NUMBERS = Tolerance(0.0, 0.0)  # the same numbers: of zeros, the sign may differ


def rounding_step(dtype: np.dtype[Any]) -> float:
    """Relative distance of two neighbouring numbers of a float type; float32's for all wider types."""
    return _STEP.get(dtype.name, _STEP_FLOAT32)


def most_rounding(*dtypes: str | None) -> float:
    """The largest share of its column's scale that an element may be off and still be put down to rounding.

    Args:
        dtypes: of the output ("float16"), and the narrowest that the model computes in.
    """
    return max(MOST_ROUNDING, MOST_HALF_STEPS * max((_STEP.get(d or "", 0.0) for d in dtypes), default=0.0))


def rule_text(tolerance: Tolerance, precision: str | None = None) -> str:
    """The rule as it is applied, in one line for the reports.

    Args:
        tolerance: as asked for.
        precision: the half-precision type that the reference computes in.
    """
    applied = tolerance.widened(precision)
    why = f" ({HALF_STEPS} rounding steps of {precision})" if applied != tolerance else ""
    return f"floats {applied}{why}; shapes, types, integers and text equal"


def groupings(shape: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """The ways in which a tensor falls into columns, each as (outer, columns, inner).

    Vectors are one column. Matrices have their last dim. From three dims on both axis 1 (channels of a picture or
    signal) and the last axis (features of a token, channels of a channels-last picture) are columns, and an element
    has to fit the smaller of its two scales: the layout need not be known. A grouping with fewer than `ENOUGH` numbers
    a column tells little, and gives way to one with more.
    """
    size = int(np.prod(shape, dtype=np.int64))
    if len(shape) < 2:
        return [(size, 1, 1)]
    found = [(size // shape[-1], shape[-1], 1), (shape[0], shape[1], int(np.prod(shape[2:], dtype=np.int64)))]
    most = max(outer * inner for outer, _, inner in found)
    return [g for g in dict.fromkeys(found) if g[0] * g[2] >= min(ENOUGH, most)]


def column_sums(values: np.ndarray, grouping: tuple[int, int, int], *, largest: bool = False) -> np.ndarray:
    """Root mean square (or the largest magnitude) of the finite values of each column, in float64.

    Args:
        values: any shape; floats or complex.
        grouping: as `groupings` gives it.
        largest: the largest instead.

    Returns:
        One number for each column; 0 where nothing is finite.
    """
    outer, columns, inner = grouping
    total, count = np.zeros(columns), np.zeros(columns)
    for part in _blocks(np.ascontiguousarray(values).reshape(outer, columns, inner)):
        magnitude = np.abs(part if part.dtype.kind == "c" else part.astype(np.float64)).astype(np.float64, copy=False)
        finite = np.isfinite(magnitude)
        if not finite.all():
            magnitude[~finite] = 0.0
        if largest:
            total = np.maximum(total, magnitude.max(axis=(0, 2)))
        else:
            with np.errstate(over="ignore"):
                total += np.einsum("ijk,ijk->j", magnitude, magnitude)
            count += finite.sum(axis=(0, 2))
    return total if largest else np.sqrt(total / np.maximum(count, 1))


def distinct_numbers(values: np.ndarray, grouping: tuple[int, int, int]) -> int:
    """How many numbers of a column are not copies of others: rows that are all alike tell no more than one.

    Args:
        values: any shape.
        grouping: as `groupings` gives it.
    """
    outer, columns, inner = grouping
    if outer * inner > _FEW:
        return outer * inner
    rows = (
        np.ascontiguousarray(values).reshape(outer, columns, inner).transpose(0, 2, 1).reshape(outer * inner, columns)
    )
    rows = rows.astype(np.complex128 if rows.dtype.kind == "c" else np.float64)
    magnitude = np.abs(rows)
    finite = np.isfinite(magnitude)
    if not finite.all():
        rows[~finite] = magnitude[~finite] = 0.0
    with np.errstate(all="ignore"):  # alike but for rounding is alike
        steps = np.round((rows + 0.0) / (float(magnitude.max(initial=0.0)) * _ALIKE or 1.0))
    return len({row.tobytes() for row in steps})


def _blocks(cube: np.ndarray) -> Iterator[np.ndarray]:
    """Parts of [outer, columns, inner] with all columns and a bounded number of elements."""
    outer, columns, inner = cube.shape
    wide = max(1, _CHUNK // max(columns, 1))
    step = max(1, wide // max(inner, 1))
    for i in range(0, outer, step):
        for k in range(0, inner, wide):
            yield cube[i : i + step, :, k : k + wide]


@dataclass(frozen=True)
class Scales:
    """The scale of every element's column, in one run.

    Attributes:
        parts: (columns, numbers between two of them in memory, scale of each) for each grouping.
    """

    parts: tuple[tuple[int, int, np.ndarray], ...]

    def at(self, start: int, stop: int) -> np.ndarray:
        """The smaller of each element's scales, for a flat part of the tensor."""
        index = np.arange(start, stop)
        found = [scale[(index // inner) % columns] for columns, inner, scale in self.parts]
        return np.asarray(found[0] if len(found) == 1 else np.minimum(*found))


@dataclass
class ColumnScales:
    """Measures the scale of each column, run by run.

    A column with few numbers in a run may come out small by chance (one logit that happens to be near zero), and then
    is given the benefit of the runs before and of the median column, as far as chance can explain.
    """

    _history: dict[tuple[int, int], list[tuple[np.ndarray, int]]] = field(default_factory=dict)
    _usual: list[float] = field(default_factory=list)

    def add(self, reference: Any, least: float = LEAST_SCALE) -> Scales:
        """The scales for this run, which counts among those so far.

        Args:
            reference: what the reference gave: floats or complex, not empty.
            least: as `Tolerance.least_scale`.
        """
        array = np.asarray(reference)
        parts = []
        for place, grouping in enumerate(groupings(array.shape)):
            _, columns, inner = grouping
            own = column_sums(array, grouping)
            known = self._history.setdefault((place, columns), [])
            known.append((own, distinct_numbers(array, grouping)))
            if not place:
                self._usual.append(float(own.max()))
            parts.append((columns, inner, self._scale(own, known, least)))
        return Scales(tuple(parts))

    @property
    def largest(self) -> float:
        """The scale of the largest column of the first run; 0 before it."""
        return self._usual[0] if self._usual else 0.0

    def _scale(self, own: np.ndarray, known: list[tuple[np.ndarray, int]], least: float) -> np.ndarray:
        largest = max(float(own.max()), float(_median(np.array(self._usual))))
        usual = np.maximum(own, _median(np.array([o for o, _ in known])))
        numbers = sum(n for _, n in known)
        chance = (CHANCE * len(own)) ** (1 / max(numbers, 1))
        scale = np.maximum(usual, np.minimum(_median(usual), chance * usual))
        scale = np.maximum(scale, least * min(1.0, largest))
        return np.where(np.isfinite(scale), scale, 0.0)


def _median(numbers: np.ndarray) -> np.ndarray:
    """Along the first axis, of numbers without NaN: numpy's own takes ten times as long for a few."""
    ordered = np.sort(numbers, axis=0)
    return np.asarray((ordered[(len(numbers) - 1) // 2] + ordered[len(numbers) // 2]) / 2)


def allowed_error(magnitude: np.ndarray, tolerance: Tolerance, scale: np.ndarray | float) -> np.ndarray:
    """How far each element may be off.

    Args:
        magnitude: |a| in float64, any shape.
        tolerance: widened already.
        scale: of each element's column.

    Returns:
        Same shape as `magnitude`; 0 where nothing finite is allowed.
    """
    with np.errstate(all="ignore"):
        absolute = tolerance.atol * (1.0 if tolerance.absolute else np.asarray(scale))
        allowed = absolute + tolerance.rtol * magnitude + (_FLUSHED if tolerance.atol > 0 else 0.0)
        return np.asarray(np.where(np.isfinite(allowed), allowed, 0.0))
