"""Bad input to every command: one clear line, the right exit code, nothing written, no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest

Tool = Callable[..., "CompletedProcess[str]"]

# What each command is given besides the bad model; {out} is a file that must not appear.
COMMANDS = {
    "check": ["check", "{bad}"],
    "inspect": ["inspect", "{bad}"],
    "optimize": ["optimize", "{bad}", "-o", "{out}"],
    "quantize": ["quantize", "{bad}", "-o", "{out}", "--mode", "dynamic"],
    "compare": ["compare", "{bad}", "{good}"],
    "compare second": ["compare", "{good}", "{bad}"],
    "run": ["run", "{bad}", "-o", "{table}"],
    "bench": ["bench", "{bad}"],
    "convert": ["convert", "{bad}", "-o", "{out}"],
}


def bad_files(folder: Path, good: Path) -> Iterator[tuple[str, Path, str]]:
    """(what, the file, a word that the message must hold)."""
    data = good.read_bytes()
    contents = {
        "empty": (b"", "empty"),
        "text": (b"the quick brown fox\njumps over the lazy dog\n" * 30, "text"),
        "truncated": (data[: len(data) // 2], "damaged"),
        "noise": (bytes(np.random.default_rng(0).integers(0, 256, 5000, dtype=np.uint8)), "damaged"),
    }
    for what, (content, word) in contents.items():
        path = folder / f"{what}.onnx"
        path.write_bytes(content)
        yield what, path, word
    yield "missing", folder / "missing.onnx", "no such file"


WHATS = ("empty", "text", "truncated", "noise", "missing")


@pytest.mark.parametrize("what", WHATS)
@pytest.mark.parametrize("command", COMMANDS)
def test_bad_model_is_exit_3_with_one_line(
    onnxtool: Tool, tmp_path: Path, digits_onnx: Path, command: str, what: str
) -> None:
    _, bad, word = next(entry for entry in bad_files(tmp_path, digits_onnx) if entry[0] == what)
    before = sorted(tmp_path.iterdir())
    places = {"bad": bad, "good": digits_onnx, "out": tmp_path / "out.onnx", "table": tmp_path / "o.npz"}
    done = onnxtool(*(part.format(**places) for part in COMMANDS[command]))
    assert done.returncode == 3, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert bad.name in line
    assert word in line.lower() or command == "convert", line
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("command", ["optimize", "quantize", "convert", "run"])
def test_output_onto_a_folder_is_exit_2(onnxtool: Tool, tmp_path: Path, digits_onnx: Path, command: str) -> None:
    parts = [part.format(bad=digits_onnx, good=digits_onnx, out=tmp_path, table=tmp_path) for part in COMMANDS[command]]
    done = onnxtool(*parts)
    assert done.returncode == 2, done.stderr
    assert "folder" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["compare", "run", "bench", "quantize"])
@pytest.mark.parametrize(
    ("arrays", "word"),
    [
        ({"picture": np.zeros((8, 1, 8, 8), np.float32), "label": np.zeros(8)}, "image"),
        ({"image": np.zeros((8, 1, 9, 8), np.float32)}, "image"),
        ({"image": np.zeros((8, 1, 8, 8), np.complex64)}, "image"),
        ({"image": np.array([{"a": 1}], dtype=object)}, "object"),
    ],
    ids=["name", "shape", "dtype", "objects"],
)
def test_wrong_data_is_exit_3_naming_what_the_model_takes(
    onnxtool: Tool, tmp_path: Path, digits_onnx: Path, command: str, arrays: dict[str, np.ndarray], word: str
) -> None:
    data, out = tmp_path / "data.npz", tmp_path / "out.onnx"
    np.savez(data, **arrays)
    rest = {
        "compare": [digits_onnx],
        "quantize": ["-o", out, "--mode", "static"],
        "run": ["-o", tmp_path / "out.npz"],
        "bench": [],
    }[command]
    done = onnxtool(command, digits_onnx, *rest, "--data", data)
    assert done.returncode in (3, 5), done.stderr
    (line,) = done.stderr.splitlines()
    assert word in line, line
    assert not out.exists()


def test_errors_are_json_too(onnxtool: Tool, tmp_path: Path) -> None:
    done = onnxtool("check", tmp_path / "missing.onnx", "--json")
    assert done.returncode == 3
    plain = json.loads(done.stdout)
    assert plain["schema"] == "onnxtool/error/1"
    assert (plain["ok"], plain["exit_code"]) == (False, 3)
    assert f"error: {plain['error']}" == done.stderr.strip()


def test_verbose_adds_the_traceback(onnxtool: Tool, tmp_path: Path) -> None:
    done = onnxtool("check", tmp_path / "missing.onnx", "-v")
    assert done.returncode == 3
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: ")


@pytest.mark.parametrize("setting", ["bad=1", "nodes=many", "nodes"])
def test_a_bad_limit_in_the_environment_is_one_line(onnxtool: Tool, digits_onnx: Path, setting: str) -> None:
    done = onnxtool("check", digits_onnx, env={"ONNXTOOL_LIMITS": setting})
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert done.stderr.startswith(f"error: ONNXTOOL_LIMITS={setting}: ")


def test_a_bad_limit_in_the_environment_is_said_in_python_too(digits_onnx: Path) -> None:
    script = f"import onnxtool; onnxtool.check({str(digits_onnx)!r})"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "ONNXTOOL_LIMITS": "bad=1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "UsageError: ONNXTOOL_LIMITS=bad=1: the limits are" in done.stderr


@pytest.mark.parametrize("command", ["optimize", "quantize", "convert", "edit"])
def test_a_model_under_the_name_of_another_format_is_exit_2(
    onnxtool: Tool, tmp_path: Path, digits_onnx: Path, command: str
) -> None:
    more = {"quantize": ["--mode", "dynamic"], "edit": ["--doc", "x"]}.get(command, [])
    done = onnxtool(command, digits_onnx, "-o", tmp_path / "out.ort", *more)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert "end the name with .onnx" in done.stderr
    assert not list(tmp_path.iterdir())
