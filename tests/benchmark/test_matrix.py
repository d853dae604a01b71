"""One model in several settings. Timing is stood in for where a choice is tested; speed itself is never asserted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from onnxtool.benchmark import matrix as module
from onnxtool.benchmark.matrix import bench_matrix
from onnxtool.benchmark.session_code import SAVED, combined
from onnxtool.errors import InputError, ResourceError, UsageError
from onnxtool.report.compare import ProviderProof
from onnxtool.report.measurement.bench import LoadCost
from onnxtool.runtime.session.session import SessionOptions
from onnxtool.runtime.timing.timing import Timing


@pytest.fixture
def model(tmp_path: Path) -> Path:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
    )
    path = tmp_path / "relu.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """No processes, no sessions: only the choice is left."""
    monkeypatch.setattr(module, "load_cost", lambda *_, **__: LoadCost(0.01, 1, 10, 5))
    monkeypatch.setattr(module, "resolved_providers", lambda _: [])
    monkeypatch.setattr(module, "_open_all", lambda settings, _: [lambda: None] * len(settings))


def latencies(monkeypatch: pytest.MonkeyPatch, *rounds: list[float]) -> None:
    """Each call of `timed_blocks` gives these latencies, for each setting in turn."""
    left = list(rounds)

    def timed(*_: object, **__: object) -> list[tuple[Timing, ...]]:
        values = left.pop(0)
        return [tuple(Timing((v * (1 + i / 1000),)) for i in range(4)) for v in values]

    monkeypatch.setattr(module, "timed_blocks", timed)


def proofs(monkeypatch: pytest.MonkeyPatch, **verdicts: Any) -> None:
    def prove(_: Path, options: SessionOptions, **__: Any) -> ProviderProof:
        name = module._provider(options)
        wrong = verdicts.get(name, True)
        return ProviderProof(name, bool(wrong), 0.0 if wrong else 0.1, "float32" if wrong else "bfloat16")

    monkeypatch.setattr(module, "prove_on_provider", prove)


@pytest.mark.usefixtures("cheap")
def test_the_fastest_that_is_equal_is_chosen(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proofs(monkeypatch, fast=False)
    monkeypatch.setattr(module, "code_of", lambda *_: {})
    monkeypatch.setattr(module, "settings_of", lambda _: {})
    latencies(monkeypatch, [1.0, 0.5, 0.8], [1.0, 0.85])
    report = bench_matrix(model, ["fast", "good"])
    assert [(r.name, r.verdict) for r in report.rows] == [
        ("cpu, all cores", "equal"),
        ("fast, all cores", "differs"),
        ("good, all cores", "equal"),
    ]
    assert report.best.name == "good, all cores"
    assert report.best.ratio == pytest.approx(0.85), "what was measured again"
    assert "bfloat16" in report.warnings[0]


@pytest.mark.usefixtures("cheap")
def test_the_default_stays_when_the_second_measurement_does_not_agree(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proofs(monkeypatch)
    latencies(monkeypatch, [1.0, 0.9], [1.0, 1.01])  # fast by chance
    report = bench_matrix(model, ["cpu"], threads=(1,))
    assert (report.best.name, report.best.ratio) == ("cpu, all cores", 1.0)


@pytest.mark.usefixtures("cheap")
def test_a_setting_that_crashes_costs_one_line(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cost(_: Path, __: Any, options: SessionOptions, **___: Any) -> LoadCost:
        if options.provider == "hangs":
            raise ResourceError("loading it took longer than 120 s.")
        return LoadCost(0.01, 1, 10, 5)

    proofs(monkeypatch)
    monkeypatch.setattr(module, "load_cost", cost)
    latencies(monkeypatch, [1.0, 1.1])
    report = bench_matrix(model, ["hangs", "cpu"], threads=(1,))
    rows = {r.name: r for r in report.rows}
    assert (rows["hangs, 1 thread"].verdict, rows["hangs, 1 thread"].median) == ("failed", None)
    assert rows["cpu, 1 thread"].verdict == "equal"
    assert "longer than 120 s" in report.warnings[0]


_CRASHES = """
import os, signal, sys
from onnxtool.runtime.worker import isolation
isolation.supervise(lambda message, code: print(message, file=sys.stderr))
from onnxtool.benchmark import matrix
prove = matrix.prove_on_provider
def proof(path, options, **rest):
    if options.threads == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    return prove(path, options, **rest)
matrix.prove_on_provider = proof
report = matrix.bench_matrix(sys.argv[1], ["cpu"], threads=(1, 2), budget=0.01)
for row in report.rows:
    print(row.name, row.verdict, row.failure, sep="|")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="commands are watched where processes fork")
def test_a_setting_that_crashes_the_command_itself_costs_one_line(model: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CRASHES, str(model)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.splitlines() == [
        "cpu, all cores|equal|",
        "cpu, 1 thread|failed|it ran, and crashed when it was run again",
        "cpu, 2 threads|equal|",
    ]


def test_a_provider_that_is_not_there_is_a_usage_error(model: Path) -> None:
    with pytest.raises(UsageError, match="abacus"):
        bench_matrix(model, ["abacus"], budget=0)


@pytest.mark.usefixtures("cheap")
def test_a_model_that_does_not_run_on_the_cpu_is_an_error(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def prove(*_: Any, **__: Any) -> ProviderProof:
        return ProviderProof("cpu", False, None, "", failure="it crashed")

    monkeypatch.setattr(module, "prove_on_provider", prove)
    with pytest.raises(InputError, match="it crashed"):
        bench_matrix(model, ["cpu"])


@pytest.mark.usefixtures("cheap")
def test_session_settings_are_tried_one_by_one_and_together(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proofs(monkeypatch)
    #                  default, spin, arena, pattern, parallel, extended, basic, prepack, saved
    latencies(monkeypatch, [1.0, 0.8, 0.9, 1.0, 1.2, 0.95, 1.3, 1.0, 0.85], [1.0, 0.7, 0.8, 0.85])
    report = bench_matrix(model, ["cpu"], tune=True)
    assert len(report.rows) == 9
    assert report.best.name == f"cpu, all cores, no spinning, {SAVED}, no arena"
    assert report.best.settings["enable_cpu_mem_arena"] is False
    assert report.best.settings["config_entries"] == {"session.intra_op.allow_spinning": "0"}
    assert "optimized_model_filepath" in report.best.settings["model"]


def test_changes_of_one_kind_exclude_one_another() -> None:
    assert combined([SAVED, "graph level basic", "no arena"]) == (SAVED, "no arena")
    assert combined(["graph level basic", "graph level extended"]) == ("graph level basic",)


def test_really_measured(model: Path) -> None:
    report = bench_matrix(model, ["cpu"], threads=(1,), budget=0.01)
    assert [r.verdict for r in report.rows] == ["equal", "equal"]
    assert all(r.median is not None and r.load is not None for r in report.rows)
    assert report.batch == 1


@pytest.mark.usefixtures("cheap")
def test_a_default_that_differs_itself_is_said(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proofs(monkeypatch, cpu=False)
    latencies(monkeypatch, [1.0, 0.5])
    report = bench_matrix(model, ["cpu"], threads=(1,))
    assert report.best.name == "cpu, all cores"
    assert "no setting can be told right" in report.warnings[0]
