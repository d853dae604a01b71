"""Streaming ranges against numpy on all values at once."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtool.quantization.calibration.range_estimators import BINS, Histogram, Observed


def observed(parts: list[np.ndarray]) -> Observed:
    result = Observed(histogram=True)
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
    assert Observed(histogram=True).range(method) == (0.0, 0.0)  # type: ignore[arg-type]


def test_entropy_does_not_cut_images_of_few_grey_levels() -> None:
    levels = np.repeat(np.arange(17) / 16, [2000] + [60] * 16)
    _, high = observed([levels]).range("entropy")
    assert high >= 15 / 16
