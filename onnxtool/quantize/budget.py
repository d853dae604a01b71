"""The accuracy budget: what a candidate may lose."""

from __future__ import annotations

from dataclasses import dataclass

from onnxtool.report.quantize import Fidelity, TaskMetric

# Without labels. Where a flip costs next to nothing by the float model's own probabilities (two tokens that it holds
# for equally likely), more of them are allowed; both numbers leave room for a small sample.
_SAFETY = 10
_MOST_FLIPS = 5
_CLASSES_DB = 20.0
_DENSE_DB = 25.0


@dataclass(frozen=True)
class Budget:
    """What may be lost.

    Attributes:
        max_drop: largest loss of the task metric (0.01 is one point); without labels, the loss to stay within by
            the fidelity of the outputs.
        labelled: a task metric decides.
    """

    max_drop: float = 0.01
    labelled: bool = False

    def allows(self, fidelity: Fidelity, metric: TaskMetric | None = None) -> bool:
        """True when a candidate keeps the budget."""
        if metric is not None:
            return metric.drop <= self.max_drop + 1e-12
        if fidelity.detection_f1 is not None and fidelity.detection_f1 < 1 - self.max_drop:
            return False
        if fidelity.agreement is None or fidelity.expected_drop is None:
            return fidelity.channel_db >= _DENSE_DB
        if fidelity.sequences:
            return fidelity.agreement >= 1 - self.max_drop
        sure = fidelity.agreement >= 1 - self.max_drop
        harmless = (
            fidelity.expected_drop <= self.max_drop / _SAFETY and fidelity.agreement >= 1 - _MOST_FLIPS * self.max_drop
        )
        return (sure or harmless) and fidelity.channel_db >= _CLASSES_DB

    def hopeless(self, fidelity: Fidelity) -> bool:
        """True when a first look shows a candidate to be far outside, so that measuring it closely is idle."""
        if self.labelled:
            return fidelity.channel_db < 5.0
        if fidelity.agreement is None:
            return fidelity.channel_db < _DENSE_DB - 6
        too_many = fidelity.agreement < 1 - 2 * _MOST_FLIPS * self.max_drop
        return too_many or (fidelity.channel_db < _CLASSES_DB - 6 and not fidelity.sequences)

    @property
    def words(self) -> str:
        """The budget in one sentence."""
        points = f"{self.max_drop * 100:g} point{'' if self.max_drop == 0.01 else 's'}"
        if self.labelled:
            return f"at most {points} below float on the labelled data"
        return (
            f"on held-out calibration samples, same argmax on {100 - self.max_drop * 100:g} % (or flips that cost at "
            f"most {self.max_drop * 100 / _SAFETY:g} points by the float model's own probabilities) and "
            f"{_CLASSES_DB:g} dB; outputs that are no classes: {_DENSE_DB:g} dB and the same detections"
        )
