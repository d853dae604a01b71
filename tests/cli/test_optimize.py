"""The real `onnxtool optimize`: exit codes, files left behind, output for people and machines."""

from __future__ import annotations

import json
import re
from pathlib import Path

import onnx
import pytest


def test_optimizes_the_fixture(onnxtool, digits_onnx: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    done = onnxtool("optimize", digits_onnx, "-o", out, "--json", "-", "-v")

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["schema"] == "onnxtool/optimize/1"
    assert report["before"]["nodes"] == 37
    assert report["after"]["nodes"] == 11 == len(onnx.load(out).graph.node)
    assert report["latency"]["value"] > 0
    assert any(p["name"] == "fuse-conv-batchnorm" and p["rewrites"] == 3 for p in report["passes"])
    assert "fuse-conv-batchnorm" in done.stderr


def test_the_table_fits_80_columns(onnxtool, digits_onnx: Path, tmp_path: Path) -> None:
    done = onnxtool("optimize", digits_onnx, "-o", tmp_path / "o.onnx", "--no-bench", env={"COLUMNS": "80"})

    assert done.returncode == 0
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert "37 -> 11 nodes" in done.stdout
    assert "latency" not in done.stdout


def test_level_all_uses_the_runtimes_operators(onnxtool, digits_onnx: Path, tmp_path: Path) -> None:
    done = onnxtool("optimize", digits_onnx, "-o", tmp_path / "o.onnx", "--level", "all", "--no-bench", "-q")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [n.op_type for n in onnx.load(tmp_path / "o.onnx").graph.node].count("FusedConv") == 3


def test_lists_passes(onnxtool) -> None:
    done = onnxtool("optimize", "--list-passes")

    assert done.returncode == 0
    assert "fold-constants" in done.stdout
    assert "basic" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("MODEL",), 2, "-o OUT.onnx"),
        (("MODEL", "-o", "DIR"), 2, "is a folder"),
        (("MODEL", "-o", "DIR/no/such/o.onnx"), 2, "does not exist"),
        (("MODEL", "-o", "OUT", "--level", "best"), 2, "basic, extended or all"),
        (("MODEL", "-o", "OUT", "--pass", "nope"), 2, "--list-passes"),
        (("MODEL", "-o", "OUT", "--input-shape", "nope:1"), 2, "no input 'nope'"),
        (("missing.onnx", "-o", "OUT"), 3, "no such file"),
        (("EMPTY", "-o", "OUT"), 3, "empty"),
        (("TEXT", "-o", "OUT"), 3, "text file"),
        (("CUT", "-o", "OUT"), 3, "cut off"),
        (("MODEL", "-o", "OUT", "--data", "TEXT"), 3, "not an .npz"),
    ],
)
def test_bad_input_is_one_line(onnxtool, digits_onnx: Path, tmp_path: Path, arguments, code, message) -> None:
    out = tmp_path / "out.onnx"
    (tmp_path / "empty.onnx").touch()
    (tmp_path / "text.onnx").write_text("hello\n")
    (tmp_path / "cut.onnx").write_bytes(digits_onnx.read_bytes()[:5000])
    names = {
        "MODEL": digits_onnx,
        "OUT": out,
        "DIR": tmp_path,
        "EMPTY": tmp_path / "empty.onnx",
        "TEXT": tmp_path / "text.onnx",
        "CUT": tmp_path / "cut.onnx",
    }
    given = [names.get(a, a.replace("DIR", str(tmp_path))) for a in arguments]
    done = onnxtool("optimize", *given)

    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert not out.exists()


def test_a_target_for_another_level_is_a_usage_error(onnxtool, digits_onnx: Path, tmp_path: Path) -> None:
    done = onnxtool("optimize", digits_onnx, "-o", tmp_path / "out.onnx", "--target", "arm64")
    assert done.returncode == 2
    assert "--target" in done.stderr
    assert not (tmp_path / "out.onnx").exists()


def test_a_target_is_named_in_the_report(onnxtool, digits_onnx: Path, tmp_path: Path) -> None:
    target = ("--level", "all", "--target", "arm64", "--no-bench")
    done = onnxtool("optimize", digits_onnx, "-o", tmp_path / "out.onnx", *target)
    assert done.returncode == 0, done.stderr
    assert re.search(r"chosen for +arm64", done.stdout)
    assert "fuse-skip-layernorm (by the table for arm64)" in " ".join(done.stdout.split())


def test_the_latency_is_said_in_words_that_its_interval_allows() -> None:
    from types import SimpleNamespace
    from typing import Any, cast

    from onnxtool.cli.views.optimize import summary
    from onnxtool.report.measurement.bench import LatencyRatio

    size = SimpleNamespace(nodes=3)
    for low, high, said in ((0.4, 0.6, "faster"), (1.01, 1.03, "slower"), (0.98, 1.02, "as fast")):
        latency = LatencyRatio((low + high) / 2, low, high, 1.0, 1.0, 1)
        report = SimpleNamespace(before=size, after=size, latency=latency, comparison=None, dropped=())
        assert f"x ({low:g} to {high:.3g}), {said}" in summary(cast(Any, report))
