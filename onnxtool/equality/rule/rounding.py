"""How far a model's outputs move by rounding alone: what no comparison may call a difference.

A deep network amplifies the last bit of its early layers. Where the reference's own outputs move when only its
roundings change (the runtime's graph optimizations turned off or on, or the source in float64), a second model that
moves as little, in as few elements, is equal. Nothing is assumed: what was not measured is not accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from onnxtool.equality.rule.tolerance import (
    Scales,
    Tolerance,
    allowed_error,
    column_sums,
    groupings,
    most_rounding,
)
from onnxtool.errors import OnnxToolError
from onnxtool.runtime.feeds import Feeds, flatten
from onnxtool.runtime.runner import OnnxRunner, Runner
from onnxtool.runtime.session.session import SessionOptions

# A difference counts as rounding up to so many times what rounding does to the reference itself. One measurement is one
# draw of the largest of many errors; of two draws from one distribution the larger is rarely beyond twice the smaller.
FACTOR = 3.0
# Columns whose scales are within this factor are taken for one kind: so much do root mean squares of a few dozen
# numbers of one kind scatter.
ALIKE = 2.0
_CHUNK = 1 << 18


@dataclass
class RoundingNoise:
    """The reference once more, with other roundings; opened when it is first asked for.

    Attributes:
        open: makes a Runner that computes the same as the reference with other roundings; None when there is none.
    """

    open: Callable[[], Runner | None]
    _runner: Runner | None = None
    _opened: bool = False
    _last: tuple[Feeds, dict[str, Any]] | None = field(default=None, repr=False)

    def outputs(self, feeds: Feeds) -> dict[str, Any]:
        """What it gives for these feeds; nothing where it does not run."""
        if self._last is None or self._last[0] is not feeds:
            try:
                if not self._opened:
                    self._opened = True
                    self._runner = self.open()
                given = flatten(self._runner.run(feeds)) if self._runner is not None else {}
            except OnnxToolError:
                given = {}
            self._last = feeds, given
        return self._last[1]


def runtime_noise(model: Any, options: SessionOptions) -> RoundingNoise:
    """An ONNX model with the runtime's graph optimizations on where they were off, and off where they were on.

    Args:
        model: what `OnnxRunner.open` takes.
        options: how the reference was run.
    """
    other = replace(options, optimization="off" if options.optimization != "off" else "basic")
    return RoundingNoise(lambda: OnnxRunner.open(model, other))


@dataclass(frozen=True)
class ExcusedElements:
    """What rounding explains of one run.

    Attributes:
        elements: how many of those outside the tolerance.
        noise: how far rounding alone moves the reference, at most.
    """

    elements: int
    noise: float


NO_EXCUSE = ExcusedElements(0, 0.0)


def excuse(
    a: np.ndarray,
    b: np.ndarray,
    again: Sequence[Any],
    tolerance: Tolerance,
    scales: Scales,
    precision: str | None = None,
) -> ExcusedElements:
    """Which elements outside the tolerance are no further off than `FACTOR` times what rounding does to their column.

    A column may also borrow the noise of columns of at most `ALIKE` times its scale, and no more elements are excused
    than `FACTOR` times those in which the reference itself moves so far. Nothing further off than `most_rounding` of
    its column's scale is excused: a reference that moves as far tells nothing of what is right.

    Args:
        a: what the reference gave.
        b: what is judged, of the same shape.
        again: what the reference gave with other roundings, each time.
        tolerance: widened already.
        scales: of `a`'s columns.
        precision: the half-precision type that the reference computes in.
    """
    others = [np.asarray(other) for other in again]
    others = [other for other in others if other.shape == a.shape and other.dtype == a.dtype]
    if not others or a.dtype.kind in "OUSbiu":
        return NO_EXCUSE
    with np.errstate(all="ignore"):
        moved = np.max([np.where(np.isfinite(a) & np.isfinite(o), np.abs(a - o), 0) for o in others], axis=0)
    most = most_rounding(a.dtype.name, precision)
    shared = [(g, shared_noise(moved, g, p[2])) for g, p in zip(groupings(a.shape), scales.parts, strict=True)]
    noise = Scales(tuple((columns, inner, found) for (_, columns, inner), found in shared))
    beyond = excused = amplified = 0
    own = moved.reshape(-1)
    for part, error, allowed in errors(a, b, tolerance, scales):
        explained = np.minimum(FACTOR * noise.at(part.start, part.stop), most * scales.at(part.start, part.stop))
        wrong = error > allowed
        beyond += int(wrong.sum())
        excused += int((wrong & (error <= explained)).sum())
        amplified += int((FACTOR * own[part].astype(np.float64) > allowed).sum())
    if excused == 0 or beyond > FACTOR * amplified:
        return NO_EXCUSE
    return ExcusedElements(excused, float(moved.max()))


def right_with_exact_kernels(
    a: np.ndarray,
    b: np.ndarray,
    exact: Any,
    tolerance: Tolerance,
    scales: Scales,
    usual: float,
    precision: str | None = None,
) -> tuple[np.ndarray, ExcusedElements]:
    """Which elements outside the tolerance are within it where the same graph has exact kernels.

    Args:
        a: what the reference gave.
        b: what is judged, of the same shape.
        exact: what the judged graph gives with exact kernels, or None; no element further from `b` than
            `most_rounding` of `usual` is excused.
        tolerance, scales, precision: as of `excuse`.
        usual: the scale of the output's largest column on usual inputs.

    Returns:
        `b` with the reference's own number in place of these elements, and how many they are.
    """
    exact = np.asarray(exact)
    if exact.shape != a.shape or exact.dtype != a.dtype or a.dtype.kind in "OUSbiu":
        return b, NO_EXCUSE
    mended, count, largest = np.array(b), 0, 0.0
    most = usual * most_rounding(a.dtype.name, precision)
    moves = errors(exact, b, tolerance, scales)
    for (part, error, allowed), (_, better, _), (_, moved, _) in zip(
        errors(a, b, tolerance, scales), errors(a, exact, tolerance, scales), moves, strict=True
    ):
        excused = (error > allowed) & (better <= allowed) & (moved <= most)
        mended.reshape(-1)[part][excused] = a.reshape(-1)[part][excused]
        count += int(excused.sum())
        largest = max(largest, float(moved[excused].max(initial=0.0)))
    return mended, ExcusedElements(count, largest)


def errors(
    a: np.ndarray, b: np.ndarray, tolerance: Tolerance, scales: Scales
) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """|a - b| and what is allowed, in float64, for flat parts of two arrays of one shape; infinite where one is NaN.

    Args:
        a: the reference.
        b: what is judged.
        tolerance: widened already.
        scales: of `a`'s columns.
    """
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    flat = a.reshape(-1), b.reshape(-1)
    for start in range(0, a.size, _CHUNK):
        part = slice(start, min(start + _CHUNK, a.size))
        x, y = (f[part].astype(wide) for f in flat)
        with np.errstate(all="ignore"):
            error = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y))
        yield (
            part,
            np.where(np.isnan(error), np.inf, error),
            allowed_error(np.abs(x), tolerance, scales.at(part.start, part.stop)),
        )


def shared_noise(moved: np.ndarray, grouping: tuple[int, int, int], scale: np.ndarray) -> np.ndarray:
    """The noise of each column: its own largest, or that of a column of at most about its scale."""
    noise = column_sums(moved, grouping, largest=True)
    order = np.argsort(scale, kind="stable")
    most = np.maximum.accumulate(noise[order])
    return most[np.searchsorted(scale[order], ALIKE * scale, side="right") - 1]
