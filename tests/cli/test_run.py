"""The run command."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np

Command = Callable[..., CompletedProcess[str]]


def test_writes_the_outputs(onnxtool: Command, digits_onnx: Path, fixtures: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.npz"
    done = onnxtool("run", digits_onnx, "--data", fixtures / "calib.npz", "-o", out)
    assert done.returncode == 0, done.stderr
    assert np.load(out)["logits"].shape == (128, 10)
    assert "float32[128, 10]" in done.stdout


def test_the_name_of_the_output_says_its_format(onnxtool: Command, digits_onnx: Path, tmp_path: Path) -> None:
    done = onnxtool("run", digits_onnx, "--batch", "3", "-o", tmp_path / "out.csv")
    assert done.returncode == 0, done.stderr
    head, *rows = (tmp_path / "out.csv").read_text().splitlines()
    assert head.split(",") == [f"logits[{i}]" for i in range(10)]
    assert len(rows) == 3
    for name in ("out.xlsx", "out", "out.onnx"):
        done = onnxtool("run", digits_onnx, "-o", name, cwd=tmp_path)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
        assert not (tmp_path / name).exists()


def test_a_table_on_stdout_is_alone_there(onnxtool: Command, digits_onnx: Path, tmp_path: Path) -> None:
    done = onnxtool("run", digits_onnx, "--batch", "3", "-o", "-", cwd=tmp_path)
    assert len(list(csv.DictReader(done.stdout.splitlines()))) == 3
    assert "standard output" in done.stderr and not (tmp_path / "-").exists()
    done = onnxtool("run", digits_onnx, "-o", "-", "--json", "-")
    assert done.returncode == 2 and json.loads(done.stdout)["exit_code"] == 2


def test_json_is_alone_on_stdout_whatever_the_users_code_prints(
    onnxtool: Command, fixtures: Path, digits_onnx: Path, tmp_path: Path
) -> None:
    (tmp_path / "rows.py").write_text(
        "import os\nimport numpy as np\n\nprint('imported')\n\n\ndef rows():\n    print('called')\n"
        "    os.write(1, b'native')\n    os.system('echo child')\n    yield {'image': np.zeros((1, 1, 8, 8), 'f4')}\n"
    )
    done = onnxtool("run", digits_onnx, "--data", f"{tmp_path / 'rows.py'}:rows", "--json", "-")
    assert json.loads(done.stdout)["ok"] is True
    assert all(word in done.stderr for word in ("imported", "called", "native", "child"))


def test_input_from_single_files(onnxtool: Command, digits_onnx: Path, fixtures: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "i.npy", np.load(fixtures / "calib.npz")["image"][:3])
    done = onnxtool("run", digits_onnx, "--input", f"image={tmp_path / 'i.npy'}", "--json", "-")
    assert json.loads(done.stdout)["outputs"][0]["shape"] == [3, 10]


def test_bad_data_is_one_line_and_writes_nothing(onnxtool: Command, digits_onnx: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.npz"
    np.savez(tmp_path / "names.npz", a=np.zeros(1), b=np.zeros(1))
    np.savez(tmp_path / "shape.npz", image=np.zeros((1, 3, 8, 8), np.float32))
    np.savez(tmp_path / "dtype.npz", image=np.zeros((1, 1, 8, 8), np.int64))
    (tmp_path / "text.npz").write_text("no")
    for name, message in (
        ("names", "the data has a, b"),
        ("shape", "has shape [1, 3, 8, 8]"),
        ("dtype", "is int64 in the data"),
        ("text", "is not an .npz or .npy file"),
        ("none", "no such file"),
    ):
        done = onnxtool("run", digits_onnx, "--data", tmp_path / f"{name}.npz", "-o", out)
        assert done.returncode == 3, done.stderr
        assert message in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
        assert not out.exists()


def test_usage_errors_exit_2(onnxtool: Command, digits_onnx: Path, tmp_path: Path) -> None:
    assert onnxtool("run", digits_onnx, "--input", "image").returncode == 2
    assert onnxtool("run", digits_onnx, "-o", tmp_path).returncode == 2
    done = onnxtool("run", digits_onnx, "--provider", "quantum")
    assert done.returncode == 2
    assert "cpu" in done.stderr
