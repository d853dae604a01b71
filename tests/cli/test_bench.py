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


def test_profile_and_baseline(onnxtool: Command, digits_onnx: Path, tmp_path: Path) -> None:
    base, quick = tmp_path / "base.json", ("--threads", "1", "--budget", "0.05")
    done = onnxtool("bench", digits_onnx, *quick, "--profile", "--json", base)
    assert done.returncode == 0, done.stderr
    assert "time by operator" in done.stdout
    assert "node_conv2d_1" in done.stdout
    report = json.loads(base.read_text())
    for item in report["latencies"]:  # an impossible past: whatever is measured now is slower
        item.update(median=1e-9, low=1e-9, high=1e-9)
    base.write_text(json.dumps(report))
    done = onnxtool("bench", digits_onnx, *quick, "--baseline", base, "--max-regression", "10%")
    assert done.returncode == 1
    assert "slower:" in done.stdout
    assert onnxtool("bench", digits_onnx, "--baseline", tmp_path / "none.json", *quick).returncode == 3
    assert onnxtool("bench", digits_onnx, "--max-regression", "much").returncode == 2
