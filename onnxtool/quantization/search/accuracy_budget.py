"""The accuracy budget: what a candidate may lose."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from onnxtool.quantization.evaluation.output_statistics import ALIKE_DB, CLASSES_DB, TARGETS_DB, VALUES_DB
from onnxtool.report.quantize import Fidelity, TaskMetric

DEFAULT_DROP = 0.01  # one point
# Without labels. Where a flip costs next to nothing by the float model's own probabilities (two tokens that it holds
# for equally likely), more of them are allowed; both numbers leave room for a small sample.
_SAFETY = 10
_MOST_FLIPS = 5
# With so little noise, what flips are near ties, which float decides by chance too: a few dozen samples of an unsure
# model have several of them.
_CLOSE_DB = 30.0
_SAFETY_CLOSE = 4
_MOST_FLIPS_CLOSE = 10
_MISREAD = 3  # times the characters that may be others: in the few texts of a first look, too many for chance
_MOST_FLIPPED_CLOSE = 2  # scores beside a threshold, of fewer than
_MANY_FOUND = 200
_RARE_SHIFT = 3  # times the loss to stay within: of a score, where only a few are as high
_MOST_SHIFT = 2  # times the loss to stay within: of the sum of a map of amounts
# Vectors for comparing: what they are for is their neighbours. Of ten, one may change place with the eleventh.
VECTOR_COSINE = 0.98
NEIGHBOURS = 0.9
# What a first look must leave between a candidate and the budget: some decibels, and half of what may be lost.
_ROOM_DB = 2.0
_HOPELESS_DB = 6.0  # below what an output needs
_ROOM = 2


class Samples(Enum):
    """How many samples have to show that a candidate keeps the budget."""

    ALL = "all of them"
    FEW_WITH_ROOM = "a first few, where that leaves room to spare"
    FEW = "a first few, where there are no labels"


@dataclass(frozen=True)
class AccuracyBudget:
    """What may be lost.

    Attributes:
        max_drop: largest loss of the task metric (0.01 is one point); without labels, the loss to stay within by
            the fidelity of the outputs.
        labelled: a task metric decides.
    """

    max_drop: float = DEFAULT_DROP
    labelled: bool = False

    def allows(self, fidelity: Fidelity, metric: TaskMetric | None = None) -> bool:
        """True when a candidate keeps the budget."""
        if metric is not None:
            return metric.drop <= self.max_drop + 1e-12
        if not self._scores(fidelity) or not self._vectors(fidelity):
            return False
        if fidelity.total_shift is not None and fidelity.total_shift > _MOST_SHIFT * self.max_drop:
            return False
        if fidelity.agreement is None or fidelity.expected_drop is None:
            return fidelity.margin_db >= 0
        sure = fidelity.agreement >= 1 - self.max_drop
        if sure and fidelity.sequences:
            return True
        safety, flips = self._ties(fidelity.channel_db >= _CLOSE_DB)
        harmless = fidelity.expected_drop <= self.max_drop / safety and fidelity.agreement >= 1 - flips * self.max_drop
        return (sure or harmless) and fidelity.margin_db >= 0

    def _scores(self, fidelity: Fidelity) -> bool:
        """Whether the same is found over a threshold, or what is found or not costs next to nothing."""
        # Of a small object a few pixels at its rim are much, and cost nothing.
        costly = fidelity.sample_cost is None or fidelity.sample_cost > self.max_drop / _SAFETY_CLOSE
        if fidelity.sample_f1 is not None and fidelity.sample_f1 < 1 - self.max_drop and costly:
            return False
        if fidelity.rare_shift is not None and fidelity.rare_shift > _RARE_SHIFT * self.max_drop:
            return False
        if fidelity.detection_f1 is None:
            return True
        close = fidelity.channel_db >= _CLOSE_DB
        # Of a few dozen, one is as much as two in a hundred.
        flipped = _MOST_FLIPPED_CLOSE if close and fidelity.detections < _MANY_FOUND else 1
        if fidelity.detection_f1 >= 1 - flipped * self.max_drop:
            return True
        safety, flips = self._ties(close)
        near_ties = fidelity.detection_cost is not None and fidelity.detection_cost <= self.max_drop / safety
        return near_ties and fidelity.detection_f1 >= 1 - flips * self.max_drop

    @staticmethod
    def _ties(close: bool) -> tuple[int, int]:
        """What flips that cost next to nothing may be: a share of the loss to stay within, and times that loss."""
        return (_SAFETY_CLOSE, _MOST_FLIPS_CLOSE) if close else (_SAFETY, _MOST_FLIPS)

    @staticmethod
    def _vectors(fidelity: Fidelity) -> bool:
        """Whether the angles and the neighbours of vectors are kept."""
        if fidelity.vector_cosine is not None and fidelity.vector_cosine < VECTOR_COSINE:
            return False
        return fidelity.neighbours is None or fidelity.neighbours >= NEIGHBOURS

    def is_clearly_outside(self, fidelity: Fidelity) -> bool:
        """True when a first look shows a candidate to be far outside, so that measuring it closely is idle."""
        if self.labelled:
            return fidelity.channel_db < 5.0
        if fidelity.vector_cosine is not None and fidelity.vector_cosine < 1 - 3 * (1 - VECTOR_COSINE):
            return True
        if fidelity.agreement is None:
            return fidelity.margin_db < -_HOPELESS_DB
        if fidelity.sequences:
            return fidelity.agreement < 1 - _MISREAD * self.max_drop
        flips = _MOST_FLIPS_CLOSE if fidelity.channel_db >= _CLOSE_DB else _MOST_FLIPS
        too_many = fidelity.agreement < 1 - 2 * flips * self.max_drop
        return too_many or fidelity.margin_db < -_HOPELESS_DB

    def allows_with_room(self, fidelity: Fidelity) -> bool:
        """True when a first look, on few samples, shows a candidate to be within the budget with room to spare.

        Half of what may be lost is, and outputs and vectors would keep it with more noise. Labels have to be asked.
        """
        if self.labelled:
            return False
        worse = replace(
            fidelity,
            channel_db=fidelity.channel_db - _ROOM_DB,
            margin_db=fidelity.margin_db - _ROOM_DB,
            vector_cosine=None if fidelity.vector_cosine is None else 1 - _ROOM * (1 - fidelity.vector_cosine),
            neighbours=None if fidelity.neighbours is None else 1 - _ROOM * (1 - fidelity.neighbours),
        )
        return AccuracyBudget(self.max_drop / _ROOM).allows(worse)

    @property
    def words(self) -> str:
        """The budget in one sentence."""
        points = f"{self.max_drop * 100:g} point{'' if self.max_drop == 0.01 else 's'}"
        if self.labelled:
            return f"at most {points} below float on the labelled data"
        return (
            f"on held-out calibration samples, same argmax on {100 - self.max_drop * 100:g} % (or flips that cost at "
            f"most {self.max_drop * 100 / _SAFETY:g} points by the float model's own probabilities, "
            f"{self.max_drop * 100 / _SAFETY_CLOSE:g} where the outputs are within {_CLOSE_DB:g} dB) and "
            f"{CLASSES_DB:g} dB; outputs that are not classes: {VALUES_DB:g} dB in the weakest column ({TARGETS_DB:g} "
            f"of a linear layer's or of scores, {ALIKE_DB:g} of many that vary alike) and the same detections; "
            f"vectors: cosine {VECTOR_COSINE:g} and "
            f"{NEIGHBOURS * 100:g} % of the ten nearest"
        )
