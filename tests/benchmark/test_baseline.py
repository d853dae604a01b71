"""bench --baseline: what counts as a regression."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from onnxtool.benchmark.baseline import against_baseline
from onnxtool.errors import InputError
from onnxtool.report.measurement.bench import BenchReport, Latency

ITEM = Latency("models/m.onnx", 1, 1, 100, 0.010, 0.011, 0.012, 0.0098, 0.0102, 100.0)
REPORT = BenchReport((), (ITEM,), "random", "CPUExecutionProvider", "some cpu", 2, "onnxruntime")


def scaled(factor: float, spread: float = 0.02) -> BenchReport:
    median = ITEM.median * factor
    item = replace(ITEM, median=median, low=median * (1 - spread), high=median * (1 + spread))
    return replace(REPORT, latencies=(item,))


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    path = tmp_path / "base.json"
    path.write_text(json.dumps(REPORT.to_dict()))
    return path


@pytest.mark.parametrize(
    ("factor", "spread", "regressed"),
    [(1.0, 0.02, False), (1.04, 0.001, False), (1.2, 0.02, True), (0.5, 0.02, False), (1.2, 0.3, False)],
)
def test_slower_beyond_the_limit_and_the_intervals(
    factor: float, spread: float, regressed: bool, baseline: Path
) -> None:
    report = against_baseline(scaled(factor, spread), baseline, 0.05)
    assert bool(report.regressions) is regressed
    assert report.ok is not regressed


def test_says_how_much(baseline: Path) -> None:
    (line,) = against_baseline(scaled(1.2), baseline, 0.05).regressions
    assert "m.onnx (batch 1, 1 threads): 10 ms before, 12 ms now, +20.0% where 5.0% is allowed" in line


def test_another_processor_is_a_warning(baseline: Path) -> None:
    report = against_baseline(replace(REPORT, cpu="other"), baseline, 0.05)
    assert "another processor" in report.warnings[0]


def test_files_that_are_no_baseline(baseline: Path, tmp_path: Path) -> None:
    for name, content, message in (
        ("none.json", None, "no such file"),
        ("text.json", "no", "not valid JSON"),
        ("list.json", "[]", "must hold a JSON object"),
        ("check.json", '{"schema": "onnxtool/check/1"}', "is not a report"),
        ("cut.json", '{"schema": "onnxtool/bench/1", "latencies": [{}]}', "damaged"),
        ("empty.json", '{"schema": "onnxtool/bench/1", "latencies": []}', "has none of these models"),
    ):
        if content is not None:
            (tmp_path / name).write_text(content)
        with pytest.raises(InputError, match=message):
            against_baseline(REPORT, tmp_path / name, 0.05)
