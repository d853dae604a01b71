"""The accuracy budget: what a candidate may lose."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

from onnxtool.quantization.evaluation.output_statistics import ALIKE_DB, CLASSES_DB, TARGETS_DB, VALUES_DB
from onnxtool.report.quantize import Fidelity, TaskMetric

DEFAULT_DROP = 0.01  # one point
# Without labels. Where a flip costs next to nothing by the float model's own probabilities (two tokens that it holds
# for equally likely), more of them are allowed. For scores both numbers leave room for a small sample.
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
class BudgetFault:
    """What breaks a budget.

    Attributes:
        text: what it is, and by how much.
        excess: how many times what is allowed, by which the nearest miss is told; comparable about.
    """

    text: str
    excess: float


def _flips(seen: Fidelity) -> float:
    assert seen.agreement is not None
    return 1 - seen.agreement if seen.flips_at_most is None else seen.flips_at_most


def _cost(seen: Fidelity) -> float:
    if seen.drop_at_most is not None:
        return seen.drop_at_most
    return float("inf") if seen.expected_drop is None else seen.expected_drop


def _points(share: float) -> str:
    return f"{share * 100:.2g} points"


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
        return not self.faults(fidelity, metric)

    def faults(self, fidelity: Fidelity, metric: TaskMetric | None = None) -> tuple[BudgetFault, ...]:
        """What breaks the budget; empty when it is kept.

        With labels the bound of the loss decides. Where so few cannot show that, the loss that was measured has to
        be within the budget, and what the outputs would cost without labels.
        """
        if metric is None:
            return tuple(self._faults_of_outputs(fidelity))
        if metric.drop_at_most is not None and metric.drop_at_most <= self.max_drop + 1e-12:
            return ()
        if metric.drop > self.max_drop + 1e-12:
            return (BudgetFault(f"{metric.name} loses {_points(metric.drop)}", metric.drop / max(self.max_drop, 1e-9)),)
        return tuple(AccuracyBudget(self.max_drop)._faults_of_outputs(fidelity))

    def _faults_of_outputs(self, seen: Fidelity) -> Iterator[BudgetFault]:
        yield from self._faults_of_scores(seen)
        if seen.vector_cosine is not None and seen.vector_cosine < VECTOR_COSINE:
            yield BudgetFault(
                f"vectors: cosine {seen.vector_cosine:.3g}", (1 - seen.vector_cosine) / (1 - VECTOR_COSINE)
            )
        if seen.neighbours is not None and seen.neighbours < NEIGHBOURS:
            yield BudgetFault(f"{seen.neighbours:.0%} of neighbours kept", (1 - seen.neighbours) / (1 - NEIGHBOURS))
        if seen.total_shift is not None and seen.total_shift > _MOST_SHIFT * self.max_drop:
            yield BudgetFault(f"the sum of a map is {seen.total_shift:.2%} off", seen.total_shift / self.max_drop)
        flips = None if seen.agreement is None or seen.expected_drop is None else _flips(seen)
        if flips is not None and flips <= self.max_drop + 1e-12 and seen.sequences:
            return
        if seen.margin_db < 0:
            where = seen.weakest or "the output"
            yield BudgetFault(f"{where} has {-seen.margin_db:.1f} dB less than it needs", 10 ** (-seen.margin_db / 10))
        if flips is None or flips <= self.max_drop + 1e-12 or seen.agreement is None:
            return
        most = _MOST_FLIPS_CLOSE if seen.channel_db >= _CLOSE_DB else _MOST_FLIPS
        cost, share = _cost(seen), 1 - seen.agreement
        if cost > self.max_drop + 1e-12:
            yield BudgetFault(f"other classes cost {_points(cost)} at most", cost / max(self.max_drop, 1e-9))
        if share > most * self.max_drop + 1e-12:
            yield BudgetFault(f"{share:.1%} of classes are others", share / max(most * self.max_drop, 1e-9))

    def _faults_of_scores(self, seen: Fidelity) -> Iterator[BudgetFault]:
        """Whether the same is found over a threshold, or what is found or not costs next to nothing."""
        # Of a small object a few pixels at its rim are much, and cost nothing.
        costly = seen.sample_cost is None or seen.sample_cost > self.max_drop / _SAFETY_CLOSE
        if seen.sample_f1 is not None and seen.sample_f1 < 1 - self.max_drop and costly:
            yield BudgetFault(
                f"F1 of {seen.sample_f1:.3f} in each picture", (1 - seen.sample_f1) / max(self.max_drop, 1e-9)
            )
        if seen.rare_shift is not None and seen.rare_shift > _RARE_SHIFT * self.max_drop:
            yield BudgetFault(
                f"high scores move by {seen.rare_shift:.3f}", seen.rare_shift / (_RARE_SHIFT * self.max_drop)
            )
        if seen.detection_f1 is None:
            return
        close = seen.channel_db >= _CLOSE_DB
        # Of a few dozen, one is as much as two in a hundred.
        flipped = _MOST_FLIPPED_CLOSE if close and seen.detections < _MANY_FOUND else 1
        safety, flips = (_SAFETY_CLOSE, _MOST_FLIPS_CLOSE) if close else (_SAFETY, _MOST_FLIPS)
        near_ties = seen.detection_cost is not None and seen.detection_cost <= self.max_drop / safety
        if seen.detection_f1 < 1 - (max(flips, flipped) if near_ties else flipped) * self.max_drop:
            yield BudgetFault(
                f"F1 of {seen.detection_f1:.3f} of scores", (1 - seen.detection_f1) / max(self.max_drop, 1e-9)
            )

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
            return f"at most {points} below float on the labelled data, by the end of the interval"
        return (
            f"on held-out calibration samples, at most {self.max_drop * 100:g} % other classes by the interval's end, "
            f"or others that cost at most {points} by the float model's own probabilities, and "
            f"{CLASSES_DB:g} dB; outputs that are not classes: {VALUES_DB:g} dB in the weakest column ({TARGETS_DB:g} "
            f"of a linear layer's or of scores, {ALIKE_DB:g} of many that vary alike) and the same detections; "
            f"vectors: cosine {VECTOR_COSINE:g} and "
            f"{NEIGHBOURS * 100:g} % of the ten nearest"
        )
