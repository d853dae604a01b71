"""Models so large that one session is loaded at a time."""

from __future__ import annotations

import weakref
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxtool.model.file import ModelFile
from onnxtool.quantization import inputs
from onnxtool.quantization.inputs import QuantizationInputs
from onnxtool.quantization.quantize import quantize
from onnxtool.quantization.search import evaluator
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import SessionOptions


class Loaded(list[int]):
    """How many sessions there were each time, and of what one more was loaded."""

    def __init__(self) -> None:
        self.models: list[object] = []
        self.options: list[SessionOptions] = []
        super().__init__()


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Loaded:
    """Every model counts as large; how many sessions there are whenever one more is loaded."""
    sessions: list[weakref.ref[object]] = []
    counts = Loaded()
    opened = QuantizationInputs._opened

    def counted(self: QuantizationInputs, *args: object) -> OnnxRunner:
        counts.append(sum(session() is not None for session in sessions))
        counts.models.append(args[0])
        counts.options.append(self.session)
        runner = opened(self, *args)  # type: ignore[arg-type]
        sessions.append(weakref.ref(runner.session))
        return runner

    monkeypatch.setattr(inputs, "_IN_TURN", 0)
    monkeypatch.setattr(QuantizationInputs, "_opened", counted)
    return counts


def test_the_float_model_is_run_and_timed_before_the_result_is_loaded(
    digits_onnx: Path, tmp_path: Path, loaded: Loaded
) -> None:
    report = quantize(digits_onnx, tmp_path / "q.onnx", mode="dynamic")
    assert report.latency is not None and report.fidelity is not None and report.fidelity.samples > 1
    assert report.kernels and [p.name for p in tmp_path.iterdir()] == ["q.onnx"]
    # The probes are drawn with a session too; behind it each model is loaded once.
    assert len(loaded) == 3 and not any(loaded)


def test_half_precision_weights_are_not_all_widened_to_judge_them(
    digits_onnx: Path, tmp_path: Path, loaded: Loaded
) -> None:
    report = quantize(digits_onnx, tmp_path / "h.onnx", mode="float16")
    assert report.fidelity is not None and report.latency is None
    assert any("latency was not measured" in warning for warning in report.warnings)
    assert [(o.prepack, o.optimization) for o in loaded.options[-2:]] == [(True, "all"), (False, "off")]


def test_the_file_is_the_one_that_smaller_models_get(
    digits_onnx: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quantize(digits_onnx, tmp_path / "together.onnx", mode="int8")
    monkeypatch.setattr(inputs, "_IN_TURN", 0)
    quantize(digits_onnx, tmp_path / "in_turn.onnx", mode="int8")
    first, second = (onnx.load(tmp_path / f"{name}.onnx").graph for name in ("together", "in_turn"))
    assert [n.op_type for n in first.node] == [n.op_type for n in second.node]
    arrays = [{i.name: onnx.numpy_helper.to_array(i) for i in graph.initializer} for graph in (first, second)]
    assert arrays[0].keys() == arrays[1].keys()
    assert all(np.array_equal(array, arrays[1][name]) for name, array in arrays[0].items())


def test_the_search_holds_one_session_at_a_time(
    digits_onnx: Path, fixtures: Path, tmp_path: Path, loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    for short in ("SHORT", "TINY"):  # which are timed with fresh sessions
        monkeypatch.setattr(evaluator, short, 0)
    data = fixtures / "calib.npz"
    report = quantize(digits_onnx, tmp_path / "q.onnx", data=data, time_limit=6.0)
    assert len(report.frontier) > 1 and all(c.latency for c in report.frontier if c.within_budget)
    assert len(loaded) > 3 and not any(loaded)
    assert sum(isinstance(model, ModelFile) for model in loaded.models) == 1, "the float model"
