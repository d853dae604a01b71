"""A search without a clock: what candidates take is told by their operators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx
import pytest

from onnxtool.model import io
from onnxtool.quantization.search.evaluator import CandidateEvaluator, RecipeTrial
from onnxtool.report.measurement.bench import LatencyRatio


@dataclass
class Pace:
    """How fast candidates are.

    Attributes:
        gain: share of the float model's time that a value in integers saves; negative where it costs time.
    """

    gain: float = 0.05

    def latency(self, model: bytes, threads: int) -> LatencyRatio:
        """The float model takes 10 ms; what is read from integers, or computed in them, saves its share."""
        operators = [node.op_type for node in io.from_proto(onnx.load_model_from_string(model)).graph.all_nodes()]
        integers = sum(name == "DequantizeLinear" or "Integer" in name for name in operators)
        value = max(0.1, 1 - self.gain * integers)
        return LatencyRatio(value, value, value, 0.01, 0.01 * value, threads)


@pytest.fixture(scope="module")
def no_timing() -> Iterator[Pace]:
    """Candidates are not timed, so that neither the verdict nor the work hangs on what else the machine does."""
    pace = Pace()

    def once(lab: CandidateEvaluator, trial: RecipeTrial) -> tuple[LatencyRatio, bool]:
        lab.session(trial)
        found = pace.latency(lab.built(trial).model, lab.job.threads)
        fastest = None if lab._fastest is None else lab._fastest[0].latency
        return found, fastest is not None and found.value > fastest.value

    def again(lab: CandidateEvaluator, trials: list[RecipeTrial], patience: float = 1.0) -> None:
        for trial in trials:
            trial.latency = pace.latency(lab.built(trial).model, lab.job.threads)

    with pytest.MonkeyPatch.context() as patch:
        for name, stand_in in (("time", once), ("time_again", again)):
            patch.setattr(CandidateEvaluator, name, stand_in)
        yield pace
