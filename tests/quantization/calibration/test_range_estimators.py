"""Streaming ranges against numpy on all values at once."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtool.quantization.calibration.range_estimators import (
    BINS,
    Histogram,
    ObservedRange,
    _divergence,
    entropy_range,
    mse_range,
    percentile_range,
)


def observed(parts: list[np.ndarray]) -> ObservedRange:
    result = ObservedRange(histogram=True)
    for part in parts:
        result.add(float(part.min()), float(part.max()), part)
    return result


def normal(seed: int = 0, size: int = 40_000) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size)


def test_a_growing_histogram_counts_what_one_pass_over_everything_counts() -> None:
    parts = [normal(1) * 0.1, normal(2) + 3, normal(3) * 5]
    histogram = Histogram()
    for part in parts:
        histogram.add(part)
    edges = histogram.origin + np.arange(BINS + 1) * histogram.width
    expected, _ = np.histogram(np.concatenate(parts), edges)
    assert histogram.total == sum(p.size for p in parts)
    assert np.abs(np.cumsum(histogram.counts) - np.cumsum(expected)).max() <= 2  # values on an edge may fall either way


def test_memory_does_not_grow_with_the_samples() -> None:
    histogram = Histogram()
    for seed in range(50):
        histogram.add(normal(seed, 1000) * seed)
        assert histogram.counts.size == BINS


def test_minmax_is_exact_and_holds_zero() -> None:
    values = normal() + 10
    assert observed([values]).range("minmax") == (0.0, values.max())
    assert observed([-values]).range("minmax") == (-values.max(), 0.0)


def test_percentile_follows_numpy() -> None:
    values = np.concatenate([normal(5, 200_000), [1000.0]])
    low, high = observed(np.array_split(values, 7)).range("percentile", 0.999)
    assert low == pytest.approx(np.percentile(values, 0.05), abs=1.0)
    assert high == pytest.approx(np.percentile(values, 99.95), abs=1.0)
    assert high < 10, "the lone outlier was not clipped"


def quantization_error(values: np.ndarray, low: float, high: float) -> float:
    step = (high - low) / 255
    rounded = np.clip(np.rint(values / step), np.rint(low / step), np.rint(high / step)) * step
    return float(((values - rounded) ** 2).mean())


@pytest.mark.parametrize("method", ["percentile", "entropy"])
def test_clipping_an_outlier_serves_all_other_values(method: str) -> None:
    bulk = normal(6, 100_000)
    seen = observed(np.array_split(np.concatenate([bulk, [60.0]]), 5))
    chosen = quantization_error(bulk, *seen.range(method))  # type: ignore[arg-type]
    assert chosen < 0.1 * quantization_error(bulk, *seen.range("minmax"))


def test_mse_is_near_the_best_of_a_brute_force_search() -> None:
    values = np.random.default_rng(8).laplace(size=50_000)
    low, high = observed([values]).range("mse")
    shares = np.linspace(0.2, 1, 30)
    best = min(quantization_error(values, values.min() * a, values.max() * b) for a in shares for b in shares)
    assert quantization_error(values, low, high) < 1.1 * best


@pytest.mark.parametrize("method", ["minmax", "percentile", "mse", "entropy"])
@pytest.mark.parametrize("value", [0.0, 3.5, -2.0])
def test_constant_tensors_have_a_range(method: str, value: float) -> None:
    seen = observed([np.full(100, value), np.full(7, value)])
    assert seen.range(method) == pytest.approx((min(value, 0), max(value, 0)))  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["minmax", "percentile", "mse", "entropy"])
def test_a_tensor_never_seen_has_an_empty_range(method: str) -> None:
    assert ObservedRange(histogram=True).range(method) == (0.0, 0.0)  # type: ignore[arg-type]


def test_entropy_does_not_cut_images_of_few_grey_levels() -> None:
    levels = np.repeat(np.arange(17) / 16, [2000] + [60] * 16)
    _, high = observed([levels]).range("entropy")
    assert high >= 15 / 16


def filled(seed: int, *, spread: float = 300.0, middle: float = 900.0) -> Histogram:
    """A histogram of known counts on both sides of zero."""
    random = np.random.default_rng(seed)
    histogram = Histogram()
    bell = np.exp(-(((np.arange(BINS) - middle) / spread) ** 2))
    histogram.counts = np.floor(random.random(BINS) * 40 * bell) + (np.arange(BINS) % 97 == 5)
    histogram.origin, histogram.width = -7.0, 0.01
    return histogram


def test_the_first_values_set_origin_and_width_and_the_last_bin_holds_the_largest() -> None:
    histogram = Histogram()
    histogram.add(np.array([[2.0, 4.0], [3.0, 2.5]]))
    assert (histogram.origin, histogram.width) == (2.0, 2.0 / (BINS - 1))
    assert BINS == 2048 and histogram.counts[0] == histogram.counts[BINS - 1] == 1
    assert histogram.centers[0] == 2.0 + histogram.width / 2
    histogram.add(np.array([]))
    assert histogram.total == 4


@pytest.mark.parametrize("coverage", [0.9, 0.999, 0.77])
def test_percentile_keeps_the_bins_of_the_values_between_two_ranks(coverage: float) -> None:
    histogram = filled(0)
    bins = np.repeat(np.arange(BINS), histogram.counts.astype(int))
    tail = (1 - coverage) / 2
    first, last = bins[int(np.floor(tail * len(bins)))], bins[int(np.ceil((1 - tail) * len(bins))) - 1]
    low, high = percentile_range(histogram, coverage)
    assert low == pytest.approx(-7.0 + first * 0.01) and high == pytest.approx(-7.0 + (last + 1) * 0.01)


def test_percentile_of_all_values_spans_all_bins_that_hold_one() -> None:
    histogram = Histogram()
    histogram.counts[[3, BINS - 1]] = 1
    histogram.origin, histogram.width = 1.0, 0.5
    assert percentile_range(histogram, 1.0) == (1.0 + 3 * 0.5, 1.0 + BINS * 0.5)


@pytest.mark.parametrize("levels", [4, 256])
@pytest.mark.parametrize("middle", [900.0, 300.0, 1500.0])
def test_mse_has_the_least_error_of_rounding_and_clipping_on_its_grid(levels: int, middle: float) -> None:
    histogram = filled(1, middle=middle)
    at = [i for i in range(BINS) if histogram.counts[i]]
    full = (min(-7.0 + at[0] * 0.01, 0.0), max(-7.0 + (at[-1] + 1) * 0.01, 0.0))
    places = -7.0 + (np.arange(BINS) + 0.5) * 0.01

    def error(low: float, high: float) -> float:
        inside = (places >= low) & (places <= high)
        clipped = np.where(places < low, low - places, places - high) ** 2
        return float((histogram.counts * np.where(inside, ((high - low) / (levels - 1)) ** 2 / 12, clipped)).sum())

    low, high = mse_range(histogram, levels)
    shares = np.geomspace(1.0, 0.05, 32)
    lows, highs = full[0] * shares, full[1] * shares
    assert np.abs(lows - low).min() < 1e-9 and np.abs(highs - high).min() < 1e-9
    assert error(low, high) <= min(error(other, high) for other in lows) * (1 + 1e-9)
    assert error(low, high) <= min(error(full[0], other) for other in highs) * (1 + 1e-9), "both ends are chosen"


@pytest.mark.parametrize(("seed", "levels"), [(2, 16), (3, 128)])
def test_entropy_is_the_threshold_that_loses_least(seed: int, levels: int) -> None:
    histogram = filled(seed, spread=150.0, middle=700.0)
    sizes = np.abs(-7.0 + (np.arange(BINS) + 0.5) * 0.01)
    extent = max(s for s, c in zip(sizes, histogram.counts, strict=True) if c) + 0.005
    counts = [0.0] * BINS
    for size, count in zip(sizes, histogram.counts, strict=True):
        counts[min(int(size / extent * BINS), BINS - 1)] += count
    counts[0] = counts[1]
    total, needed = sum(counts), 0
    while sum(counts[: needed + 1]) < 0.99 * total:
        needed += 1
    losses = {}
    for stop in (*range(max(levels, needed + 1), BINS, 16), BINS):
        reference = [*counts[: stop - 1], counts[stop - 1] + sum(counts[stop:])]
        kept = [0.0] * stop
        for level in range(levels):
            members = range(-(-level * stop // levels), -(-(level + 1) * stop // levels))
            used = [i for i in members if counts[i]]
            for i in used:
                kept[i] = sum(counts[j] for j in used) / len(used)
        p, q = np.array(reference) / sum(reference), np.maximum(np.array(kept) / sum(kept), 1e-12)
        losses[stop] = float((p[p > 0] * np.log(p[p > 0] / q[p > 0])).sum())
    best = min(losses, key=lambda stop: losses[stop])
    low, high = entropy_range(histogram, levels)
    assert high == pytest.approx(extent * best / BINS) and low == -high


def test_entropy_takes_all_of_an_even_distribution() -> None:
    histogram = Histogram()
    histogram.counts[:] = 10
    histogram.origin, histogram.width = 0.0, 0.01
    assert entropy_range(histogram)[1] == pytest.approx(BINS * 0.01)


@pytest.mark.parametrize("sign", [1, -1])
def test_mse_of_values_on_one_side_begins_at_zero(sign: int) -> None:
    values = sign * np.random.default_rng(9).uniform(0.1, 0.4, 5000)
    histogram = Histogram()
    histogram.add(values)
    low, high = mse_range(histogram)
    assert (low if sign > 0 else high) == 0
    assert abs(high + low) == pytest.approx(0.4, abs=0.01)


def test_percentile_of_all_ends_with_the_last_bin_however_sums_are_rounded() -> None:
    histogram = Histogram()
    histogram.origin, histogram.width = 0.0, 1.0
    for seed in range(20):
        histogram.counts = np.random.default_rng(seed).random(BINS)
        if np.cumsum(histogram.counts)[-1] < histogram.counts.sum():
            assert percentile_range(histogram, 1.0)[1] == BINS
            return
    pytest.fail("no sums that are rounded so")


def test_a_value_at_the_upper_end_doubles_the_range() -> None:
    histogram = Histogram()
    histogram.add(np.array([0.0, BINS - 1.0]))
    assert histogram.width == 1.0
    histogram.add(np.array([BINS - 0.5]))
    assert histogram.width == 1.0
    histogram.add(np.array([float(BINS)]))
    assert histogram.width == 2.0 and histogram.total == 4


def test_a_constant_has_a_millionth_of_its_value_for_a_range() -> None:
    histogram = Histogram()
    histogram.add(np.full(9, -5.0))
    assert histogram.width == pytest.approx(5e-6 / (BINS - 1)) and histogram.origin == -5.0


def test_values_that_share_a_level_are_taken_for_equally_frequent() -> None:
    """Of bins 1, 3 | 0, 8 on two levels, a level's sum is shared by its bins that hold any: 2, 2 | 0, 8."""
    p, q = np.array([1, 3, 8]) / 12, np.array([2, 2, 8]) / 12
    assert _divergence(np.array([1.0, 3.0, 0.0, 8.0]), 4, 2) == pytest.approx((p * np.log(p / q)).sum())
