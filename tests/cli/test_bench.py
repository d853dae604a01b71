"""The bench command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

Command = Callable[..., CompletedProcess[str]]


def test_shows_both_models_and_their_ratio_in_80_columns(onnxtool: Command, digits_onnx: Path, tmp_path: Path) -> None:
    twin = tmp_path / "twin.onnx"
    twin.write_bytes(digits_onnx.read_bytes())
    done = onnxtool("bench", digits_onnx, twin, "--threads", "1", "--budget", "0.05", env={"COLUMNS": "80"})
    assert done.returncode == 0, done.stderr
    assert "ratio [95 %]" in done.stdout
    assert "batch 1, 1 thread" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_json_has_every_setting(onnxtool: Command, digits_onnx: Path) -> None:
    done = onnxtool("bench", digits_onnx, "--batch", "1,4", "--threads", "1", "--budget", "0.05", "--json", "-")
    report = json.loads(done.stdout)
    assert report["schema"] == "onnxtool/bench/1"
    assert [(i["batch"], i["threads"]) for i in report["latencies"]] == [(1, 1), (4, 1)]


def test_bad_numbers_exit_2(onnxtool: Command, digits_onnx: Path) -> None:
    for text in ("0", "a", "1,,2", "-1"):
        assert onnxtool("bench", digits_onnx, "--batch", text).returncode == 2
