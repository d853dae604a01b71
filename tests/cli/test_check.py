"""The check command: exit codes, JSON, one clear line for bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import onnx
import pytest

Command = Callable[..., CompletedProcess[str]]


def test_sound_model_exits_0_and_shows_its_outside(onnxtool: Command, digits_onnx: Path) -> None:
    done = onnxtool("check", digits_onnx)
    assert done.returncode == 0, done.stderr
    for text in ("ai.onnx 20", "pytorch", "image: float32[batch, 1, 8, 8]", "specification", "OK"):
        assert text in done.stdout


def test_json_on_stdout_is_all_there_is(onnxtool: Command, digits_onnx: Path) -> None:
    done = onnxtool("check", digits_onnx, "--json")
    report = json.loads(done.stdout)
    assert report["schema"] == "onnxtool/check/1"
    assert report["ok"] is True
    assert [s["state"] for s in report["stages"]] == ["passed"] * 4


def test_unsound_model_exits_1(onnxtool: Command, tmp_path: Path, relu_proto: onnx.ModelProto) -> None:
    relu_proto.graph.node[1].op_type = "Rleu"
    path = tmp_path / "bad.onnx"
    path.write_bytes(relu_proto.SerializeToString())
    done = onnxtool("check", path)
    assert done.returncode == 1
    assert "OT001" in done.stdout
    assert "Rleu" in done.stdout
    assert "FAILED" in done.stdout


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "no such file"), (b"", "empty"), (b"hello\n", "text file"), (b"PK\x03\x04aaaa", "zip archive")],
)
def test_unreadable_file_exits_3_with_one_line(
    onnxtool: Command, tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "m.onnx"
    if content is not None:
        path.write_bytes(content)
    done = onnxtool("check", path)
    assert done.returncode == 3
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_truncated_model_exits_3(onnxtool: Command, tmp_path: Path, digits_onnx: Path) -> None:
    path = tmp_path / "cut.onnx"
    path.write_bytes(digits_onnx.read_bytes()[:200_000])
    assert onnxtool("check", path).returncode == 3


def test_escape_sequences_in_names_do_not_reach_the_terminal(
    onnxtool: Command, tmp_path: Path, relu_proto: onnx.ModelProto
) -> None:
    relu_proto.producer_name = "\x1b[2Jevil[red]"
    path = tmp_path / "m.onnx"
    path.write_bytes(relu_proto.SerializeToString())
    done = onnxtool("check", path)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "evil[red]" in done.stdout
