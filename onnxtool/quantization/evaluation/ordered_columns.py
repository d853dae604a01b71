"""Columns in ascending order (quantiles of a forecast): what is between two of them is what they are for."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

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
