"""Signal and noise of every column of an output, each on its own scale, and of what columns are used for together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from onnxtool.quantization.evaluation.bounds import CONFIDENCE, mean_bound, power_factor


@dataclass
class TotalShift:
    """Sums over maps of one channel, [samples, 1, height, width] or the channel last."""

    sums: np.ndarray = field(default_factory=lambda: np.zeros(3))  # count, signal, its squares
    off: list[float] = field(default_factory=list)  # noise of each sample
    least: float = 0.0

    def add(self, right: np.ndarray, noise: np.ndarray) -> None:
        """Take in a batch: what the float model gave, and how far the candidate is off."""
        if right.ndim != 4 or 1 not in (right.shape[1], right.shape[3]):
            return
        double = np.float64
        self.sums += [right.size, right.sum(dtype=double), np.square(right, dtype=double).sum()]
        self.off += noise.sum(axis=(1, 2, 3), dtype=double).tolist()
        self.least = min(self.least, float(right.min()))

    def value(self, confidence: float | None = None) -> float | None:
        """By how much the sum of all maps is off, at most where a confidence is given; None where they are no amounts:
        below zero, or as high everywhere.
        """
        count, total, squares = self.sums
        if not count or self.least < 0 or total <= 0:
            return None
        mean = total / count
        if squares / count <= 2 * mean**2:  # scattered no more than its mean
            return None
        off = np.array(self.off)
        if confidence is None or len(off) < 2:
            return float(abs(off.sum()) / total)
        return max(mean_bound(off, confidence), mean_bound(-off, confidence)) * len(off) / float(total)


_LEAST_COLUMNS = 2
_ORDERED = 0.99  # of the rows
_LEAST_ROWS = 16


@dataclass
class OrderedColumns:
    """Running sums over columns in ascending order (quantiles, a band from low to high), by axis."""

    sums: dict[int, np.ndarray] = field(default_factory=dict)  # axis -> rows, ordered, width and its noise, crossed

    def add(self, right: np.ndarray, noise: np.ndarray) -> None:
        """Take in a batch: what the float model gave, and how far the candidate is off."""
        for axis in {1, right.ndim - 1}:
            if right.ndim < 2 or right.shape[axis] < _LEAST_COLUMNS:
                continue
            steps, off = np.diff(right, axis=axis), np.diff(noise, axis=axis)
            ordered = (steps >= 0).all(axis=axis) & (steps > 0).any(axis=axis)
            powers = (np.square(a.sum(axis=axis), dtype=np.float64).sum() for a in (steps, off))
            crossed = ((steps + off < 0) & (steps > 0)).mean() * ordered.size
            seen = np.array([ordered.size, ordered.sum(), *powers, crossed])
            self.sums[axis] = self.sums.get(axis, np.zeros(5)) + seen

    @property
    def decibels(self) -> float | None:
        """Signal-to-noise ratio of the width from the first column to the last, dB, the share of steps that change
        their sign counted as noise; None where columns are in no order.
        """
        shares = [
            noise / width + crossed / rows
            for rows, ordered, width, noise, crossed in self.sums.values()
            if rows >= _LEAST_ROWS and ordered >= _ORDERED * rows and width > 0
        ]
        return float(-10 * np.log10(max(shares))) if shares and max(shares) > 0 else None


# A column carries information when its values vary, in more than a few of the samples: the standard deviation against
# the mean, below which float32 itself has hardly a digit, and the least share of values that are not the usual one.
_VARIES = 1e-5
_LEAST_SHARE = 0.02
# Of many columns, one that varies so much less than the median one is a dead feature: rounding of what was added up.
_MANY = 32
_DEAD = 1e-5
# A score that is always off, or always on: its column is judged on the scale of the others.
_OFF, _ON = 0.1, 0.9


class ColumnRatio(NamedTuple):
    """A column, its signal-to-noise ratio in dB, and that at least."""

    column: int
    db: float
    at_least: float


@dataclass
class ColumnNoise:
    """Running sums for each column (channel, target) of one output.

    Attributes:
        sums: number of columns -> [count, sum, sum of squares, noise power, values other than 0, squares of each
            sample's noise power] by column.
        samples: so many.
        powers: of the noise of each sample in all columns, with its square.
    """

    sums: dict[int, np.ndarray] = field(default_factory=dict)
    samples: int = 0
    powers: np.ndarray = field(default_factory=lambda: np.zeros(2))

    def add(
        self,
        right: np.ndarray,
        noise: np.ndarray,
        axis: int | None,
        batch: int | None = None,
    ) -> None:
        """Take in a batch.

        Args:
            right: what the float model gave.
            noise: how far the candidate is off, of the same shape.
            axis: the axis of the columns; None takes all for one.
            batch: the axis of the samples; None where the batch is one.
        """
        a, n, f = (_by_column(x, axis, batch) for x in (right, noise, right != 0))
        power = np.square(n, dtype=np.float64).sum(2)
        parts = np.stack(
            [
                np.full(len(a), a[0].size, np.float64),
                a.sum((1, 2), dtype=np.float64),
                np.square(a, dtype=np.float64).sum((1, 2)),
                power.sum(1),
                f.sum((1, 2), dtype=np.float64),
                np.square(power).sum(1),
            ]
        )
        kept = self.sums.get(len(a))
        self.sums[len(a)] = parts if kept is None else kept + parts
        self.samples += power.shape[1]
        self.powers += [power.sum(), np.square(power.sum(0)).sum()]

    def together(self, confidence: float = CONFIDENCE) -> ColumnRatio | None:
        """All columns together, each without its mean; None without signal or noise."""
        parts = [
            (np.maximum(squares / count - (total / count) ** 2, 0).sum(), (noise / count).sum())
            for count, total, squares, noise, *_ in self.sums.values()
        ]
        signal, noise = (float(sum(part)) for part in zip(*parts, strict=True)) if parts else (0.0, 0.0)
        if signal <= 0 or noise <= 0:
            return None
        db = 10 * float(np.log10(signal / noise))
        factor = power_factor(self.powers[0], self.powers[1], self.samples, confidence)
        return ColumnRatio(0, db, db - 10 * float(np.log10(factor)))

    def decibels(
        self, *, scores: bool = False, confidence: float = CONFIDENCE, signal_power: float | None = None
    ) -> list[ColumnRatio]:
        """Every column that carries information, the worst first.

        A column's mean is not a signal. Columns that are constant in the float model are left out, and of many those
        that are next to constant beside the others.

        Args:
            scores: all columns are on one scale: what is always off, or always on, has the mean one's signal.
            confidence: of what each has at least.
            signal_power: what noise is held against in place of each column's variance.
        """
        found = []
        for count, total, squares, noise, filled, powers in self.sums.values():
            with np.errstate(divide="ignore", invalid="ignore"):  # of columns that are left out
                mean = total / count
                variance = np.maximum(squares / count - mean**2, 0)
                telling = (variance > (_VARIES * np.abs(mean)) ** 2) & (filled >= _LEAST_SHARE * count)
                telling &= variance > 0
                if len(variance) >= _MANY:
                    telling &= variance > _DEAD**2 * np.median(variance)
                idle = scores & ((mean < _OFF) | (mean > _ON))
                signal = np.where(idle, np.maximum(variance, variance.mean()), variance)
                signal = signal if signal_power is None else np.full(len(mean), signal_power)
                ratio = 10 * np.log10(signal / (noise / count))
                least = ratio - 10 * np.log10(power_factor(noise, powers, self.samples, confidence))
            found += [ColumnRatio(int(i), float(ratio[i]), float(least[i])) for i in np.flatnonzero(telling)]
        return sorted(found, key=lambda one: one.at_least)


def _by_column(values: np.ndarray, axis: int | None, batch: int | None) -> np.ndarray:
    """[columns, samples, values] of an array with these axes."""
    if axis is None:
        return (
            values.reshape(1, 1, -1)
            if batch is None
            else np.moveaxis(values, batch, 0).reshape(1, values.shape[batch], -1)
        )
    if batch is None or batch == axis:
        return np.moveaxis(values, axis, 0).reshape(values.shape[axis], 1, -1)
    moved = np.moveaxis(values, (axis, batch), (0, 1))
    return moved.reshape(*moved.shape[:2], -1)


_EIGHTH = 8
_LEAST_VALUES = 16  # at each place, and in each sample


@dataclass
class PlaceNoise:
    """Noise by place and by sample of maps and sequences: a mean over all hides a noisy border, or a few noisy samples.

    Attributes:
        sums: shape of a sample -> for each axis of places, noise power [columns, places].
        samples: mean noise and mean signal power of each sample, [2, columns].
    """

    sums: dict[tuple[int, ...], list[np.ndarray]] = field(default_factory=dict)
    samples: list[np.ndarray] = field(default_factory=list)

    def add(self, right: np.ndarray, noise: np.ndarray, axis: int, batch: int) -> None:
        """Take in a batch: what the float model gave, how far the candidate is off, the axes of columns and samples."""
        a, n = (np.moveaxis(x, (batch, axis), (0, 1)).astype(np.float64) for x in (right, noise))
        if a[0, 0].size < _LEAST_VALUES:
            return
        power, places = np.square(n), tuple(range(2, n.ndim))
        self.samples += list(np.stack([power.mean(places), a.var(places)], axis=1))
        found = [power.sum((0, *(p for p in places if p != place))) for place in places]
        kept = self.sums.get(n.shape[1:])
        self.sums[n.shape[1:]] = found if kept is None else [x + y for x, y in zip(kept, found, strict=True)]

    def excess(self) -> np.ndarray:
        """By column, by how many dB the noisiest eighth of the places along an axis, or of the samples on their own
        scale, is above the mean; empty where there is too little of either.
        """
        if len(self.sums) != 1:
            return np.zeros(0)
        ((shape, profiles),) = self.sums.items()
        noise, signal = np.stack(self.samples, axis=1)  # [samples, columns]
        usual = signal.mean(0)
        with np.errstate(divide="ignore", invalid="ignore"):
            own = np.nan_to_num(noise / np.maximum(signal, usual)).T
            own /= np.nan_to_num(noise.mean(0) / usual)[:, None]
            places = [p / p.mean(1, keepdims=True) for p in profiles]
        values = [len(noise) * int(np.prod(shape[1:])) // p.shape[1] for p in places]
        told = [own, *(p for p, count in zip(places, values, strict=True) if count >= _LEAST_VALUES)]
        worst = np.ones(len(own))
        for one in told:
            if one.shape[1] >= _EIGHTH:
                worst = np.maximum(worst, np.nan_to_num(np.sort(one, axis=1)[:, -(one.shape[1] // _EIGHTH) :].mean(1)))
        return 10 * np.log10(worst)


_SPREADS_ALIKE = 10.0  # the spread of the 95th percentile of columns against that of the 5th
_MANY_ROWS, _FEW_ROWS_MORE = 32, 4  # of fewer rows, a class that none of them is of hardly varies
_UNIT_ROWS = 8  # rows, from which on their lengths tell something
_SAME_LENGTH = 1e-3  # spread of the lengths of rows, of that of rows


def _rows_of(outputs: Sequence[np.ndarray]) -> np.ndarray | None:
    """A matrix or sequence output as float64 [rows, columns]; None of other ranks and of widths that change."""
    if any(a.dtype.kind != "f" or a.ndim not in (2, 3) or not a.size for a in outputs):
        return None
    if len({a.shape[-1] for a in outputs}) != 1:
        return None
    return np.concatenate([a.reshape(-1, a.shape[-1]) for a in outputs]).astype(np.float64)


_SPAN, _DECADE = 5.0, 10.0  # of the 95th percentile against the 5th: the least that tells something, and one decade
_SURE = 0.5  # a score, of which more means "yes"
_MOST_VALUES = 4096  # of a column, that are looked at
DECADE_POWER = float((np.log(_DECADE) / (2 * 1.645)) ** 2)  # variance of the logarithm of what spans one decade
_LOST = float(np.log(2))  # what is off by a factor of two is lost, however far it is off: 20 dB are one in a hundred


def amounts_of(outputs: Sequence[np.ndarray], alike: bool, may_be_scores: bool = True) -> np.ndarray:
    """Which columns are amounts that are read in proportion, bool [columns]; empty where their number varies.

    They are above zero everywhere, spread wide, and their logarithms spread more evenly to both sides of the median
    than they do (Tukey 1977, "Exploratory data analysis", chapter 3: re-expression by symmetry): who uses them may
    ask for the small ones as well as for the large ones, whose noise alone counts in a sum of squares. Columns that are
    `alike` are all scores, or none is.

    Args:
        outputs: of the float model, batch by batch.
        alike: whether its columns vary alike.
        may_be_scores: whether the graph may hold them within [0, 1].
    """
    if any(a.dtype.kind != "f" or not a.size for a in outputs) or len({len(columns_of(a)) for a in outputs}) != 1:
        return np.zeros(0, bool)
    columns = np.concatenate([columns_of(a) for a in outputs], axis=1)
    columns = columns[:, :: max(columns.shape[1] // _MOST_VALUES, 1)]
    low, middle, high = np.percentile(columns, (5, 50, 95), axis=1)
    positive = (columns.min(axis=1) > 0) & (high >= _SPAN * low)
    if may_be_scores:  # of which small ones mean "no"
        most = columns.max() if alike else columns.max(axis=1)
        positive &= (most > 1) | (most <= _SURE)
    low, middle, high = (np.where(positive, q, 1.0) for q in (low, middle, high))
    with np.errstate(divide="ignore", invalid="ignore"):  # of columns that are none
        skew = np.abs(np.log((high - middle) / (middle - low)))
        skew_of_logs = np.abs(np.log(np.log(high / middle) / np.log(middle / low)))
    return np.asarray(positive & (skew_of_logs < skew))


def proportion_noise(right: np.ndarray, actual: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of amounts, and how far the candidate's are off; zero where the float model's are not above zero."""
    told = np.where(right > 0, right, 1.0)
    share = np.where(right > 0, actual.astype(np.float64) / told, 1.0)
    return np.log(told), np.clip(np.log(np.maximum(share, np.finfo(np.float64).tiny)), -_LOST, _LOST)


_ORDER_SAMPLES = 512
_LEAST_ORDERED = 50  # samples, below which chance decides
_LAGS = 32  # of all distances in the order, so many are looked at
_QUARTILES = 1.35  # standard deviations between them, of a normal distribution
_APART = 0.1  # of the spread, from which on two samples differ


@dataclass
class SampleOrder:
    """The order that each column of a matrix puts samples into, of at most 512 of them.

    A sum of squares hangs on a few far values; who ranks samples asks for the order of all. Two samples that differ by
    a tenth of the spread in the float model should not change places, nor become equal: a coarse step makes ties of
    neighbours, which costs the order twice what as much random noise does.
    """

    rows: list[np.ndarray] = field(default_factory=list)  # [2, samples, columns]
    samples: int = 0

    def add(self, right: np.ndarray, actual: np.ndarray) -> None:
        """Take in a batch, [samples, columns]."""
        left = _ORDER_SAMPLES - self.samples
        if left > 0:
            self.rows.append(np.stack([right[:left], actual[:left]]))
            self.samples += min(len(right), left)

    def swapped(self) -> np.ndarray:
        """By column, the share of such pairs that change places, a tie counting half; empty for few samples."""
        if self.samples < _LEAST_ORDERED:
            return np.zeros(0)
        right, actual = np.concatenate(self.rows, axis=1)
        order = np.argsort(right, axis=0, kind="stable")
        right, actual = (np.take_along_axis(a, order, axis=0) for a in (right, actual))
        # A few far values are no spread, nor is one value that most samples have (behind a Relu) the lack of any.
        place = np.cumsum(np.diff(right, axis=0, prepend=right[:1]) > 0, axis=0)
        low, high = (right[(place >= q * place[-1]).argmax(axis=0), np.arange(right.shape[1])] for q in (0.25, 0.75))
        least = _APART * np.minimum(right.std(axis=0), (high - low) / _QUARTILES)
        stride = max(self.samples // _LAGS, 1)
        pairs, wrong = np.zeros((2, right.shape[1]))
        for lag in range((stride + 1) // 2, self.samples, stride):
            apart, steps = right[lag:] - right[:-lag] > least, actual[lag:] - actual[:-lag]
            pairs += apart.sum(axis=0)
            wrong += (apart * ((steps < 0) + 0.5 * (steps == 0))).sum(axis=0)
        return np.asarray(wrong / np.maximum(pairs, 1))


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
    """Whether all rows have the same length: they were divided by it, which only makes sense for vectors.

    Lengths that differ by less than a thousandth of how rows differ; rows that all point the same way (positions on a
    map) hardly differ in length either.
    """
    rows = _rows_of(outputs)
    if rows is None or len(rows) < _UNIT_ROWS:
        return False
    lengths = np.linalg.norm(rows, axis=1)
    return bool(lengths.min() > 0 and np.ptp(lengths) < _SAME_LENGTH * np.linalg.norm(rows.std(axis=0)))


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
