"""What was seen of a tensor channel by channel: enough to know its range after it was divided channel by channel.

Smoothing divides what linear layers read, each channel (last axis) by a factor of its own. The float model computes the
same otherwise, so that one pass over the samples tells the ranges for every strength of smoothing: extremes of channels
are divided exactly, and the values that were sampled are kept, each with the channel that it belongs to.
"""

from __future__ import annotations

import numpy as np

from onnxtool.quantization.calibration.range_estimators import ObservedRange


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
