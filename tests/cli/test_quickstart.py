"""`onnxtool quickstart`: the whole job, once with PyTorch and once without."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import jsonschema
import numpy as np
import onnxruntime as ort
import pytest

from onnxtool.report.quickstart import QuickstartReport
from onnxtool.report.schema import json_schema

Tool = Callable[..., "CompletedProcess[str]"]

WITHOUT_TORCH = """
import importlib.util, sys
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else real(name, *rest)
from onnxtool.cli.app import main
from tests import efforts
with efforts.meaning(quick=True):
    main(["quickstart", sys.argv[1], "--json", sys.argv[2]])
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, onnxtool: Tool) -> tuple[Path, CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("quickstart") / "new" / "folder"
    return folder, onnxtool("quickstart", folder, "--json", "-v")


def test_keeps_accuracy_and_says_so(job: tuple[Path, CompletedProcess[str]]) -> None:
    _, done = job
    assert done.returncode == 0, done.stderr
    plain: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(plain, json_schema(QuickstartReport))
    assert [s["name"] for s in plain["stages"]] == ["original", "convert", "check", "optimize", "quantize", "compare"]
    assert plain["original"] == "PyTorch state_dict"
    assert plain["accuracy_drop"] <= 0.01
    assert "accuracy" in done.stderr


def test_reports_the_accuracy_that_the_files_have(job: tuple[Path, CompletedProcess[str]]) -> None:
    folder, done = job
    arrays = np.load(folder / "eval.npz")
    for stage in json.loads(done.stdout)["stages"]:
        if stage["file"] is not None and stage["file"].endswith(".onnx"):
            session = ort.InferenceSession(folder / stage["file"], providers=["CPUExecutionProvider"])
            (logits,) = session.run(["logits"], {"image": arrays["image"]})
            assert stage["accuracy"] == pytest.approx(np.mean(logits.argmax(1) == arrays["label"]))
            assert stage["bytes"] == (folder / stage["file"]).stat().st_size
            assert stage["latency_ratio"] > 0


def test_shows_commands_that_repeat_the_steps(job: tuple[Path, CompletedProcess[str]], onnxtool: Tool) -> None:
    folder, done = job
    commands = [line[2:] for line in done.stderr.splitlines() if line.startswith("$ onnxtool")]
    assert [c.split()[1] for c in commands] == ["convert", "check", "optimize", "quantize", "compare", "bench"]
    for name in ("check", "compare"):
        command = next(c for c in commands if c.split()[1] == name)
        assert onnxtool(*command.split()[1:], cwd=folder).returncode == 0


def test_starts_from_onnx_without_pytorch(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    program = [sys.executable, "-c", WITHOUT_TORCH, tmp_path / "out", report]
    root = Path(__file__).parents[2]
    done = subprocess.run(program, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    plain = json.loads(report.read_text())
    assert plain["original"] == "ONNX file"
    assert 'pip install ".[pytorch]" in a clone of onnxtool' in plain["warnings"][0]
    nodes = {s["name"]: s["nodes"] for s in plain["stages"]}
    assert nodes["optimize"] < nodes["convert"]


def test_a_folder_that_is_a_file_is_exit_2(tmp_path: Path, onnxtool: Tool) -> None:
    (tmp_path / "file").write_text("x")
    done = onnxtool("quickstart", tmp_path / "file")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
