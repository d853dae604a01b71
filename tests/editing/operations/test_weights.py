"""Weights out of the file and back, bit by bit; and replaced."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxtool.editing.edit import edit
from onnxtool.editing.safetensors import open_file
from onnxtool.errors import InputError, UsageError
from onnxtool.runtime.runner import OnnxRunner
from tests.editing.conftest import Editor, write

TEXT = "g (float[n, 32] x) => (float[n, 16] y) { a = MatMul(x, w) y = Add(a, b) }"
RNG = np.random.default_rng(0)
WEIGHTS = {"w": RNG.standard_normal((32, 16)).astype(np.float32), "b": RNG.standard_normal(16).astype(np.float32)}
X = RNG.standard_normal((3, 32)).astype(np.float32)


@pytest.fixture
def stripped(tmp_path: Path) -> tuple[Path, Path, Path]:
    """(source, stripped model, weights)"""
    source = write(tmp_path / "source.onnx", TEXT, WEIGHTS)
    edit(source, tmp_path / "small.onnx", [("strip-weights", str(tmp_path / "w.safetensors"))])
    return source, tmp_path / "small.onnx", tmp_path / "w.safetensors"


def test_a_stripped_model_is_small_and_comes_back_bit_equal(stripped: tuple[Path, Path, Path], tmp_path: Path) -> None:
    source, small, weights = stripped
    assert small.stat().st_size < source.stat().st_size - 1300
    edit(small, tmp_path / "back.onnx", [("refit", str(weights))])
    results = [OnnxRunner.open(p).run({"x": X})["y"] for p in (source, tmp_path / "back.onnx")]
    assert results[0].tobytes() == results[1].tobytes()
    back = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(tmp_path / "back.onnx").graph.initializer}
    assert back["w"].tobytes() == WEIGHTS["w"].tobytes()
    assert set(back) == {"w", "b"}


def test_the_file_is_what_others_read(stripped: tuple[Path, Path, Path]) -> None:
    reader = pytest.importorskip("safetensors.numpy")
    assert np.array_equal(reader.load_file(stripped[2])["w"], WEIGHTS["w"])


def test_other_weights_are_told(stripped: tuple[Path, Path, Path], tmp_path: Path) -> None:
    other = write(tmp_path / "other.onnx", TEXT, {**WEIGHTS, "w": WEIGHTS["w"] + 1})
    edit(other, tmp_path / "o.onnx", [("strip-weights", str(tmp_path / "other.safetensors"))])
    report = edit(stripped[1], tmp_path / "back.onnx", [("refit", str(tmp_path / "other.safetensors"))])
    assert "1 weights are not those that were stripped" in report.warnings[0]


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    source = write(tmp_path / "source.onnx", TEXT, WEIGHTS)
    report = edit(source, None, [("strip-weights", str(tmp_path / "w.safetensors"))], dry_run=True)
    assert [p.name for p in tmp_path.iterdir()] == ["source.onnx"]
    assert any(c.what == "initializer" and c.name == "w" for c in report.changes or ())


def damaged(path: Path, header: object, data: bytes = b"") -> Path:
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


@pytest.mark.parametrize(
    "header",
    [
        b"{",
        b"[" * 5000,
        [1, 2],
        {"w": 3},
        {"w": {"dtype": "F32", "shape": [32, 16], "data_offsets": [0, 2048]}},
        {"w": {"dtype": "F32", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 0]}},
        {"w": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}},
        {"w": {"dtype": "X9", "shape": [1], "data_offsets": [0, 4]}},
        {"w": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}},
        {"w": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}},
    ],
)
def test_a_damaged_file_is_one_clear_error(tmp_path: Path, header: object) -> None:
    with pytest.raises(InputError):
        open_file(damaged(tmp_path / "bad.safetensors", header, b"1234"))


@pytest.mark.parametrize("data", [b"", b"1234", struct.pack("<Q", 1 << 60), struct.pack("<Q", 2) + b"{}"])
def test_a_file_without_the_weights_is_one_clear_error(
    stripped: tuple[Path, Path, Path], tmp_path: Path, data: bytes
) -> None:
    (tmp_path / "bad.safetensors").write_bytes(data)
    with pytest.raises(InputError):
        edit(stripped[1], tmp_path / "back.onnx", [("refit", str(tmp_path / "bad.safetensors"))])
    assert not (tmp_path / "back.onnx").exists()


def test_what_is_not_stripped_is_not_refitted(stripped: tuple[Path, Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not stripped"):
        edit(stripped[0], tmp_path / "o.onnx", [("refit", str(stripped[2]))])


def test_replaces_one_weight(edited: Editor, tmp_path: Path) -> None:
    np.save(tmp_path / "b.npy", np.zeros(16, np.float32))
    made = edited(TEXT, f"replace-weight=b={tmp_path / 'b.npy'}", weights=WEIGHTS)
    assert np.allclose(made.run(x=X)["y"], X @ WEIGHTS["w"], atol=1e-5)
    assert "the outputs change" in made.report.warnings[0]
    proof = made.report.steps[0].proof
    assert proof is not None
    assert proof.claim == "only 'b' differs"


def test_numbers_that_are_rounded_are_told(edited: Editor, tmp_path: Path) -> None:
    np.save(tmp_path / "b.npy", np.full(16, 0.1))
    made = edited(TEXT, f"replace-weight=b={tmp_path / 'b.npy'}", weights=WEIGHTS)
    assert "is float64; they are rounded to float, by up to 1.49e-09" in made.report.warnings[0]
    np.save(tmp_path / "b.npy", np.full(16, 1e300))
    with pytest.raises(UsageError, match="infinite in float"):
        edited(TEXT, f"replace-weight=b={tmp_path / 'b.npy'}", weights=WEIGHTS)


@pytest.mark.parametrize("array", [np.zeros(15, np.float32), np.zeros(16, np.int64)])
def test_another_shape_or_type_is_refused(edited: Editor, tmp_path: Path, array: np.ndarray) -> None:
    np.save(tmp_path / "b.npy", array)
    with pytest.raises(UsageError):
        edited(TEXT, f"replace-weight=b={tmp_path / 'b.npy'}", weights=WEIGHTS)
    with pytest.raises(UsageError, match="did you mean"):
        edited(TEXT, f"replace-weight=bb={tmp_path / 'b.npy'}", weights=WEIGHTS)
