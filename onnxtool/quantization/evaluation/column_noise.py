"""Signal and noise of every column of an output, each on its own scale, and of what columns are used for together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass
class TotalShift:
    """Running sums over maps of one channel, [samples, 1, height, width] or the channel last."""

    sums: np.ndarray = field(default_factory=lambda: np.zeros(4))  # count, signal, its squares, noise
    least: float = 0.0

    def add(self, right: np.ndarray, noise: np.ndarray) -> None:
        """Take in a batch: what the float model gave, and how far the candidate is off."""
        if right.ndim != 4 or 1 not in (right.shape[1], right.shape[3]):
            return
        double = np.float64
        parts = right.sum(dtype=double), np.square(right, dtype=double).sum(), noise.sum(dtype=double)
        self.sums += [right.size, *parts]
        self.least = min(self.least, float(right.min()))

    @property
    def value(self) -> float | None:
        """By how much the sum of all maps is off; None where they are no amounts: below zero, or as high everywhere."""
        count, total, squares, noise = self.sums
        if not count or self.least < 0 or total <= 0:
            return None
        mean = total / count
        return float(abs(noise) / total) if squares / count > 2 * mean**2 else None  # scattered more than its mean


_LEAST, _MOST = 3, 32  # columns
_ORDERED = 0.99  # of the rows
_LEAST_ROWS = 16


@dataclass
class OrderedColumns:
    """Running sums over the differences of each column and the next, by axis."""

    sums: dict[int, np.ndarray] = field(default_factory=dict)  # axis -> rows, ordered ones, signal and noise power

    def add(self, right: np.ndarray, noise: np.ndarray) -> None:
        """Take in a batch: what the float model gave, and how far the candidate is off."""
        for axis in {1, right.ndim - 1}:
            if right.ndim < 2 or not _LEAST <= right.shape[axis] <= _MOST:
                continue
            steps, off = np.diff(right, axis=axis), np.diff(noise, axis=axis)
            ordered = (steps >= 0).all(axis=axis) & (steps > 0).any(axis=axis)
            powers = (np.square(a, dtype=np.float64).sum() for a in (steps, off))
            self.sums[axis] = self.sums.get(axis, np.zeros(4)) + np.array([ordered.size, ordered.sum(), *powers])

    @property
    def decibels(self) -> float | None:
        """Signal-to-noise ratio of the differences, dB; None where columns are in no order."""
        ratios = [
            10 * np.log10(signal / noise)
            for rows, ordered, signal, noise in self.sums.values()
            if rows >= _LEAST_ROWS and ordered >= _ORDERED * rows and noise > 0
        ]
        return float(min(ratios)) if ratios else None


# A column carries information when its values vary, in more than a few of the samples: the standard deviation against
# the mean, below which float32 itself has hardly a digit, and the least share of values that are not the usual one.
_VARIES = 1e-5
_LEAST_SHARE = 0.02
# Of many columns, one that varies so much less than the median one is a dead feature: rounding of what was added up.
_MANY = 32
_DEAD = 1e-5
_ALIKE = 8  # columns, from which on their mean says something


@dataclass
class ColumnNoise:
    """Running sums for each column (channel, target) of one output.

    Attributes:
        sums: number of columns -> [count, sum, sum of squares, noise power, values other than 0] by column.
    """

    sums: dict[int, np.ndarray] = field(default_factory=dict)

    def add(self, right: np.ndarray, noise: np.ndarray, axis: int | None) -> None:
        """Take in a batch.

        Args:
            right: what the float model gave.
            noise: how far the candidate is off, of the same shape.
            axis: the axis of the columns; None takes all for one.
        """
        a, n = (
            x.reshape(1, -1) if axis is None else np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1)
            for x in (right, noise)
        )
        double = np.float64
        parts = np.stack(
            [
                np.full(len(a), float(a.shape[1])),
                a.sum(1, dtype=double),
                np.square(a, dtype=double).sum(1),
                np.square(n, dtype=double).sum(1),
                (a != 0).sum(1).astype(double),
            ]
        )
        kept = self.sums.get(len(a))
        self.sums[len(a)] = parts if kept is None else kept + parts

    @property
    def together(self) -> float | None:
        """Signal-to-noise ratio of all columns together, each without its mean, dB; None without either."""
        parts = [
            (np.maximum(squares / count - (total / count) ** 2, 0).sum(), (noise / count).sum())
            for count, total, squares, noise, _ in self.sums.values()
        ]
        signal, noise = (float(sum(part)) for part in zip(*parts, strict=True)) if parts else (0.0, 0.0)
        return 10 * float(np.log10(signal / noise)) if signal > 0 and noise > 0 else None

    def decibels(self, *, alike: bool = False) -> list[tuple[int, float]]:
        """(column, signal-to-noise ratio in dB) of every column that carries information, the worst first.

        A column's mean is not a signal. Columns that are constant in the float model are left out, and of many those
        that are next to constant beside the others.

        Args:
            alike: the columns are of one kind and on one scale: none's signal is taken for less than the mean one's.
        """
        found = []
        for count, total, squares, noise, filled in self.sums.values():
            mean = total / count
            variance = np.maximum(squares / count - mean**2, 0)
            telling = (variance > (_VARIES * np.abs(mean)) ** 2) & (filled >= _LEAST_SHARE * count)
            telling &= variance > 0
            if len(variance) >= _MANY:
                telling &= variance > _DEAD**2 * np.median(variance)
            with np.errstate(divide="ignore", invalid="ignore"):  # of columns that are left out
                signal = np.maximum(variance, variance.mean()) if alike and len(variance) >= _ALIKE else variance
                ratio = 10 * np.log10(signal / (noise / count))
            found += [(int(i), float(ratio[i])) for i in np.flatnonzero(telling)]
        return sorted(found, key=lambda pair: pair[1])


_SPREADS_ALIKE = 10.0  # the spread of the 95th percentile of columns against that of the 5th
_MANY_ROWS, _FEW_ROWS_MORE = 32, 4  # of fewer rows, a class that none of them is of hardly varies
_UNIT_ROWS = 8  # rows, from which on their lengths tell something
_SAME_LENGTH = 1e-3  # relative spread of the lengths of rows


def _rows_of(outputs: Sequence[np.ndarray]) -> np.ndarray | None:
    """A matrix or sequence output as float64 [rows, columns]; None of other ranks and of widths that change."""
    if any(a.dtype.kind != "f" or a.ndim not in (2, 3) or not a.size for a in outputs):
        return None
    if len({a.shape[-1] for a in outputs}) != 1:
        return None
    return np.concatenate([a.reshape(-1, a.shape[-1]) for a in outputs]).astype(np.float64)


def are_alike(outputs: Sequence[np.ndarray]) -> bool:
    """Whether the columns of an output vary about as much as one another: those of different units hardly do.

    True where it is no matrix, and nothing can be told.
    """
    rows = _rows_of(outputs)
    if rows is None:
        return True
    spread = rows.std(axis=0)
    spread = spread[spread > _VARIES * np.abs(rows.mean(axis=0))]
    if len(spread) < 2:
        return True
    low, high = np.percentile(spread, (5, 95))
    return bool(high <= _SPREADS_ALIKE * (1 if len(rows) >= _MANY_ROWS else _FEW_ROWS_MORE) * low)


def are_of_one_length(outputs: Sequence[np.ndarray]) -> bool:
    """Whether all rows have the same length: they were divided by it, which only makes sense for vectors."""
    rows = _rows_of(outputs)
    if rows is None or len(rows) < _UNIT_ROWS:
        return False
    lengths = np.linalg.norm(rows, axis=1)
    return bool(lengths.min() > 0 and np.ptp(lengths) <= _SAME_LENGTH * lengths.mean())


def column_axis(shape: tuple[int, ...]) -> int | None:
    """The axis whose elements are different things: the last of a matrix; of more dims axis 1, or the last.

    Of three dims the shorter of the two (4 box coordinates beside 8400 places, in either order); pictures have their
    channels in axis 1 unless the last dim is that of three or four colours.
    """
    if len(shape) < 2:
        return None
    if len(shape) == 2:
        return 1
    if len(shape) == 3:
        return 1 if shape[1] <= shape[2] else 2
    return len(shape) - 1 if shape[-1] <= 4 < shape[1] else 1


def columns_of(array: np.ndarray) -> np.ndarray:
    """An output as [columns, values]."""
    columns = np.moveaxis(np.atleast_1d(array), column_axis(array.shape) or 0, 0)
    return columns.reshape(len(columns), -1)


def within_scores(outputs: Sequence[np.ndarray]) -> np.ndarray:
    """Which columns of an output lie within [0, 1] in all batches, bool; one for all where their number varies."""
    if any(a.dtype.kind != "f" or not a.size for a in outputs):
        return np.zeros(1, bool)
    alike = outputs[0].ndim > 1 and len({len(columns_of(a)) for a in outputs}) == 1
    batches = [columns_of(a) if alike else a.reshape(1, -1) for a in outputs]
    low = np.min([a.min(axis=1) for a in batches], axis=0)
    return np.asarray((low >= 0) & (np.max([a.max(axis=1) for a in batches], axis=0) <= 1))
