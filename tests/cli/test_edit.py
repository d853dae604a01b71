"""`onnxtool edit`: the real command, its exit codes, and what it leaves behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import onnx
import pytest

from onnxtool.editing.registry import all_operations
from onnxtool.options.edit import EditCommand
from onnxtool.options.option import options_of
from tests.editing.conftest import write

Tool = Callable[..., "CompletedProcess[str]"]


def test_operations_apply_in_the_order_of_the_command_line(onnxtool: Tool, digits_onnx: Path, tmp_path: Path) -> None:
    done = onnxtool(
        "edit", digits_onnx, "--rename-input", "image=a", "-o", tmp_path / "out.onnx", "--rename-output=logits=image",
        "--rename-input", "a=b", "--metadata", "k=1", "--metadata=k=2",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    graph = onnx.load(tmp_path / "out.onnx")
    assert ([i.name for i in graph.graph.input], [o.name for o in graph.graph.output]) == (["b"], ["image"])
    assert {p.key: p.value for p in graph.metadata_props}["k"] == "2"
    assert "5 operations, 5 checked" in done.stdout


def test_the_report_as_json(onnxtool: Tool, digits_onnx: Path, tmp_path: Path) -> None:
    done = onnxtool("edit", digits_onnx, "-o", tmp_path / "o.onnx", "--set-shape", "4,1,8,8", "--json", "-")
    report = json.loads(done.stdout)
    assert report["schema"] == "onnxtool/edit/1"
    assert report["steps"][0]["proof"]["exact"] is True
    assert report["inputs"][0]["shape"] == [4, 1, 8, 8]


def test_a_dry_run_writes_nothing(onnxtool: Tool, digits_onnx: Path, tmp_path: Path) -> None:
    done = onnxtool("edit", digits_onnx, "--dry-run", "--rename-input", "image=x", cwd=tmp_path)
    assert done.returncode == 0
    assert "- image: float32[batch, 1, 8, 8]" in done.stdout
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_is_exit_4_and_names_the_node(onnxtool: Tool, tmp_path: Path) -> None:
    weights = {"w": np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)}
    source = write(tmp_path / "m.onnx", "g (float[3, 4] x) => (float[3, 4] y) { y = Mul(x, w) }", weights)
    done = onnxtool("edit", source, "-o", tmp_path / "out.onnx", "--set-shape", "x:batch,4")
    assert done.returncode == 4
    assert "Mul 'node_0' reads the weight 'w', which is made for the size 3" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--rename-input", "imag=x"], 2, "did you mean 'image'"),
        (["--rename-input", "image"], 2, "write OLD=NEW"),
        ([], 2, "at least one operation"),
        (["--operation", "rename-inputs=a=b"], 2, "did you mean 'rename-input'"),
        (["--connect", "a=b"], 2, "belongs right after --append"),
        (["--append", "nothing.onnx"], 3, "no such file"),
        (["--ir-version", "4"], 4, "need"),
    ],
)
def test_wrong_words_are_one_line(
    onnxtool: Tool, digits_onnx: Path, tmp_path: Path, arguments: list[str], code: int, told: str
) -> None:
    done = onnxtool("edit", digits_onnx, "-o", "out.onnx", *arguments, cwd=tmp_path)
    assert done.returncode == code
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_an_output_is_needed(onnxtool: Tool, digits_onnx: Path) -> None:
    done = onnxtool("edit", digits_onnx, "--doc", "x")
    assert done.returncode == 2
    assert "-o OUT.onnx (or --dry-run)" in done.stderr


def test_lists_the_operations(onnxtool: Tool) -> None:
    done = onnxtool("edit", "--list-operations")
    assert done.returncode == 0
    for name in all_operations():
        assert f"--{name}" in done.stdout


def test_every_operation_is_an_option(onnxtool: Tool) -> None:
    options = {o.word for o in options_of(EditCommand).values() if o.role == "operation"}
    assert options - {"operation", "connect"} == set(all_operations())
