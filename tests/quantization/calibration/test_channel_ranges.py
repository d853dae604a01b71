"""Ranges of tensors divided channel by channel, against numpy on the divided values."""

from __future__ import annotations

import numpy as np

from onnxtool.quantization.calibration.range_estimators import ObservedChannels, ObservedRange

WIDTH = 7
STRIDE = 3
SCALES = np.array([1.0, 2.0, 0.5, 8.0, 1.0, 4.0, 0.25], np.float32)


def samples() -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    return [
        draw.normal(draw.normal(size=WIDTH), 1 + np.arange(WIDTH), (40, WIDTH)).astype(np.float32) for _ in range(5)
    ]


def watched(stride: int) -> ObservedChannels:
    seen = ObservedChannels(WIDTH)
    for index, sample in enumerate(samples()):
        first = index % stride
        values = sample.ravel()[first::stride]
        seen.add(float(sample.min()), float(sample.max()), values)
        seen.add_channels(sample.min(axis=0), sample.max(axis=0))
        seen.keep(values, first, stride)
    return seen


def test_every_sampled_value_is_divided_by_the_scale_of_its_own_channel() -> None:
    expected = ObservedRange(histogram=True)
    for index, sample in enumerate(samples()):
        divided = sample / SCALES
        whole = (float(divided.min()), float(divided.max()))
        expected.add(*whole, divided.ravel()[index % STRIDE :: STRIDE])
    found = watched(STRIDE).divided(SCALES)
    assert (found.low, found.high) == (expected.low, expected.high)
    for method in ("mse", "percentile"):
        np.testing.assert_allclose(found.range(method, 0.99), expected.range(method, 0.99), rtol=0.03)


def test_magnitudes_are_of_every_value_and_zero_where_nothing_was_seen() -> None:
    seen = watched(STRIDE)
    assert seen.complete
    np.testing.assert_array_equal(seen.magnitudes, np.abs(np.concatenate(samples())).max(axis=0))
    nothing = ObservedChannels(WIDTH)
    assert not nothing.complete
    np.testing.assert_array_equal(nothing.magnitudes, np.zeros(WIDTH))


def test_a_channel_that_was_never_seen_leaves_it_incomplete() -> None:
    seen = ObservedChannels(2)
    seen.add_channels(np.array([0.0, np.inf], np.float32), np.array([1.0, -np.inf], np.float32))
    assert not seen.complete
    np.testing.assert_array_equal(seen.magnitudes, [1.0, 0.0])
    assert seen.histogram is not None, "values are counted"
    half = ObservedChannels(1)
    half.add_channels(np.array([0.0], np.float32), np.array([np.inf], np.float32))
    assert not half.complete


def test_one_end_alone_is_not_enough() -> None:
    for lows, highs in (([0.0, np.inf], [1.0, 1.0]), ([0.0, 0.0], [-np.inf, 1.0])):
        seen = ObservedChannels(2)
        seen.add_channels(np.array(lows, np.float32), np.array(highs, np.float32))
        assert not seen.complete
