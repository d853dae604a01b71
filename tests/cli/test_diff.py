"""The diff command, by hand and as git's diff driver."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import onnx
import pytest

Command = Callable[..., CompletedProcess[str]]


def test_exit_code_tells_and_json_lists(onnxtool: Command, digits_onnx: Path, tmp_path: Path) -> None:
    model = onnx.load(digits_onnx)
    model.graph.node[0].name = "evil\x1b[2J"
    onnx.save(model, tmp_path / "b.onnx")
    assert onnxtool("diff", digits_onnx, digits_onnx).returncode == 0
    done = onnxtool("diff", digits_onnx, tmp_path / "b.onnx")
    assert done.returncode == 1
    assert "\x1b" not in done.stdout
    report = json.loads(onnxtool("diff", digits_onnx, tmp_path / "b.onnx", "--json").stdout)
    assert {c["kind"] for c in report["changes"]} == {"added", "removed"}
    assert onnxtool("diff", digits_onnx).returncode == 2


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_as_a_diff_driver_of_git(relu_proto: onnx.ModelProto, tmp_path: Path) -> None:
    config = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "NO_COLOR": "1", "COLUMNS": "100"}

    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        command = ["git", *identity, *arguments]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={**os.environ, **config},
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    git("init", "-q")
    git("config", "diff.onnx.command", f'"{sys.executable}" -m onnxtool diff --git')
    (tmp_path / ".gitattributes").write_text("*.onnx diff=onnx\n")
    onnx.save(relu_proto, tmp_path / "m.onnx")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    relu_proto.graph.node[1].op_type = "Tanh"
    onnx.save(relu_proto, tmp_path / "m.onnx")
    onnx.save(relu_proto, tmp_path / "new.onnx")
    git("add", "-N", "new.onnx")
    shown = git("diff")
    assert "- -> y: Relu(h) -> y" in shown
    assert "+ -> y: Tanh(h) -> y" in shown
    assert "initializers: 1 added" in shown  # the new file
    weight = relu_proto.graph.initializer[0]  # only raw data goes into other files
    weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight), weight.name))
    onnx.save(relu_proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.onnx.data", size_threshold=0)
    git("add", ".")
    git("commit", "-q", "-m", "second")
    relu_proto.graph.node[1].op_type = "Relu"
    onnx.save(relu_proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.onnx.data", size_threshold=0)
    # git hands over the old model without its data: what moved there is told by its place.
    assert "+ -> y: Relu(h) -> y" in git("diff", "m.onnx")
    assert "in m.onnx.data at 0" in git("show", "--ext-diff", "HEAD", "--", "m.onnx")
