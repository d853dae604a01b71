"""Every command in surroundings where nothing is as usual, and on a disk that is full."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import onnx
import pytest

TOOL = [sys.executable, "-m", "onnxtool"]
NAME = "a 'quoted' \"name\"\nof größe-模型 $(x) [b].onnx"
# command -> its arguments around the model; OUT is an output file.
COMMANDS = {
    "check": ["check", "MODEL"],
    "inspect": ["inspect", "MODEL", "--nodes"],
    "optimize": ["optimize", "MODEL", "-o", "OUT"],
    "quantize": ["quantize", "MODEL", "-o", "OUT", "--mode", "dynamic"],
    "compare": ["compare", "MODEL", "MODEL"],
    "diff": ["diff", "MODEL", "OTHER"],
    "run": ["run", "MODEL"],
    "bench": ["bench", "MODEL", "--budget", "0.05"],
    "verify": ["verify", "MODEL"],
    "convert": ["convert", "SOURCE", "-o", "OUT"],
    "doctor": ["doctor"],
}
CODES = {"diff": (1,), "verify": (1,), "convert": (5,), "quantize": (0, 1)}  # convert: a pickle, refused


@cache
def may_unshare() -> bool:
    """This machine lets us mount in a namespace of our own."""
    line = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs -o size=4k,ro none /dev/shm && mount -t tmpfs none /mnt"]
    try:
        return subprocess.run(line, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


Line = Callable[[str], list[str]]


@pytest.fixture
def line(tmp_path: Path, digits_onnx: Path, relu_proto: onnx.ModelProto, fixtures: Path) -> Line:
    """A command's line, with files of a strange name.

    Each is a process of its own that works as for users, so the model is small; that of quantize gets smaller by it.
    """
    small = relu_proto.SerializeToString()
    contents = {"quantize": digits_onnx.read_bytes()}
    return lambda command: _line(command, tmp_path, contents.get(command, small), fixtures)


def _line(command: str, folder: Path, content: bytes, fixtures: Path) -> list[str]:
    model, other, source = folder / NAME, folder / f"other {NAME}", folder / f"{NAME}.joblib"
    model.write_bytes(content)
    shutil.copy(fixtures / "digits_forest.joblib", source)
    other.write_bytes(content + b"\x12\x01x")  # another producer_name
    places = {"MODEL": model, "OTHER": other, "SOURCE": source, "OUT": folder / f"out {NAME}"}
    return [*TOOL, *(str(places.get(a, a)) for a in COMMANDS[command])]


def right(command: str) -> tuple[int, ...]:
    """Exit codes."""
    return CODES.get(command, (0,))


@pytest.mark.parametrize("command", COMMANDS)
def test_works_without_home_locale_writable_folder_and_shared_memory(line: Line, command: str) -> None:
    arguments = line(command)
    bare = {"PATH": os.environ["PATH"], "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    script = f"cd /proc && exec {shlex.join(arguments)}"  # where nobody can write, not even root
    shell = ["sh", "-c", script]
    if may_unshare():
        shell = ["unshare", "-rm", "sh", "-c", f"mount -t tmpfs -o size=4k,ro none /dev/shm && {script}"]
    done = subprocess.run(shell, env=bare, capture_output=True, check=False, timeout=600)
    assert done.returncode in right(command), done.stderr
    assert b"Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 1, done.stderr
    done.stdout.decode("ascii")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_closed_stdout_changes_nothing(line: Line, command: str) -> None:
    arguments = line(command)
    script = f"{shlex.join(arguments)} >&-; echo $? >&2"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False, timeout=600)
    *errors, code = done.stderr.splitlines()
    assert int(code) in right(command), done.stderr
    assert len(errors) == (command == "convert"), errors


@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_that_leaves_changes_nothing(line: Line, command: str) -> None:
    arguments = line(command)
    script = f"{{ {shlex.join(arguments)}; echo $? >&2; }} | head -c 1 >/dev/null"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False, timeout=600)
    *errors, code = done.stderr.splitlines()
    assert int(code) in right(command), done.stderr
    assert len(errors) == (command == "convert"), errors


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(
    "arguments",
    [["--version"], ["check", "--help"], ["check", "MODEL"], ["inspect", "MODEL", "--json", "-"], ["run", "MODEL"]],
    ids=" ".join,
)
def test_a_full_disk_behind_stdout_is_exit_6_and_one_line(digits_onnx: Path, arguments: list[str]) -> None:
    given = [str(digits_onnx) if a == "MODEL" else a for a in arguments]
    with open("/dev/full", "w") as full:
        done = subprocess.run([*TOOL, *given], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr == "error: standard output: cannot be written (No space left on device).\n"
    assert done.returncode == 6


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_behind_a_report_is_exit_6(digits_onnx: Path) -> None:
    line = [*TOOL, "check", str(digits_onnx), "--junit", "/dev/full"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.stderr == "error: /dev/full: cannot be written (No space left on device).\n"
    assert done.returncode == 6


@pytest.mark.parametrize("command", ["optimize", "quantize"])
def test_a_full_disk_is_exit_6_and_leaves_the_old_file(tmp_path: Path, digits_onnx: Path, command: str) -> None:
    if not may_unshare():
        pytest.skip("this machine allows no mounts in a namespace")
    disk = tmp_path / "disk"
    disk.mkdir()
    arguments = [*TOOL, command, str(digits_onnx), "-o", str(disk / "out.onnx"), "-q"]
    arguments += ["--mode", "float16"] if command == "quantize" else ["--no-bench"]
    script = (
        f"mount -t tmpfs -o size=100k none {disk} && echo old > {disk}/out.onnx && "
        f"{{ {shlex.join(arguments)}; echo $?; ls -A {disk}; cat {disk}/out.onnx; }}"
    )
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["6", "out.onnx", "old"], done.stdout + done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize("command", ["optimize", "quantize"])
def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path, digits_onnx: Path, command: str) -> None:
    if not may_unshare():
        pytest.skip("this machine allows no mounts in a namespace")
    arguments = [*TOOL, command, str(digits_onnx), "-o", str(tmp_path / "out.onnx"), "-q"]
    arguments += ["--mode", "float16"] if command == "quantize" else ["--no-bench"]
    script = f"mount -t tmpfs -o ro none {tmp_path} && {shlex.join(arguments)}"
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 6, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "Read-only file system" in done.stderr


def test_two_runs_to_one_output_leave_one_whole_file(tmp_path: Path, digits_onnx: Path) -> None:
    from onnxtool.model.provenance import verify

    out = tmp_path / "out" / "m.onnx"
    out.parent.mkdir()
    modes = (["optimize"], ["quantize", "--mode", "float16"])
    runs = [
        subprocess.Popen([*TOOL, *mode, str(digits_onnx), "-o", str(out), "-q"], stderr=subprocess.PIPE, text=True)
        for mode in modes
    ]
    for run in runs:
        _, errors = run.communicate(timeout=600)
        assert run.returncode == 0, errors
    report = verify.verify(out)
    assert report.ok
    assert report.history[-1]["command"] in ("optimize", "quantize")
    assert [p.name for p in out.parent.iterdir()] == ["m.onnx"]
