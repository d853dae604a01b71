"""Scores between 0 and 1 (detections, labels, masks): does a candidate find what the float model finds?"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

_THRESHOLDS = np.array([0.3, 0.5, 0.7, 0.9])  # of a score, from which on people act on it
_MIDDLE = 1  # of them
_HIGH = 0.9  # from here on only by how much scores move: few act on 0.9 and not on 0.89
_LEAST_FOUND = 20  # over a threshold, below which nothing is told
# A sample that is a picture of its own: so many scores, so many of them found; and so many samples.
_MANY_SCORES, _LEAST_PIXELS, _LEAST_SAMPLES = 64, 5, 8


def _none() -> np.ndarray:
    return np.zeros(len(_THRESHOLDS))


@dataclass
class ScoreAgreement:
    """Running sums over the scores of one output, at each of four thresholds."""

    _true: np.ndarray = field(default_factory=_none)
    _both: np.ndarray = field(default_factory=_none)
    _found: np.ndarray = field(default_factory=_none)
    _shift: np.ndarray = field(default_factory=_none)  # how far the scores over a threshold move
    _cost: np.ndarray = field(default_factory=_none)  # how far what is found by one of them is from the threshold
    _of_samples: list[tuple[float, float]] = field(default_factory=list)  # F1, and what differs as `cost` says

    def add(self, right: np.ndarray, actual: np.ndarray, matching: np.ndarray | bool = True) -> None:
        """Take in scores of any shape; `matching` (to be broadcast) says where what is found counts as the same."""
        for index, threshold in enumerate(_THRESHOLDS):
            expected, found = right > threshold, actual > threshold
            same = expected & found & matching
            self._true[index] += int(expected.sum())
            self._found[index] += int(found.sum())
            self._both[index] += int(same.sum())
            elsewhere = expected & found & ~same
            self._shift[index] += float(np.abs(right - actual)[expected].sum(dtype=np.float64))
            self._cost[index] += float(np.abs(right[expected != found] - threshold).sum(dtype=np.float64))
            self._cost[index] += float(right[elsewhere].sum(dtype=np.float64))

    def add_found(self, true: int, found: int, both: int) -> None:
        """Take in so many objects: what the float model finds, what the candidate finds, and what both do."""
        self._true += true
        self._found += found
        self._both += both
        self._cost += true + found - 2 * both

    def add_samples(self, right: np.ndarray, actual: np.ndarray) -> None:
        """Take in samples, [samples, scores], each counted by itself: in a sum large objects hide small ones."""
        if right.shape[1] < _MANY_SCORES:
            return
        expected, found = right > _THRESHOLDS[_MIDDLE], actual > _THRESHOLDS[_MIDDLE]
        true, both = expected.sum(axis=1), (expected & found).sum(axis=1)
        some = true >= _LEAST_PIXELS
        far = (np.abs(right - _THRESHOLDS[_MIDDLE]) * (expected != found)).sum(axis=1)
        agreement = 2 * both[some] / (true + found.sum(axis=1))[some]
        self._of_samples += zip(agreement.tolist(), (far[some] / true[some]).tolist(), strict=True)

    @property
    def _enough(self) -> np.ndarray:
        return (self._true >= _LEAST_FOUND) & (_THRESHOLDS < _HIGH)

    @property
    def f1(self) -> float | None:
        """F1 against the float model of what exceeds a threshold, the worst one; None with too few of them to tell."""
        enough = self._enough
        if not enough.any():
            return None
        return float((2 * self._both[enough] / (self._true + self._found)[enough]).min())

    @property
    def cost(self) -> float | None:
        """What differs, by how far the float model's score is from the threshold, of what it finds; the worst one.

        Who acts from a threshold on is as well off either way with a score that is equal to it. What lies elsewhere
        than it did counts by its whole score.
        """
        enough = self._enough
        return float((self._cost[enough] / self._true[enough]).max()) if enough.any() else None

    @property
    def rare_shift(self) -> float | None:
        """How far scores over 0.9, or over a threshold that few exceed, move on the mean, the worst; None without any.

        Of a handful, which of them are found tells nothing; a score that goes from 0.9 to 0.7 does.
        """
        few = (self._true > 0) & ~self._enough
        return float((self._shift[few] / self._true[few]).max()) if few.any() else None

    @property
    def count(self) -> int:
        """How many the float model finds at the highest threshold that tells something."""
        return int(self._true[self._enough].min()) if self._enough.any() else 0

    @property
    def of_samples(self) -> tuple[float, float] | None:
        """Means over samples of each one's F1 at 0.5 and cost; None where samples are no pictures of scores, or few."""
        if len(self._of_samples) < _LEAST_SAMPLES:
            return None
        agreement, cost = np.mean(self._of_samples, axis=0)
        return float(agreement), float(cost)
