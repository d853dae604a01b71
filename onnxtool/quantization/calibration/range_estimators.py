"""Streaming range estimators: what values a tensor takes, in memory that does not grow with the samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np

from onnxtool.errors import UsageError
from onnxtool.installed_extensions import installed_extensions

BINS = 2048
_COUNT_AT_ONCE = 8192
Range = tuple[float, float]
ENTRY_POINTS = "onnxtool.range_estimators"


class Histogram:
    """A histogram over a range that grows: when a value falls outside, bins merge in pairs and the range doubles.

    Merging pairs is exact, so that the counts are those of one pass with the final bin width. Memory: BINS counts.
    """

    def __init__(self) -> None:
        self.counts = np.zeros(BINS, np.float64)
        self.origin = 0.0
        self.width = 0.0  # of one bin; 0 until the first value

    def add(self, values: np.ndarray) -> None:
        """Count finite values (any shape)."""
        values = np.asarray(values).ravel()
        if not values.size:
            return
        low, high = float(values.min()), float(values.max())
        if self.width == 0.0:
            # A constant tensor has no extent: give it one that is tiny beside its value.
            extent = max(high - low, abs(high) * 1e-6, 1e-30)
            self.origin, self.width = low, extent / (BINS - 1)
        while high >= self.origin + BINS * self.width:
            self.counts = np.concatenate([self._merged(), np.zeros(BINS // 2)])
            self.width *= 2
        while low < self.origin:
            self.counts = np.concatenate([np.zeros(BINS // 2), self._merged()])
            self.origin -= BINS * self.width
            self.width *= 2
        # float32 is exact enough while the origin is not far away in bins, and takes half as long.
        single = values.dtype == np.float32 and 1e-30 < self.width < 1e30 and abs(self.origin) < 1e6 * self.width
        kind = np.float32 if single else np.float64
        steps = np.subtract(values, kind(self.origin), dtype=kind)
        steps *= kind(1 / self.width)
        # Truncation takes what rounding has put just below the first bin into it; just above the last there is room.
        counts = np.bincount(steps.astype(np.intp), minlength=BINS)
        counts[BINS - 1] += counts[BINS:].sum()
        self.counts += counts[:BINS]

    def _merged(self) -> np.ndarray:
        return np.asarray(self.counts.reshape(-1, 2).sum(axis=1))

    @property
    def centers(self) -> np.ndarray:
        """The middle of each bin, in the tensor's units."""
        return self.origin + (np.arange(BINS) + 0.5) * self.width

    @property
    def total(self) -> float:
        """Number of values counted."""
        return float(self.counts.sum())


# From a histogram of one tensor, in its own units, and a share of values to keep, to the range to quantize over.
RangeEstimator = Callable[[Histogram, float], Range]


class ObservedRange:
    """What was seen of one tensor: its exact extremes and, where a method needs it, a histogram of its values."""

    def __init__(self, histogram: bool) -> None:
        self.low = np.inf
        self.high = -np.inf
        self.elements = 0  # of one sample, the largest seen
        self._histogram = Histogram() if histogram else None
        self._pending: list[np.ndarray] = []
        self._waiting = 0  # values in `_pending`

    @property
    def histogram(self) -> Histogram | None:
        """Of all values taken in so far; None where none is kept."""
        if self._pending and self._histogram is not None:
            self._histogram.add(np.concatenate(self._pending, axis=None))
            self._pending.clear()
            self._waiting = 0
        return self._histogram

    def add(self, low: float, high: float, values: np.ndarray | None = None) -> None:
        """Take in one sample: its exact extremes, and some or all of its values."""
        self.low, self.high = min(self.low, low), max(self.high, high)
        if self._histogram is not None and values is not None:
            # Counting a few values takes nearly as long as counting many.
            self._pending.append(values)
            self._waiting += values.size
            if self._waiting >= _COUNT_AT_ONCE:
                _ = self.histogram

    def range(self, method: str, coverage: float = 0.9999) -> Range:
        """The range to quantize over; holds zero, so that zero is exact.

        A tensor that was never seen or always empty gives (0, 0).
        """
        if self.low > self.high:
            return (0.0, 0.0)
        low, high = self.low, self.high
        histogram = self.histogram
        if method != "minmax" and histogram is not None and histogram.total > 0 and high > low:
            inner = estimators()[method](histogram, coverage)
            low, high = max(low, inner[0]), min(high, inner[1])
        return (min(low, 0.0), max(high, 0.0))


