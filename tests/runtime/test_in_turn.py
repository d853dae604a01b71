"""Models of which one is loaded at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxtool.errors import InputError
from onnxtool.runtime.in_turn import RunnerInTurn, Turn
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.timing import timing
from onnxtool.runtime.timing.timing import compare_session_latency


def test_a_runner_is_loaded_when_it_runs_and_unloaded_when_another_does(digits_onnx: Path) -> None:
    turn, loaded = Turn(), list[str]()

    def opening(name: str) -> OnnxRunner:
        loaded.append(name)
        return OnnxRunner.open(digits_onnx)

    first, second = (RunnerInTurn(turn, lambda name=name: opening(name)) for name in "ab")  # type: ignore[misc]
    feeds = {"image": np.zeros((2, 1, 8, 8), np.float32)}
    assert loaded == ["a", "b"] and [s.name for s in first.inputs] == ["image"]
    outputs = [runner.run(feeds)["logits"] for runner in (second, second, first, first)]
    assert loaded == ["a", "b", "a"] and all(np.array_equal(o, outputs[0]) for o in outputs)
    turn.end()
    first.run(feeds)
    assert loaded == ["a", "b", "a", "a"]


def test_a_model_that_cannot_be_loaded_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"none")
    with pytest.raises(InputError):
        RunnerInTurn(Turn(), lambda: OnnxRunner.open(tmp_path / "m.onnx"))


def test_sessions_in_turn_are_timed_once_each(digits_onnx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turn = Turn()
    runners = [RunnerInTurn(turn, lambda: OnnxRunner.open(digits_onnx)) for _ in range(3)]
    seconds = iter([2.0, 1.0, 4.0])
    timed: list[int] = []

    def measured(calls: list[object], **_: object) -> list[timing.Timing]:
        timed.append(len(calls))
        return [timing.Timing((next(seconds),) * (5 + len(timed)))]

    monkeypatch.setattr(timing, "measure", measured)
    feeds = {"image": np.zeros((1, 1, 8, 8), np.float32)}
    found = [compare_session_latency(runners[0], other, feeds, 1, 0.1).value for other in runners[1:]]
    assert found == [0.5, 2.0] and timed == [1, 1, 1]
