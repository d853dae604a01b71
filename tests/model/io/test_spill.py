"""Weights that wait on the disk: in the model as references, written once."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from onnxtool.model import io
from onnxtool.runtime.runner import OnnxRunner

WEIGHT = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)


@pytest.fixture
def model() -> ir.Model:
    made = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[n, 64] x) => (float[n, 32] y) { y = MatMul(x, w) }'
    )
    weight = ir.Value(
        name="w",
        const_value=ir.Tensor(WEIGHT, name="w"),
        shape=ir.Shape([64, 32]),
        type=ir.TensorType(ir.DataType.FLOAT),
    )
    node = next(iter(made.graph))
    node.replace_input_with(1, weight)
    made.graph.initializers["w"] = weight
    return made


def result(path: Path, x: np.ndarray) -> np.ndarray:
    return ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]  # type: ignore[no-any-return]


def test_the_model_runs_from_the_spill_and_nothing_stays(model: ir.Model, tmp_path: Path) -> None:
    x = np.ones((2, 64), np.float32)
    with io.spilled(model, tmp_path / "m.onnx") as data:
        assert data.stat().st_size >= WEIGHT.nbytes
        assert isinstance(model.graph.initializers["w"].const_value, ir.ExternalTensor)
        np.testing.assert_allclose(OnnxRunner.open(model).run({"x": x})["y"], x @ WEIGHT, rtol=1e-4)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("external", [False, True])
def test_saves_inline_or_beside(model: ir.Model, tmp_path: Path, external: bool) -> None:
    path = tmp_path / "m.onnx"
    with io.spilled(model, path) as data:
        inode = data.stat().st_ino
        io.save(model, path, external=external, spill=data)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"][: 1 + external]
    if external:  # the very file: written once
        assert os.stat(tmp_path / "m.onnx.data").st_ino == inode
    x = np.ones((3, 64), np.float32)
    np.testing.assert_allclose(result(path, x), x @ WEIGHT, rtol=1e-4)


def test_a_spill_that_is_mostly_unused_is_not_taken_over(model: ir.Model, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    extra = ir.Value(name="big", const_value=ir.Tensor(np.ones(10_000, np.float32), name="big"))
    model.graph.initializers["big"] = extra
    with io.spilled(model, path) as data:
        del model.graph.initializers["big"]
        io.save(model, path, external=True, spill=data)
    assert (tmp_path / "m.onnx.data").stat().st_size < 2 * WEIGHT.nbytes
    assert len(list(tmp_path.iterdir())) == 2
    x = np.ones((1, 64), np.float32)
    np.testing.assert_allclose(result(path, x), x @ WEIGHT, rtol=1e-4)


def test_saves_elsewhere_too(model: ir.Model, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    with io.spilled(model, tmp_path / "m.onnx") as data:
        io.save(model, tmp_path / "kept" / "k.onnx", external=True, spill=data)
    assert sorted(p.name for p in (tmp_path / "kept").iterdir()) == ["k.onnx", "k.onnx.data"]
    x = np.ones((1, 64), np.float32)
    np.testing.assert_allclose(result(tmp_path / "kept" / "k.onnx", x), x @ WEIGHT, rtol=1e-4)
