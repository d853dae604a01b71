"""Odd surroundings: pipes that break, closed streams, no HOME, plain locales, strange file names, Ctrl-C."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from subprocess import CompletedProcess

import onnx
import pytest

from onnxtool.cli import app

Tool = Callable[..., "CompletedProcess[str]"]
COMMAND = [sys.executable, "-m", "onnxtool"]


def test_a_reader_that_leaves_early_is_no_error(digits_onnx: Path) -> None:
    script = f"'{sys.executable}' -m onnxtool inspect '{digits_onnx}' --nodes | head -c 10"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {script}"], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode == 0


@pytest.mark.parametrize("redirection", [">&-", "2>&-", ">&- 2>&-", "<&-"])
def test_closed_streams_are_no_error(digits_onnx: Path, redirection: str) -> None:
    script = f"'{sys.executable}' -m onnxtool check '{digits_onnx}' {redirection}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_works_without_a_home(digits_onnx: Path, tmp_path: Path) -> None:
    bare = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
    done = subprocess.run(
        [*COMMAND, "check", digits_onnx], env=bare, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "OK" in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "program", ["import onnxtool; onnxtool.run({!r})", "from onnxtool.cli.app import main; main(['run', {!r}])"]
)
def test_the_runtime_sends_no_telemetry(digits_onnx: Path, tmp_path: Path, program: str) -> None:
    # ONNX Runtime leaves a file of its telemetry's session in the temporary folder when that is not turned off.
    bare = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)}
    script = program.format(str(digits_onnx))
    done = subprocess.run([sys.executable, "-c", script], env=bare, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir())


def test_prints_names_that_the_locale_lacks(tmp_path: Path, relu_proto: onnx.ModelProto) -> None:
    relu_proto.graph.output[0].name = "größe-模型"
    relu_proto.graph.node[1].output[0] = "größe-模型"
    onnx.save(relu_proto, tmp_path / "m.onnx")
    bare = {"PATH": os.environ["PATH"], "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run([*COMMAND, "inspect", tmp_path / "m.onnx"], env=bare, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    "name", ["with space.onnx", "quo'te\".onnx", "new\nline.onnx", "größe-模型.onnx", "-dash.onnx"]
)
def test_strange_file_names(onnxtool: Tool, tmp_path: Path, digits_onnx: Path, name: str) -> None:
    shutil.copy(digits_onnx, tmp_path / name)
    done = onnxtool("check", tmp_path / name)
    assert done.returncode == 0, done.stderr
    done = onnxtool("optimize", tmp_path / name, "-o", tmp_path / f"out {name}", "--no-bench")
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([name, f"out {name}"])
    missing = onnxtool("check", tmp_path / f"no {name}")
    assert (missing.returncode, len(missing.stderr.splitlines())) == (3, 1)


@pytest.mark.parametrize("command", ["check", "inspect", "run", "bench", "verify"])
def test_a_name_that_no_file_can_have(onnxtool: Tool, command: str) -> None:
    done = onnxtool(command, "a" * 1000)
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)
    assert "File name too long" in done.stderr


def test_no_name_is_not_the_folder_at_hand(onnxtool: Tool) -> None:
    done = onnxtool("check", "")
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)


def test_a_name_cannot_reach_the_terminal_as_an_escape(
    onnxtool: Tool, tmp_path: Path, relu_proto: onnx.ModelProto
) -> None:
    evil = "\x1b[2J\x1b]0;owned\x07[red]y[/red]\u202e"
    relu_proto.graph.output[0].name = evil
    relu_proto.graph.node[1].output[0] = evil
    relu_proto.graph.node[0].name = evil
    relu_proto.producer_name = evil
    relu_proto.metadata_props.add(key=evil, value=evil)
    path = tmp_path / "m.onnx"
    onnx.save(relu_proto, path)
    for arguments in (["check", path], ["inspect", path, "--nodes"], ["run", path], ["compare", path, path]):
        done = onnxtool(*arguments, "-v")
        for stream in (done.stdout, done.stderr):
            assert "\x1b" not in stream
            assert "\x07" not in stream
            assert "\u202e" not in stream
        assert "[red]y[/red]" in done.stdout or arguments[0] == "check", arguments


def wait_for_work(pid: int) -> None:
    """Until the child of the command has loaded the runtime: from there on it is at work."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        children = Path(f"/proc/{pid}/task/{pid}/children")
        for child in children.read_text().split() if children.exists() else []:
            with suppress(OSError):
                if "onnxruntime_pybind11_state" in Path(f"/proc/{child}/maps").read_text():
                    return
        time.sleep(0.05)
    pytest.fail("the command never came to its work")


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_ctrl_c_is_130_and_leaves_nothing(tmp_path: Path, digits_onnx: Path) -> None:
    out = tmp_path / "out.onnx"
    child = subprocess.Popen(
        [*COMMAND, "bench", digits_onnx, "--budget", "30", "--batch", "1,2,3,4,5,6,7", "--json", tmp_path / "out.json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_work(child.pid)
    child.send_signal(signal.SIGINT)
    began = time.monotonic()
    _, errors = child.communicate(timeout=120)
    assert time.monotonic() - began < 20  # the measurement would take minutes
    assert child.returncode == 130
    assert errors.splitlines()[-1].startswith("error: interrupted")
    assert not out.exists()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("command", "less"), [("check", True), ("serve", False)])
def test_garbage_is_looked_for_less_often_except_by_what_lasts(
    monkeypatch: pytest.MonkeyPatch, command: str, less: bool
) -> None:
    asked: list[tuple[int, ...]] = []
    monkeypatch.setattr(gc, "set_threshold", lambda *thresholds: asked.append(thresholds))
    with pytest.raises(SystemExit):
        app.main([command, "--help"])
    assert bool(asked) == less and all(first > 700 for first, *_ in asked)
