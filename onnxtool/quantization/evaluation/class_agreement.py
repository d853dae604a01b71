"""Outputs of classes, texts that they spell included: how often a candidate names the same, and what it costs else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

_SUMS_TO = 1e-3  # how near to one


def probabilities(values: np.ndarray) -> np.ndarray:
    """Values over the last axis as probabilities: as they are when they sum to one, else their softmax."""
    if values.min() >= 0 and np.abs(values.sum(axis=-1) - 1).max() < _SUMS_TO:
        return values
    powers = np.exp(values - values.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def are_distributions(outputs: Sequence[np.ndarray]) -> bool:
    """Whether every row of an output sums to one: whatever its graph says, it is of classes then."""
    return all(
        a.dtype.kind == "f" and a.ndim >= 2 and a.size and a.shape[-1] > 1
        and a.min() >= 0 and np.abs(a.sum(axis=-1, dtype=np.float64) - 1).max() < _SUMS_TO
        for a in outputs
    )  # fmt: skip


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
    """What a CTC decoder reads off: of so many samples, with that class as the blank."""

    blank: int
    count: int = 0
    edits: int = 0
    cost: float = 0.0
    characters: int = 0

    def share(self, amount: float) -> float:
        return amount / max(self.characters, 1)


@dataclass
class ClassAgreement:
    """Running sums over the classes of one output; the last axis is that of classes.

    Attributes:
        hits: how often both name the same class.
        total: of so many.
    """

    hits: int = 0
    total: int = 0
    _lost: float = 0.0
    _blank: dict[int, int] = field(default_factory=dict)
    _steps: list[tuple[np.ndarray, np.ndarray, float]] = field(default_factory=list)  # best classes, and what it costs
    _read: _Reading = field(default_factory=lambda: _Reading(0))

    def add(self, right: np.ndarray, actual: np.ndarray) -> None:
        """Take in a batch: logits or probabilities by the float model and by the candidate."""
        best, chosen = right.argmax(axis=-1), actual.argmax(axis=-1)
        flipped = best != chosen
        self.hits += int((~flipped).sum())
        self.total += best.size
        lost = np.zeros(best.shape)
        if flipped.any():
            likely = probabilities(right[flipped].astype(np.float64))
            rows = np.arange(len(likely))
            lost[flipped] = likely[rows, best[flipped]] - likely[rows, chosen[flipped]]
            self._lost += float(lost.sum())
        if right.ndim == 3:
            last = right.shape[-1] - 1
            for blank in (0, last):
                self._blank[blank] = self._blank.get(blank, 0) + int((best == blank).sum())
            costs = [float(c) for c in lost.sum(axis=-1)]
            self._steps += zip(best.astype(np.int32), chosen.astype(np.int32), costs, strict=True)

    def _reading(self) -> _Reading:
        """What is read off all samples so far."""
        blank = max(self._blank, key=lambda k: self._blank[k])
        read = self._read if self._read.blank == blank else _Reading(blank)
        for a, b, cost in self._steps[read.count :]:
            text = collapse(a, blank)
            edits = edit_distance(text, collapse(b, blank))
            read.edits += edits
            read.cost += min(cost, float(edits))  # a character that only moves by a step costs nothing
            read.characters += len(text)
        read.count = len(self._steps)
        self._read = read
        return read

    @property
    def is_ctc(self) -> bool:
        """True when the first or last class is what most steps say: the blank of a CTC output."""
        return max(self._blank.values(), default=0) > _BLANK_SHARE * max(self.total, 1)

    @property
    def agreement(self) -> float:
        """Share of equal classes, or of equal characters."""
        return 1 - self._reading().share(self._reading().edits) if self.is_ctc else self.hits / self.total

    @property
    def expected_drop(self) -> float:
        """Accuracy to lose by the float model's own probabilities: of classes, or of characters."""
        return self._reading().share(self._reading().cost) if self.is_ctc else self._lost / self.total
