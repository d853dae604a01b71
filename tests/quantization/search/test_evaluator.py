"""How candidates are timed before the choice: in blocks with fresh sessions, the float model first in every other."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.quantization.search import evaluator
from onnxtool.quantization.search.evaluator import CandidateEvaluator, Trial, over_blocks
from onnxtool.report.latency import LatencyRatio


def ratio(value: float, before: float = 1e-4) -> LatencyRatio:
    return LatencyRatio(value, value - 0.001, value + 0.001, before, value * before, 1)


def test_blocks_are_the_unit() -> None:
    found = over_blocks([ratio(0.9), ratio(1.0), ratio(0.9), ratio(1.0)])
    assert found.value == pytest.approx(math.sqrt(0.9))
    assert found.low < 0.9 and found.high > 1.0, "sessions differ by more than rounds"
    assert found.before == pytest.approx(1e-4) and found.after == pytest.approx(0.95e-4)
    assert over_blocks([ratio(0.9)]) == ratio(0.9)


@pytest.mark.parametrize(("before", "blocks"), [(1e-4, 4), (0.01, 1)])
def test_short_models_are_timed_in_blocks_and_which_is_loaded_first_takes_turns(
    before: float, blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []

    def runner(model: Any) -> str:
        loaded.append("float" if model == "float.onnx" else "candidate")
        return loaded[-1]

    def compare(reference: Any, runners: list[Any], *_: Any, **__: Any) -> list[LatencyRatio]:
        assert reference in ("float", "kept")
        return [ratio(0.5, before)] * len(runners)

    monkeypatch.setattr(evaluator, "compare_latency", compare)
    monkeypatch.setattr(evaluator.io, "to_proto", lambda _: SimpleNamespace(SerializeToString=lambda: b"m"))
    job = SimpleNamespace(
        probes=lambda: SimpleNamespace(first=lambda: {"x": np.zeros(1)}),
        runner=runner,
        source="float.onnx",
        threads=1,
        prepared=None,
    )
    lab = CandidateEvaluator(
        *cast(Any, (job, None, None, "kept", {})), conditions=cast(Any, SimpleNamespace(model=lambda _: None))
    )
    monkeypatch.setattr(lab, "build", lambda _: None)
    trial = Trial("a", QuantRecipe(), latency=ratio(0.6, before))
    lab.time_again([trial])
    assert trial.latency is not None and trial.latency.value == pytest.approx(0.5)
    expected = ["candidate", "float", "float", "candidate"] * 2 if blocks == 4 else ["candidate"]
    assert loaded == expected
