"""Checking several models at a time gives what checking them one by one gives."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from onnx import parser

from onnxtool.errors import UsageError
from onnxtool.lint.check import check_all
from onnxtool.report.check import CheckReport, ChecksReport
from onnxtool.runtime.worker.tasks import TaskProcess, TaskProcessEndedError

TEXT = """<ir_version: 10, opset_import: ["" : 20]> m (float[n, 4] x) => (float[n, 4] y) { y = %s(x) }"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for index, operator in enumerate(("Relu", "Neg", "Abs", "Sign", "Tanh")):
        onnx.save(parser.parse_model(TEXT % operator), tmp_path / f"m{index}.onnx")
    (tmp_path / "m2.onnx").write_bytes(b"no model")
    return tmp_path


def without_times(report: ChecksReport) -> ChecksReport:
    reports = [replace(r, stages=tuple(replace(s, seconds=0.0) for s in r.stages)) for r in report.reports]
    return replace(report, reports=tuple(reports))


def test_jobs_change_nothing_but_the_time(folder: Path) -> None:
    one, two = check_all([folder]), check_all([folder], jobs=2)
    assert without_times(two) == without_times(one)
    assert [Path(r.model).name for r in two.reports] == ["m0.onnx", "m1.onnx", "m3.onnx", "m4.onnx"]
    assert [Path(u.model).name for u in two.unreadable] == ["m2.onnx"]
    with pytest.raises(UsageError):
        check_all([folder], jobs=2, select=["OT999"])


def test_a_worker_that_dies_takes_no_other_model_with_it(folder: Path) -> None:
    worker = TaskProcess("onnxtool.lint.check", {})
    assert isinstance(worker.run(folder / "m0.onnx"), CheckReport)
    worker._process.kill()
    with pytest.raises(TaskProcessEndedError, match="ended with code -9"):
        worker.run(folder / "m1.onnx")
    assert worker.ended


def test_the_command_takes_jobs(folder: Path) -> None:
    command = [sys.executable, "-m", "onnxtool", "check", str(folder), "--jobs", "2", "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert (len(found["reports"]), len(found["unreadable"])) == (4, 1)
