"""How far two tensors are apart, and whether that is acceptable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxtool.equality.rule.rounding import ExcusedElements, errors, excuse, right_with_exact_kernels
from onnxtool.equality.rule.tolerance import NUMBERS, ColumnScales, Scales, Tolerance, allowed_error
from onnxtool.report.compare import DECADES, LOWEST_DECADE, TensorDifference

# Elements looked at in one go: a dozen arrays of doubles are needed for each.
_CHUNK = 1 << 18
# Stands for a difference in the sign of zero alone.
_SIGN_ONLY = float(np.finfo(np.float32).tiny)


@dataclass
class Difference:
    """Accumulates the difference of one tensor over several runs, in constant memory beside the tensors.

    Sums are kept in float64. Equal infinities and NaN against NaN count as equal.

    Attributes:
        precision: the half-precision type that the reference computes in, None for float32 and wider.
        declared: the element type that the output is to have, where the reference may give a wider one (frameworks
            compute in doubles and declare what the file holds); "" for any of the same kind; None for the reference's.
        usual_scale: of the largest column, in a run of usual inputs; 0 where there was none.
    """

    name: str
    tolerance: Tolerance
    dtype: str = ""
    shape: tuple[int, ...] = ()
    runs: int = 0
    total: int = 0
    mismatched: int = 0
    max_abs: float = 0.0
    max_rel: float = 0.0
    _abs_sum: float = 0.0
    _signal: float = 0.0
    _noise: float = 0.0
    _dot: float = 0.0
    _other: float = 0.0
    _excess: float = field(default=-np.inf)
    worst_index: tuple[int, ...] | None = None
    worst_run: int = 0
    expected: Any = None
    actual: Any = None
    note: str | None = None
    max_ulp: int | None = None
    nans: tuple[int, int] = (0, 0)
    infinities: tuple[int, int] = (0, 0)
    decades: np.ndarray = field(default_factory=lambda: np.zeros(DECADES + 1, np.int64))
    top_k: int = 5
    precision: str | None = None
    usual_scale: float = 0.0
    declared: str | None = None
    excused: int = 0
    rounding: float = 0.0
    ties: int = 0
    finite: int = 0
    _rows: int = 0
    _same_rows: int = 0
    _shared: float = 0.0
    _ranked: int = 0
    _columns: ColumnScales = field(default_factory=ColumnScales)

    def add(
        self,
        a: Any,
        b: Any,
        again: Callable[[], Sequence[Any]] = tuple,
        exact: Callable[[], Any] = lambda: None,
    ) -> None:
        """Take in one run.

        Args:
            a: what is right.
            b: what is judged.
            again: gives what is right with other roundings; called only where `b` is outside the tolerance.
            exact: gives what is judged with exact kernels, None where that is not known; called as `again` is.
        """
        run = self.runs
        self.runs += 1
        a, b = np.asarray(a), np.asarray(b)
        self.dtype, self.shape = type_name(a), a.shape
        if not self._same_type(a, b):
            self._fail(f"{self.declared or type_name(a)} against {type_name(b)}", a.size)
            return
        if a.shape != b.shape:
            self._fail(f"shape {list(a.shape)} against {list(b.shape)}", a.size)
            return
        self.total += a.size
        if a.size == 0:
            return
        if a.dtype.kind in "OUS":
            self._add_exact(a, b, run)
            return
        before = self.mismatched
        tolerance = self.tolerance.widened(a.dtype.name, self.precision)
        scales = None if a.dtype.kind in "biu" or tolerance.bits else self._columns.add(a, tolerance.least_scale)
        flat = a.reshape(-1), b.reshape(-1)
        for start in range(0, a.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            self._add_numbers((flat[0][part], flat[1][part]), (a, b), start, tolerance, scales)
        self._add_extras(a, b)
        if scales is None or self.mismatched == before:
            return
        usual = max(self.usual_scale, self.largest_scale)
        b, found = right_with_exact_kernels(a, b, exact(), tolerance, scales, usual, self.precision)
        self._excuse(found)
        if self.mismatched - before > found.elements:
            self._excuse(excuse(a, b, again(), tolerance, scales, self.precision))

    def _excuse(self, found: ExcusedElements) -> None:
        self.excused += found.elements
        self.rounding = max(self.rounding, found.noise)

    def _same_type(self, a: np.ndarray, b: np.ndarray) -> bool:
        if type_name(a) == type_name(b) or self.declared is None:
            return type_name(a) == type_name(b)
        return _family(a) == _family(b) and self.declared in ("", type_name(b))

    @property
    def largest_scale(self) -> float:
        """Of the largest column, in the first run."""
        return self._columns.largest

    def excuse_ties(self, count: int) -> None:
        """Of the indices that differ, so many have scores that tie in the reference."""
        self.excused += count
        self.ties += count

    @property
    def is_zero(self) -> bool:
        """Whether both sides were zero in every run."""
        return self._signal == 0 and self._other == 0

    def _add_extras(self, a: np.ndarray, b: np.ndarray) -> None:
        """NaN and infinity counts, distance in units in the last place, agreement of the best class of each row."""
        if a.dtype.kind == "f" and b.dtype.kind == "f":
            if not (np.isfinite(a).all() and np.isfinite(b).all()):
                self.nans = (self.nans[0] + int(np.isnan(a).sum()), self.nans[1] + int(np.isnan(b).sum()))
                infinite = (int(np.isinf(a).sum()), int(np.isinf(b).sum()))
                self.infinities = (self.infinities[0] + infinite[0], self.infinities[1] + infinite[1])
            alike = bool((a == b).all())
            if a.dtype == b.dtype and a.dtype.itemsize <= 4:
                self.max_ulp = self.max_ulp or 0
                x, y = a.reshape(-1), b.reshape(-1)
                for start in range(0, 0 if alike else a.size, _CHUNK):
                    part = slice(start, start + _CHUNK)
                    self.max_ulp = max(self.max_ulp, ulp_distance(x[part], y[part]))
            if a.ndim >= 2 and a.shape[-1] >= 2 and not any(self.nans):
                rows = a.size // a.shape[-1]
                self._rows += rows
                self._same_rows += rows if alike else int((a.argmax(axis=-1) == b.argmax(axis=-1)).sum())
                if 1 < self.top_k < a.shape[-1]:
                    self._ranked += rows
                    shape = (rows, a.shape[-1])
                    self._shared += rows if alike else shared_top(a.reshape(shape), b.reshape(shape), self.top_k)

    def _fail(self, note: str, count: int) -> None:
        self.note = self.note or note
        self.total += count
        self.mismatched += max(count, 1)
        self.max_abs = self.max_rel = np.inf

    def _add_exact(self, a: np.ndarray, b: np.ndarray, run: int) -> None:
        different = a.astype(str) != b.astype(str)
        count = int(different.sum())
        if count and self.worst_index is None:
            self._remember(a, b, int(np.argmax(different)), run)
            self.max_abs = self.max_rel = np.inf
        self.mismatched += count
        equal = float(a.size - count)
        self._signal += a.size
        self._other += a.size
        self._dot += equal
        self._noise += count
        self._abs_sum += count

    def _add_numbers(
        self,
        parts: tuple[np.ndarray, np.ndarray],
        whole: tuple[np.ndarray, np.ndarray],
        start: int,
        tolerance: Tolerance,
        scales: Scales | None,
    ) -> None:
        """Take in a flat part of the tensors, which begins at `start`."""
        a, b = parts
        exact = a.dtype.kind in "biu"
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        with np.errstate(all="ignore"):
            x, y = a.astype(wide), b.astype(wide)
            same = a == b if exact else x == y  # int64 beyond 2**53 is not exact in float64
            if tolerance.bits and not exact:
                same &= np.signbit(x.real) == np.signbit(y.real)
            if not same.all():
                same |= np.isnan(x) & np.isnan(y)
        error = np.zeros(x.shape)
        excess = -np.inf, start
        if same.all():
            self.decades[0] += a.size
        else:
            error, excess = self._add_errors(x, y, ~same, start, tolerance, scales, exact=exact)
        if excess[0] > self._excess or self.worst_index is None:
            self._excess = excess[0]
            self._remember(*whole, excess[1], self.runs - 1)
        known = np.isfinite(x)
        self.finite += int(known.sum())
        finite = known & np.isfinite(y)
        if not finite.all():
            self._abs_sum = np.inf
            x, y, error = x[finite], y[finite], error[finite]
        with np.errstate(over="ignore"):  # doubles whose squares are infinite
            self._abs_sum += float(error.sum())
            self._signal += float((np.abs(x) ** 2).sum())
            self._other += float((np.abs(y) ** 2).sum())
            self._noise += float((error**2).sum())
            self._dot += float((x * np.conj(y)).sum().real)

    def _add_errors(
        self,
        x: np.ndarray,
        y: np.ndarray,
        differs: np.ndarray,
        start: int,
        tolerance: Tolerance,
        scales: Scales | None,
        *,
        exact: bool,
    ) -> tuple[np.ndarray, tuple[float, int]]:
        """Take in a flat part in which some elements differ: all errors, and the excess and place of the worst."""
        with np.errstate(all="ignore"):
            magnitude = np.abs(x)
            error = np.where(differs, np.abs(x - y), 0.0)
            error[np.isnan(error)] = np.inf
            if exact:
                error[differs] = np.maximum(error[differs], 1.0)
            if tolerance.bits:
                over = np.maximum(error, _SIGN_ONLY)
            elif scales is None:
                over = error - tolerance.integer_steps
            else:
                over = error - allowed_error(magnitude, tolerance, scales.at(start, start + x.size))
            over[~differs] = -np.inf
            known = differs & np.isfinite(magnitude) & (magnitude > 0)
            self.max_rel = max(self.max_rel, float((error[known] / magnitude[known]).max(initial=0.0)))
        self.decades += error_decades(error)
        self.mismatched += int((over > 0).sum())
        self.max_abs = max(self.max_abs, float(error.max()))
        worst = int(np.argmax(over))
        return error, (float(over[worst]), start + worst)

    def _remember(self, a: np.ndarray, b: np.ndarray, flat: int, run: int) -> None:
        index = np.unravel_index(flat, a.shape)
        self.worst_index, self.worst_run = tuple(int(i) for i in index), run
        self.expected, self.actual = _scalar(a[index]), _scalar(b[index])

    @property
    def cosine(self) -> float:
        """Cosine similarity over all runs; 1 when both sides are all zero."""
        if self.note:
            return 0.0
        norm = (self._signal * self._other) ** 0.5
        return 1.0 if norm == 0 and self._noise == 0 else (self._dot / norm if norm > 0 else 0.0)

    @property
    def sqnr_db(self) -> float:
        """Signal-to-quantization-noise ratio in dB over all runs; infinite when equal."""
        if self.note:
            return -np.inf
        if self._noise == 0:
            return np.inf
        return float(10 * np.log10(max(self._signal, 1e-300) / self._noise))

    def result(self, other_name: str | None = None) -> TensorDifference:
        """The frozen outcome."""
        note = self.note
        if self.mismatched != self.excused:
            pass  # what differs is told by its values
        elif self.ties:
            note = f"{self.ties} of {self.total} indices differ where the reference's own scores tie within rounding"
        elif self.excused:
            note = (
                f"{self.excused} of {self.total} elements differ by up to {self.max_abs:.2g}; rounding alone moves "
                f"the reference by up to {self.rounding:.2g}"
            )
        return TensorDifference(
            name=self.name,
            dtype=self.dtype,
            shape=self.shape,
            ok=self.mismatched == self.excused,  # another type or shape counts too, and nothing excuses it
            max_abs=self.max_abs,
            max_rel=self.max_rel,
            mean_abs=self._abs_sum / self.total if self.total else 0.0,
            cosine=self.cosine,
            sqnr_db=self.sqnr_db,
            mismatched=self.mismatched,
            total=self.total,
            worst_index=self.worst_index,
            worst_run=self.worst_run,
            expected=self.expected,
            actual=self.actual,
            other_name=other_name,
            note=note,
            error_decades=tuple(int(n) for n in self.decades),
            max_ulp=self.max_ulp,
            nans=self.nans,
            infinities=self.infinities,
            top1=self._same_rows / self._rows if self._rows else None,
            top_k=self._shared / self._ranked if self._ranked else None,
            excused=self.excused,
        )


def type_name(array: np.ndarray) -> str:
    """The element type; all kinds of text are "string"."""
    return "string" if array.dtype.kind in "OUS" else array.dtype.name


def _family(array: np.ndarray) -> str:
    kind = array.dtype.kind
    return "text" if kind in "OUS" else "integers" if kind in "iu" else "floats" if kind in "fV" else kind


def repeats(a: Any, b: Any, tolerance: Tolerance = NUMBERS) -> bool:
    """Whether two runs of one model gave the same numbers, or such within a tolerance; NaN agrees with NaN."""
    entry = Difference("", tolerance)
    entry.add(a, b)
    return not entry.mismatched and entry.note is None


def agrees(a: np.ndarray, b: np.ndarray, tolerance: Tolerance, precision: str | None = None) -> bool:
    """The verdict on one pair of float tensors of one shape, as `Difference` gives it, without its figures.

    Args:
        a: the reference.
        b: what is judged; another float type is taken for what its numbers are.
        tolerance: for floats.
        precision: the half-precision type that the reference computes in.
    """
    return not any(part.any() for part in _outside(a, b, tolerance, precision))


def unequal(a: np.ndarray, b: np.ndarray, tolerance: Tolerance) -> np.ndarray:
    """bool, of the shape of both, which are not empty: where they differ; floats beyond the tolerance."""
    if a.dtype.kind in "OUSbiu":
        return np.asarray(a.astype(str) != b.astype(str))
    return np.concatenate([*_outside(a, b, tolerance)]).reshape(a.shape)


def _outside(a: np.ndarray, b: np.ndarray, tolerance: Tolerance, precision: str | None = None) -> Iterator[np.ndarray]:
    """Which elements lie outside of the tolerance, in flat parts."""
    applied = tolerance.widened(a.dtype.name, precision)
    scales = ColumnScales().add(a, tolerance.least_scale)
    for _, error, allowed in errors(a, b, applied, scales):
        yield ~(error <= allowed)


def shared_top(a: np.ndarray, b: np.ndarray, k: int) -> float:
    """Sum over rows of the share of A's k largest elements that are among B's k largest too.

    Equal elements stand in for one another: what counts is whether A's value at B's place is among A's k largest.
    """
    found = 0
    step = max(1, _CHUNK // a.shape[-1])
    for x, y in ((a[i : i + step], b[i : i + step]) for i in range(0, len(a), step)):
        chosen = np.argpartition(y, -k, axis=-1)[:, -k:]
        least = np.partition(x, -k, axis=-1)[:, -k, None]
        found += int((np.take_along_axis(x, chosen, axis=-1) >= least).sum())
    return found / k


def error_decades(error: np.ndarray) -> np.ndarray:
    """How many errors are exactly zero, then how many lie in each decade; see `TensorDifference.error_decades`."""
    counts = np.zeros(DECADES + 1, np.int64)
    some = error[error > 0]
    counts[0] = error.size - some.size
    if some.size:
        with np.errstate(all="ignore"):
            place = np.where(np.isfinite(some), np.floor(np.log10(some)), np.inf)
        counts[1:] = np.bincount(np.clip(place - LOWEST_DECADE, 0, DECADES - 1).astype(int), minlength=DECADES)
    return counts


def ulp_distance(a: np.ndarray, b: np.ndarray) -> int:
    """Largest number of representable floats between a and b; pairs with NaN on either side are left out.

    Args:
        a, b: float16 or float32, of one shape.

    Source: Dawson 2012, "Comparing floating point numbers": as integers, floats of one sign are in order.
    """
    width = np.int16 if a.dtype.itemsize == 2 else np.int32
    known = ~(np.isnan(a) | np.isnan(b))
    if not known.any():
        return 0
    places = []
    for array in (a, b):
        bits = np.ascontiguousarray(array[known]).view(width).astype(np.int64)
        places.append(np.where(bits < 0, np.iinfo(width).min - bits, bits))
    return int(np.abs(places[0] - places[1]).max())


def _scalar(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, complex):
        return str(value)
    return value if isinstance(value, (bool, int, float, str)) else str(value)
