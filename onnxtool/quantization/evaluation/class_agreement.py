"""Outputs of classes: how often a candidate names the same class, and what it costs where it does not."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from onnxtool.quantization.evaluation.ctc import collapse, edit_distance
from onnxtool.quantization.evaluation.probabilities import probabilities

_BLANK_SHARE = 0.3


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
    _steps: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)  # the best class of each, float and here
    _read: tuple[int, int, int, int] = (0, 0, 0, 0)  # the blank, how many of the steps, edits and characters in them

    def add(self, right: np.ndarray, actual: np.ndarray) -> None:
        """Take in a batch: logits or probabilities by the float model and by the candidate."""
        best, chosen = right.argmax(axis=-1), actual.argmax(axis=-1)
        flipped = best != chosen
        self.hits += int((~flipped).sum())
        self.total += best.size
        if flipped.any():
            likely = probabilities(right[flipped].astype(np.float64))
            rows = np.arange(len(likely))
            self._lost += float((likely[rows, best[flipped]] - likely[rows, chosen[flipped]]).sum())
        if right.ndim == 3:
            last = right.shape[-1] - 1
            for blank in (0, last):
                self._blank[blank] = self._blank.get(blank, 0) + int((best == blank).sum())
            self._steps += zip(best.astype(np.int32), chosen.astype(np.int32), strict=True)

    def _misread(self) -> float:
        """Share of characters that are others, in all samples so far."""
        blank = max(self._blank, key=lambda k: self._blank[k])
        known, count, edits, characters = self._read
        if known != blank:
            count, edits, characters = 0, 0, 0
        for a, b in self._steps[count:]:
            text = collapse(a, blank)
            edits += edit_distance(text, collapse(b, blank))
            characters += len(text)
        self._read = blank, len(self._steps), edits, characters
        return edits / max(characters, 1)

    @property
    def is_ctc(self) -> bool:
        """True when the first or last class is what most steps say: the blank of a CTC output."""
        return max(self._blank.values(), default=0) > _BLANK_SHARE * max(self.total, 1)

    @property
    def agreement(self) -> float:
        """Share of equal classes, or of equal characters."""
        return 1 - self._misread() if self.is_ctc else self.hits / self.total

    @property
    def expected_drop(self) -> float:
        """Accuracy to lose by the float model's own probabilities; for sequences, the share of characters."""
        return 1 - self.agreement if self.is_ctc else self._lost / self.total