class ObservedChannels(ObservedRange):
    """`ObservedRange`, and the extremes of each channel.

    Attributes:
        lows, highs: of each channel, float32 [channels]; infinite the other way round until something was seen.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(histogram=True)
        self.lows = np.full(channels, np.inf, np.float32)
        self.highs = np.full(channels, -np.inf, np.float32)
        self._values: list[np.ndarray] = []
        self._places: list[tuple[int, int]] = []  # of those values: of the first one, and how far they lie apart

    def add_channels(self, lows: np.ndarray, highs: np.ndarray) -> None:
        """Take in the extremes of one sample, [channels] each."""
        np.minimum(self.lows, lows, out=self.lows)
        np.maximum(self.highs, highs, out=self.highs)

    def keep(self, values: np.ndarray, first: int, stride: int) -> None:
        """Keep sampled values: those at `first`, `first + stride`, ... of the flattened tensor."""
        self._values.append(values)
        self._places.append((first, stride))

    @property
    def complete(self) -> bool:
        """True when every channel was seen."""
        return bool(np.isfinite(self.lows).all() and np.isfinite(self.highs).all())

    @property
    def magnitudes(self) -> np.ndarray:
        """The largest magnitude of each channel, [channels]; 0 for one that was never seen."""
        sizes = np.maximum(np.abs(self.lows), np.abs(self.highs))
        return np.where(np.isfinite(sizes), sizes, 0).astype(np.float32)

    def divided(self, scales: np.ndarray) -> ObservedRange:
        """What would have been seen of the tensor divided by `scales`, positive, [channels]."""
        result = ObservedRange(histogram=True)
        result.elements = self.elements
        result.add(float((self.lows / scales).min()), float((self.highs / scales).max()))
        for values, (first, stride) in zip(self._values, self._places, strict=True):
            channels = (first + stride * np.arange(len(values))) % len(scales)
            divided = (values / scales[channels]).astype(np.float32)
            result.add(result.low, result.high, divided)
        return result


def percentile_range(histogram: Histogram, coverage: float) -> Range:
    """Clip the tails of a value distribution, half of what is dropped on either side.

    Args:
        histogram: of one tensor, in the tensor's own units.
        coverage: share of values kept, in (0, 1]; 0.9999 drops one in ten thousand.

    Source: Wu et al. 2020, "Integer quantization for deep learning inference", section 4.1.
    """
    cumulative = np.cumsum(histogram.counts) / histogram.total
    tail = (1 - coverage) / 2
    first = int(np.searchsorted(cumulative, tail, side="right"))
    # What is added up may stay just below one.
    last = min(int(np.searchsorted(cumulative, 1 - tail, side="left")), BINS - 1)
    return (histogram.origin + first * histogram.width, histogram.origin + (last + 1) * histogram.width)


def mse_range(histogram: Histogram, levels: int = 256) -> Range:
    """The range whose uniform quantization has the least mean squared error: rounding inside, clipping outside.

    Either end is moved in by itself, the high one first, then both once more.

    Args:
        histogram: of one tensor.
        levels: number of integer values.

    Source: Banner et al. 2019, "Post training 4-bit quantization of convolutional networks", section 3 (on the
    observed histogram in place of a fitted distribution).
    """
    centers, counts = histogram.centers, histogram.counts
    filled = np.flatnonzero(counts)
    low = min(histogram.origin + filled[0] * histogram.width, 0.0)
    high = max(histogram.origin + (filled[-1] + 1) * histogram.width, 0.0)

    def error(bottom: float, top: float) -> float:
        step = (top - bottom) / (levels - 1)
        outside = np.maximum(bottom - centers, 0) + np.maximum(centers - top, 0)
        return float((counts * np.where(outside > 0, outside**2, step**2 / 12)).sum())

    shares = np.geomspace(1.0, 0.05, 32)
    full_low, full_high = low, high
    for _ in range(2):
        high = full_high * min(shares, key=lambda s: error(low, full_high * s))
        low = full_low * min(shares, key=lambda s: error(full_low * s, high))
    return (float(low), float(high))


def entropy_range(histogram: Histogram, levels: int = 128) -> Range:
    """The symmetric threshold that loses the least information (Kullback-Leibler divergence).

    Args:
        histogram: of one tensor.
        levels: quantized bins for each side.

    Source: Migacz 2017, "8-bit inference with TensorRT" (GTC), the calibration algorithm.
    """
    magnitude = np.abs(histogram.centers)
    extent = float(magnitude[histogram.counts > 0].max()) + histogram.width / 2
    bins = BINS
    counts = np.bincount(
        (magnitude / extent * bins).astype(np.int64).clip(max=bins - 1), weights=histogram.counts, minlength=bins
    )
    counts[0] = counts[1]  # zeros (ReLU, padding) would drown everything else
    best, threshold = np.inf, extent
    # A distribution of few distinct values (an image of 16 grey levels) is "equal" to any part of itself, so that
    # the search must not start below what nearly all values need.
    needed = int(np.searchsorted(np.cumsum(counts), 0.99 * counts.sum())) + 1
    for stop in (*range(max(levels, needed), bins, 16), bins):
        divergence = _divergence(counts, stop, levels)
        if divergence < best:
            best, threshold = divergence, extent * stop / bins
    return (-threshold, threshold)


def _divergence(counts: np.ndarray, stop: int, levels: int) -> float:
    reference = counts[:stop].copy()
    reference[-1] += counts[stop:].sum()
    group = (np.arange(stop) * levels) // stop
    used = counts[:stop] > 0
    sums = np.bincount(group, weights=counts[:stop], minlength=levels)
    members = np.bincount(group, weights=used.astype(np.float64), minlength=levels)
    spread = np.where(used, (sums / np.maximum(members, 1))[group], 0.0)
    if not spread.any():
        return float("inf")
    p, q = reference / reference.sum(), spread / spread.sum()
    q = np.maximum(q, 1e-12)
    mask = p > 0
    return float((p[mask] * np.log(p[mask] / q[mask])).sum())


def _extremes(histogram: Histogram, coverage: float) -> Range:  # noqa: ARG001  (one signature for all)
    """All that the histogram spans; the exact extremes, which `ObservedRange` keeps, go before it."""
    return (-np.inf, np.inf)


_BUILT_IN: Mapping[str, RangeEstimator] = {
    "minmax": _extremes,
    "percentile": percentile_range,
    "mse": lambda histogram, _: mse_range(histogram),
    "entropy": lambda histogram, _: entropy_range(histogram),
}


@cache
def estimators() -> Mapping[str, RangeEstimator]:
    """Name, as --method has it -> function: the built-in ones, then those of entry points "onnxtool.range_estimators".

    Raises:
        UsageError: a package brings one under a name that is taken, or that cannot be loaded.
    """
    found = dict(_BUILT_IN)
    for extension in installed_extensions(ENTRY_POINTS):
        if extension.name in found:
            raise UsageError(f"{extension}: a range estimator of this name is there already.")
        found[extension.name] = extension.load()
    return found
