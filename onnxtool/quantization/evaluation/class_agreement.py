"""Outputs of classes, texts that they spell included: how often a candidate names the same, and what it costs else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np

from onnxtool.quantization.evaluation.bounds import clustered_share_bound, mean_bound, share_bound

_SUMS_TO = 1e-3  # how near to one


def probabilities(values: np.ndarray) -> np.ndarray:
    """Values over the last axis as probabilities: as they are when they sum to one, else their softmax."""
    if values.min() >= 0 and np.abs(values.sum(axis=-1) - 1).max() < _SUMS_TO:
        return values
    powers = np.exp(values - values.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def gain_of_best(outputs: Sequence[np.ndarray]) -> float:
    """What the highest value over the last axis is above their mean, on the mean: what is gained by choosing it."""
    return float(np.mean([(a.max(axis=-1) - a.mean(axis=-1)).mean() for a in outputs], dtype=np.float64))


_LEAST_DROP = 0.001  # that is said
_LEAST_SURE = 0.25  # that the best class is taken to be, where probabilities say less
_UNSURE = 1.5  # times the cost: without it a language model lost more than the bound in 6 to 42 % of resampled runs
_WORST_MARGIN = 0.17  # times the noise: the most of a margin times the chance that normal noise exceeds it
_WORTH_OF_LOGITS = 0.5  # of one between two logits, at most: tanh(margin / 2) of probability
_MOST_LOGIT_NOISE = 5.0  # beyond which it is no noise of logits
_ALIKE = 0.01  # the variance of logarithms that are
_LEAST_CHANCE = 1e-12  # that is looked at
_PLACES = 256  # of a sample, whose margins are looked at


@dataclass(frozen=True)
class _Leads:
    """Of some places of a sample, float64 [places] each, logits or probabilities.

    Attributes:
        right, actual: of the class that the float model names and of its second: what it gives them, and the candidate.
        gap: the difference of what both are worth.
        sure: the mean worth of the first.
        cost: what the candidate's classes cost, on the mean of all places.
    """

    right: np.ndarray
    actual: np.ndarray
    gap: np.ndarray
    sure: float
    cost: float


def _leads(right: np.ndarray, actual: np.ndarray, worth: Callable[[np.ndarray], np.ndarray], cost: float) -> _Leads:
    a, b = (v.reshape(-1, v.shape[-1]) for v in (right, actual))
    chosen = slice(None, None, max(1, len(a) // _PLACES))
    a, b = a[chosen].astype(np.float64), b[chosen].astype(np.float64)
    rows, pair = np.arange(len(a)), np.argpartition(-a, 1, axis=1)[:, :2].T
    likely = worth(a)[rows, pair]
    return _Leads(a[rows, pair], b[rows, pair], likely[0] - likely[1], float(likely[0].mean()), cost)


def _margins(leads: Sequence[_Leads], are_likely: bool) -> tuple[list[np.ndarray], float, float]:
    """By how much the first leads the second in each sample, the noise of that, and what one of it is worth at most.

    Noise in front of a Softmax is alike in the logarithms of probabilities: in these themselves it is in proportion to
    how unsure one is. Noise behind it is not, and is that of the unsure half; rounding leaves nothing of small ones.
    """
    pairs = [(lead.right, lead.actual) for lead in leads]
    if not are_likely:
        return *_noise(pairs), _WORTH_OF_LOGITS
    logarithms = [(np.log(np.maximum(a, _LEAST_CHANCE)), np.log(np.maximum(b, _LEAST_CHANCE))) for a, b in pairs]
    margins, noise = _noise(logarithms)
    right, actual = (np.concatenate([pair[i] for pair in pairs], axis=1) for i in (0, 1))
    unsure, off = 1 - right[0], np.abs(np.subtract(*actual) - np.subtract(*right))
    told = (off > 0) & (unsure > _LEAST_CHANCE)
    x, y = np.log(unsure[told]), np.log(off[told])
    spread, together = (float(((x - x.mean()) * (v - v.mean())).mean()) if len(x) else 0.0 for v in (x, y))
    if noise < _MOST_LOGIT_NOISE and (spread < _ALIKE or together > spread / 2):
        return margins, noise, _WORTH_OF_LOGITS
    return *_noise(pairs, 0.5), 1.0


def _noise(pairs: Sequence[tuple[np.ndarray, np.ndarray]], share: float = 1.0) -> tuple[list[np.ndarray], float]:
    """Margins, and the root mean square of what the smaller ones, a share of them, are off by."""
    margins = [a[0] - a[1] for a, _ in pairs]
    off = np.concatenate([b[0] - b[1] - m for m, (_, b) in zip(margins, pairs, strict=True)])
    margin = np.concatenate(margins)
    return margins, float(np.sqrt(np.mean(np.square(off[margin <= np.quantile(margin, share)]))))


def are_distributions(outputs: Sequence[np.ndarray]) -> bool:
    """Whether every row of an output sums to one: whatever its graph says, it is of classes then."""
    return all(
        a.dtype.kind == "f" and a.ndim >= 2 and a.size and a.shape[-1] > 1
        and a.min() >= 0 and np.abs(a.sum(axis=-1, dtype=np.float64) - 1).max() < _SUMS_TO
        for a in outputs
    )  # fmt: skip


MOST_CLASSES = 1024  # of more, hardly one is seen often enough for an F1 of its own
_COMPETING = 0.25  # the variance of the sum of classes' logits, of the sum of their variances; one of independent ones


def _some_places(columns: np.ndarray) -> np.ndarray:
    """[columns, ...] as [columns, places], of many places some."""
    flat = columns.reshape(len(columns), -1)
    return flat[:, :: -(-flat.shape[1] // _MOST_COUNTED)]


def class_axis(outputs: Sequence[np.ndarray], axes: Sequence[int] = (1, -1), most: int = MOST_CLASSES) -> int | None:
    """The axis, of these, whose elements, at `most` so many, are scores of classes that exclude one another; None
    without one, and without another axis besides these and the samples'.

    The gradient of the cross-entropy behind a Softmax sums to zero over the classes, so that what training adds to
    their logits does too, and probabilities sum to one. Colours go up and down together, heat maps by themselves.
    """
    if any(a.dtype.kind != "f" or a.ndim <= len(axes) or not a.size for a in outputs):
        return None
    for axis in axes:
        if len({a.shape[axis] for a in outputs}) != 1 or not 2 <= outputs[0].shape[axis] <= most:
            continue
        columns = np.concatenate([_some_places(np.moveaxis(a, axis, 0)) for a in outputs], axis=1).astype(np.float64)
        together = columns.var(axis=1).sum()
        if together > 0 and columns.sum(axis=0).var() < _COMPETING * together:
            return axis
    return None


_LEAST_PLACES, _LEAST_SAMPLES = 32, 8  # where float names a class, below which chance decides its F1
_MOST_COUNTED = 16384  # places of a sample
_LABEL_COSTS = 0.5  # accuracy, on the mean: what becomes another one is what the float model is least sure of


@dataclass
class ClassF1:
    """F1 of every class, against labels that the float model's probabilities are the chances of.

    A rare class may be lost with all that it is there for, and hardly change the accuracy.

    Attributes:
        tallies: of each sample, [5, classes]: labels expected, places named by float, those of them that are expected
            to be right, and the same two of the candidate.
    """

    tallies: list[np.ndarray] = field(default_factory=list)

    def add(self, right: np.ndarray, *named: np.ndarray) -> None:
        """Take in a batch.

        Args:
            right: the float model's, classes last.
            named: which class it names, and which the candidate does, of the same shape without the classes.
        """
        classes = right.shape[-1]
        if classes > MOST_CLASSES:
            return
        for row, *bests in zip(right, *named, strict=True):
            likely = probabilities(_some_places(np.moveaxis(row, -1, 0)).T.astype(np.float64))
            tally, places = [likely.sum(axis=0)], np.arange(len(likely))
            for best in (_some_places(one[None])[0] for one in bests):
                tally.append(np.bincount(best, minlength=classes))
                tally.append(np.bincount(best, likely[places, best], classes))
            self.tallies.append(np.array(tally, np.float32))

    def lost(self, confidence: float | None = None) -> float | None:
        """What the mean F1 of classes loses of float's, at most where a confidence is given; None where no class is
        named often enough.

        Each class's F1 is a ratio of sums, so that its error is the mean of each sample's part (Cochran 1977, "Sampling
        techniques", section 6.3).
        """
        if len(self.tallies) < _LEAST_SAMPLES:
            return None
        seen = np.stack(self.tallies).astype(np.float64)
        often = (seen[:, 1].sum(0) >= _LEAST_PLACES) & ((seen[:, 1] > 0).sum(0) >= _LEAST_SAMPLES)
        if not often.any():
            return None
        expected, *named = seen[:, :, often].transpose(1, 0, 2)
        scores, parts = [], []
        for count, hits in (named[:2], named[2:]):
            total = (expected + count).sum(0)
            scores.append(2 * hits.sum(0) / total)
            parts.append((2 * hits - scores[-1] * (expected + count)) * len(seen) / total)
        lost = (1 - scores[1] / np.maximum(scores[0], 1e-9)).mean()
        if confidence is None:
            return float(lost)
        return mean_bound(lost + ((parts[0] - parts[1]) / np.maximum(scores[0], 1e-9)).mean(1), confidence)


def collapse(steps: np.ndarray, blank: int) -> list[int]:
    """What a CTC decoder reads off the best classes of each step: repetitions as one, without blanks.

    Source: Graves et al. 2006, "Connectionist temporal classification", section 3.1.
    """
    kept = np.concatenate([[True], steps[1:] != steps[:-1]]) & (steps != blank)
    return [int(c) for c in steps[kept]]


def edit_distance(a: Sequence[int], b: Sequence[int]) -> int:
    """Insertions, deletions and replacements that turn one sequence into the other.

    Source: Wagner and Fischer 1974, "The string-to-string correction problem".
    """
    if list(a) == list(b):
        return 0
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        above, row[0] = row[0], i
        for j, right in enumerate(b, 1):
            above, row[j] = row[j], min(above + (left != right), row[j] + 1, row[j - 1] + 1)
    return row[-1]


_BLANK_SHARE = 0.3


@dataclass
class _Reading:
    """What a CTC decoder reads off: of so many samples, each by itself, with that class as the blank."""

    blank: int
    count: int = 0
    edits: list[float] = field(default_factory=list)
    cost: list[float] = field(default_factory=list)
    characters: list[float] = field(default_factory=list)

    def share(self, amounts: Sequence[float]) -> float:
        return sum(amounts) / max(sum(self.characters), 1)


@dataclass
class ClassAgreement:
    """Running sums over the classes of one output; the last axis is that of classes.

    Attributes:
        gain: of values that are no chances of one right class: `gain_of_best`, of which choosing another loses a share.
        hits: how often both name the same class.
        total: of so many.
    """

    gain: float | None = None
    hits: int = 0
    total: int = 0
    _lost: float = 0.0
    _are_likely: bool = True
    _samples: list[tuple[float, float]] = field(default_factory=list)  # flips of each, of so many places
    _near: list[_Leads] = field(default_factory=list)
    _blank: dict[int, int] = field(default_factory=dict)
    _steps: list[tuple[np.ndarray, np.ndarray, float]] = field(default_factory=list)  # best classes, and what it costs
    _read: _Reading = field(default_factory=lambda: _Reading(0))
    _each: ClassF1 = field(default_factory=ClassF1)

    def add(self, right: np.ndarray, actual: np.ndarray) -> None:
        """Take in a batch: logits or probabilities by the float model and by the candidate."""
        best, chosen = right.argmax(axis=-1), actual.argmax(axis=-1)
        flipped = best != chosen
        self.hits += int((~flipped).sum())
        self.total += best.size
        lost = np.zeros(best.shape)
        if flipped.any():
            likely = self._worth(right[flipped].astype(np.float64))
            rows = np.arange(len(likely))
            lost[flipped] = likely[rows, best[flipped]] - likely[rows, chosen[flipped]]
            self._lost += float(lost.sum())
        self._are_likely &= bool(right.min() >= 0 and np.abs(right.sum(axis=-1) - 1).max() < _SUMS_TO)
        self._each.add(right, best, chosen)
        flips = flipped.reshape(len(best), -1).sum(axis=1)
        self._samples += [(float(f), best[0].size) for f in flips]
        for row, other, cost in zip(right, actual, lost, strict=True):
            self._near.append(_leads(row, other, self._worth, float(cost.mean())))
        if right.ndim == 3:
            last = right.shape[-1] - 1
            for blank in (0, last):
                self._blank[blank] = self._blank.get(blank, 0) + int((best == blank).sum())
            costs = [float(c) for c in lost.sum(axis=-1)]
            self._steps += zip(best.astype(np.int32), chosen.astype(np.int32), costs, strict=True)

    def _worth(self, values: np.ndarray) -> np.ndarray:
        return probabilities(values) if self.gain is None else values / max(self.gain, 1e-30)

    def _reading(self) -> _Reading:
        """What is read off all samples so far."""
        blank = max(self._blank, key=lambda k: self._blank[k])
        read = self._read if self._read.blank == blank else _Reading(blank)
        for a, b, cost in self._steps[read.count :]:
            text = collapse(a, blank)
            edits = edit_distance(text, collapse(b, blank))
            read.edits.append(edits)
            read.cost.append(min(cost, float(edits)))  # a character that only moves by a step costs nothing
            read.characters.append(len(text))
        read.count = len(self._steps)
        self._read = read
        return read

    def flips_at_most(self, confidence: float) -> float:
        """Share of other classes, or of other characters, at most."""
        if self.is_ctc:
            read = self._reading()
            return clustered_share_bound(np.array(read.edits), np.array(read.characters), confidence)
        counts, totals = np.array(self._samples).T
        return clustered_share_bound(counts, totals, confidence)

    def drop_at_most(self, confidence: float) -> float:
        """`expected_drop` at most.

        What did not flip here may flip elsewhere: each place costs at least what its margin tells, with noise of the
        size that all margins show (a normal distribution). Nor are these samples all that there are: as large a share
        of others as a kind may have that none of them shows costs as much as noise of that size can. How sure a model
        is, is not how often it is right: half as much is added, and it is never said to be less than a tenth of a
        point.
        """
        if self.is_ctc:
            read = self._reading()
            length = max(float(np.mean(read.characters)), 1e-9)
            return max(_UNSURE * mean_bound(np.array(read.cost) / length, confidence), _LEAST_DROP)
        margins, noise, worth = _margins(self._near, self._are_likely)
        chance = np.vectorize(NormalDist().cdf, otypes=[float])
        costs = [
            max(lead.cost, float((lead.gap * chance(-margin / max(noise, 1e-30))).mean()))
            for lead, margin in zip(self._near, margins, strict=True)
        ]
        worth = worth if self.gain is None else 1 / max(self.gain, 1e-30)
        unseen = share_bound(0, len(costs), confidence) * min(1.0, max(0.0, worth * _WORST_MARGIN * noise))
        return max(_UNSURE * (mean_bound(np.array(costs), confidence) + unseen), _LEAST_DROP)

    def f1_lost(self, confidence: float | None = None) -> float | None:
        """What the mean F1 of classes loses, at most where a confidence is given; None of texts, and without classes
        that are named often enough.
        """
        return None if self.is_ctc else self._each.lost(confidence)

    @property
    def is_ctc(self) -> bool:
        """True when the first or last class is what most steps say: the blank of a CTC output."""
        return max(self._blank.values(), default=0) > _BLANK_SHARE * max(self.total, 1)

    @property
    def agreement(self) -> float:
        """Share of equal classes, or of equal characters."""
        return 1 - self._reading().share(self._reading().edits) if self.is_ctc else self.hits / self.total

    @property
    def flips_counted(self) -> float:
        """`1 - agreement`, less where the float model's probabilities say that it is right less often: what one of
        hardly more than a tie flips costs little even if it is never right.
        """
        likely = self._are_likely and not self.is_ctc
        sure = float(np.mean([lead.sure for lead in self._near])) if likely else 1.0
        return (1 - self.agreement) * max(sure, _LEAST_SURE)

    @property
    def expected_drop(self) -> float:
        """Accuracy to lose by the float model's own probabilities: of classes, or of characters."""
        return self._reading().share(self._reading().cost) if self.is_ctc else self._lost / self.total


class LabelAgreement(ClassAgreement):
    """Labels without what they were chosen by: of how sure the float model is of each, nothing is known."""

    def add(self, right: np.ndarray, actual: np.ndarray) -> None:
        """Take in a batch, [samples, ...]."""
        flips = (right != actual).reshape(len(right), -1).sum(axis=1)
        self.total += right.size
        self.hits += right.size - int(flips.sum())
        self._lost += _LABEL_COSTS * float(flips.sum())
        self._are_likely = False
        self._samples += [(float(f), right.size // len(right)) for f in flips]

    def drop_at_most(self, confidence: float) -> float:
        """`expected_drop` at most."""
        return _LABEL_COSTS * self.flips_at_most(confidence)
