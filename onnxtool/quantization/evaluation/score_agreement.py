"""Scores between 0 and 1 (detections, labels, masks): does a candidate find what the float model finds?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from onnxtool.quantization.evaluation.bounds import CONFIDENCE, amount_bound, clustered_share_bound
from onnxtool.runtime.timing.timing import student_quantile

# Of a score, from which on people act on it; those behind the first four are looked at where few scores are as high.
_THRESHOLDS = np.array([0.3, 0.5, 0.7, 0.9, 0.4, 0.6, 0.8])
_FOR_FEW = np.arange(len(_THRESHOLDS)) >= 4
_MIDDLE = 1  # of them
_HIGH = 0.9  # few scores are as high by chance, so that they are looked at as few ones are
_LEAST_FOUND = 50  # over a threshold, below which one alone is more than a point
_NEAR = 0.25  # of a threshold: scores whose noise counts there
_BAND = 0.1  # width: who acts on few scores has a threshold somewhere around
_DIRECTED = 2.0  # standard errors, beyond which what is lost is no chance
_LOGISTIC = 1.702  # of which the logistic function is the normal distribution's, to a hundredth
# A sample that is a picture of its own: so many scores, so many of them found; and so many samples.
_MANY_SCORES, _LEAST_PIXELS, _LEAST_SAMPLES = 64, 5, 8


def _none() -> np.ndarray:
    return np.zeros(len(_THRESHOLDS))


@dataclass
class ScoreAgreement:
    """Running sums over the scores of one output, at each threshold."""

    _true: np.ndarray = field(default_factory=_none)
    _both: np.ndarray = field(default_factory=_none)
    _found: np.ndarray = field(default_factory=_none)
    _shift: np.ndarray = field(default_factory=_none)  # how far the scores over a threshold move
    _squares: np.ndarray = field(default_factory=_none)  # of how far each moves
    # Around each threshold: how many the float model finds, what they sum to, and the candidate's, by float's scores;
    # squares of what small moves change there, alone, by the score, and by the square of it.
    _bands: np.ndarray = field(default_factory=lambda: np.zeros((len(_THRESHOLDS), 7)))
    # Of each sample, [thresholds]: what one of them finds alone, what each of them finds, added, and how far from the
    # threshold what differs is, or may be.
    _of_each: list[np.ndarray] = field(default_factory=list)
    _of_samples: list[tuple[float, float]] = field(default_factory=list)  # F1, and what differs as `cost` says

    def add(self, right: np.ndarray, actual: np.ndarray, matching: np.ndarray | bool = True, samples: int = 1) -> None:
        """Take in scores, [columns, samples and places]; `matching` (to be broadcast) says where what is found counts
        as the same.
        """
        a, b = (v.reshape(len(v) if v.ndim > 1 else 1, samples, -1) for v in (right, actual))
        same = matching if isinstance(matching, bool) else np.broadcast_to(matching, right.shape).reshape(a.shape)
        seen = np.zeros((samples, 3, len(_THRESHOLDS)))
        moved = np.abs(a - b)
        for index, threshold in enumerate(_THRESHOLDS):
            expected, found = a > threshold, b > threshold
            both = expected & found & same
            self._true[index] += int(expected.sum())
            self._found[index] += int(found.sum())
            self._both[index] += int(both.sum())
            self._shift[index] += float(moved[expected].sum(dtype=np.float64))
            self._squares[index] += float(np.square(moved[expected], dtype=np.float64).sum())
            shares = [np.clip((v - threshold) / _BAND + 0.5, 0, 1) for v in (a, b)]
            squares = np.where((moved < _BAND) & same, np.square(shares[1] - shares[0]), 0.0)
            parts = [shares[0], shares[0] * a, shares[1], np.where(same, shares[1] * a, 0.0)]
            parts += [squares, squares * a, squares * np.square(a)]
            self._bands[index] += [float(part.sum(dtype=np.float64)) for part in parts]
            margin = np.abs(a - threshold)
            near = margin < _NEAR
            noise = float(np.sqrt(np.square(moved[near], dtype=np.float64).mean())) if near.any() else 0.0
            chance = 1 / (1 + np.exp(np.minimum(_LOGISTIC * margin / max(noise, 1e-12), 80.0)))
            cost = np.where(near, np.maximum(chance, expected != found), expected != found) * margin
            cost = np.where(expected & found & ~both, a, cost)
            alone = (expected.sum((0, 2)) + found.sum((0, 2)) - 2 * both.sum((0, 2)), expected.sum((0, 2)))
            seen[:, 0, index], seen[:, 1, index] = alone[0], alone[1] + found.sum((0, 2))
            seen[:, 2, index] = np.maximum(cost.sum((0, 2), dtype=np.float64), 0)
        self._of_each += list(seen)

    def add_found(self, true: int, found: int, both: int) -> None:
        """Take in so many objects: what the float model finds, what the candidate finds, and what both do."""
        self._true += true
        self._found += found
        self._both += both
        self._bands += [true, true, found, both, 0, 0, 0]
        alone = true + found - 2 * both
        self._of_each.append(np.repeat([[alone], [true + found], [alone]], len(_THRESHOLDS), axis=1).astype(float))

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
        return np.asarray((self._true >= _LEAST_FOUND) & (_THRESHOLDS < _HIGH) & ~_FOR_FEW)

    @property
    def _few(self) -> np.ndarray:
        return np.asarray((self._true > 0) & ~self._enough & (~_FOR_FEW | (self._true < _LEAST_FOUND)))

    def f1(self, confidence: float | None = None) -> float | None:
        """F1 against the float model of what exceeds a threshold, the worst one, at least where a confidence is given;
        None with too few of them to tell.
        """
        enough = self._enough
        if not enough.any():
            return None
        if confidence is None:
            return float((2 * self._both[enough] / (self._true + self._found)[enough]).min())
        return 1 - self._worst(lambda alone, every, _: clustered_share_bound(alone, every, confidence))

    def cost(self, confidence: float = CONFIDENCE) -> float | None:
        """What differs, by how far the float model's score is from the threshold, of what it finds; the worst, at most.

        Who acts from a threshold on is as well off either way with a score that is equal to it. What lies elsewhere
        than it did counts by its whole score. What did not flip here may flip elsewhere: each score near the threshold
        costs at least what its margin tells, with noise of the size that is seen there.
        """
        if not self._enough.any():
            return None

        def most(_: np.ndarray, every: np.ndarray, cost: np.ndarray) -> float:
            amount = 2 * amount_bound(cost, confidence) * len(cost) / max(every.sum(), 1)
            return float(min(amount, clustered_share_bound(cost, every / 2, confidence)))  # none costs more than itself

        return self._worst(most)

    def _worst(self, of: Callable[[np.ndarray, np.ndarray, np.ndarray], float]) -> float:
        each = np.stack(self._of_each)
        return max(of(each[:, 0, i], each[:, 1, i], each[:, 2, i]) for i in np.flatnonzero(self._enough))

    @property
    def rare_f1(self) -> float | None:
        """F1 of what exceeds a threshold that few exceed, and 0.9 unless samples are pictures, the worst; None where
        none is as high.

        It is against labels that the float model's scores are the chances of, over its own, on the mean of all
        thresholds in a band of a tenth: one score that comes to lie on the other side of a single one tells nothing,
        and two that change places cost nothing, but what sinks is missed wherever the threshold is. What scores
        that move less than the band lose by chance, moved either way (a standard error), is left out, unless more is
        lost than twice of it: they move in one direction then.
        """
        few = self._few
        if self.of_samples() is not None:
            few &= self._true < _LEAST_FOUND
        if not few.any():
            return None
        bands = self._bands[few].T
        true, chances, found, hits = np.maximum(bands[:4], 1e-12)
        recall = np.minimum(hits / chances, 1)
        precision = np.minimum(hits / found * true / chances, 1)
        # Of F1, 2 hits / chances / (1 + found / true), the derivative by what each score moves, squared and summed.
        by_chance = bands[6] / chances**2 - bands[5] / (chances * true) + bands[4] / (2 * true) ** 2
        chance = np.sqrt(np.maximum(by_chance, 0))
        lost = 1 - 2 * recall * precision / (recall + precision)
        return 1 - float(np.maximum(np.where(lost < _DIRECTED * chance, lost - chance, lost), 0).max())

    def rare_shift(self, confidence: float = CONFIDENCE) -> tuple[float, float] | None:
        """How far scores over 0.9, or over a threshold that few exceed, move on the mean, the worst, and at most; None
        without any.
        """
        few = np.flatnonzero(self._few)
        if not len(few):
            return None
        means, squares, count = (v[few] / self._true[few] for v in (self._shift, self._squares, self._true**2))
        # Student's interval, whose end is moderate for a handful; of a single one nothing more can be told.
        spread = np.sqrt(np.maximum(squares - means**2, 0) / np.maximum(count - 1, 1))
        quantiles = [student_quantile(confidence, int(n) - 1) if n > 1 else 0.0 for n in count]
        return float(means.max()), float((means + quantiles * spread).max())

    @property
    def count(self) -> int:
        """How many the float model finds at the highest threshold that tells something."""
        return int(self._true[self._enough].min()) if self._enough.any() else 0

    def of_samples(self, confidence: float | None = None) -> tuple[float, float] | None:
        """Means over samples of each one's F1 at 0.5 (at least) and cost (at most); None where samples are no pictures
        of scores, or few.
        """
        if len(self._of_samples) < _LEAST_SAMPLES:
            return None
        agreement, cost = np.array(self._of_samples).T
        if confidence is None:
            return float(agreement.mean()), float(cost.mean())
        return 1 - amount_bound(1 - agreement, confidence), amount_bound(cost, confidence)
