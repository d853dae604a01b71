"""Maps that are summed (people in a density map): does their sum stay what it is?"""

from __future__ import annotations

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
