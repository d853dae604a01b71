"""Data that were scaled in another way than in training are told, where the model still knows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import onnxtool
from onnxtool.model import io
from onnxtool.model.ir.queries import input_specs
from onnxtool.quantization.diagnostics import input_scaling_warning
from onnxtool.runtime.data.open_data import open_data
from tests.quantization.quant_models import build


@pytest.mark.parametrize(
    ("scale", "shift", "told"), [(1.0, 0.0, False), (255.0, 0.0, True), (1 / 255, 0.0, True), (2.0, -1.0, False)]
)
def test_the_scale_of_pictures(digits_onnx: Path, fixtures: Path, scale: float, shift: float, told: bool) -> None:
    images = np.load(fixtures / "calib.npz")["image"] * np.float32(scale) + np.float32(shift)
    model = io.load(digits_onnx)
    said = input_scaling_warning(model, open_data({"image": images}, input_specs(model)))
    assert ("do not look like" in said) == told, said


_SCALERS = {
    "by hand": [("Sub", ["x", "mean"], "c"), ("Div", ["c", "std"], "y")],
    "BatchNormalization": [("BatchNormalization", ["x", "one", "zero", "mean", "variance"], "y")],
    "no mean": [("Div", ["x", "std"], "y")],
    "a mask": [("Sub", ["std", "x"], "c"), ("Mul", ["c", "mean"], "y")],
}


@pytest.mark.parametrize("scaler", _SCALERS)
@pytest.mark.parametrize(
    ("scale", "shift", "told"), [(1.0, 0.0, False), (1.0, 300.0, True), (100.0, 0.0, True), (1e-3, 50.0, True)]
)
def test_a_scaler_before_the_first_layer(scaler: str, scale: float, shift: float, told: bool) -> None:
    columns = {"mean": np.arange(50.0, 54), "std": np.arange(2.0, 6), "variance": np.arange(2.0, 6) ** 2}
    tables = {**columns, "one": np.ones(4), "zero": np.zeros(4)}
    nodes = [helper.make_node(kind, reads, [made]) for kind, reads, made in _SCALERS[scaler]]
    used = {name: tables[name].astype(np.float32) for node in nodes for name in node.input if name in tables}
    model = io.from_proto(build(nodes, used, {"x": ["n", 4]}, {"y": ["n", 4]}))
    rows = np.random.default_rng(0).normal(columns["mean"], columns["std"], (40, 4)) * scale + shift
    said = input_scaling_warning(model, open_data({"x": rows.astype(np.float32)}, input_specs(model)))
    assert ("do not look like" in said) == (told and scaler in ("by hand", "BatchNormalization")), said


@pytest.fixture(scope="module")
def folded(digits_onnx: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits CNN, whose normalization is in the weights of its convolutions."""
    output = tmp_path_factory.mktemp("folded") / "folded.onnx"
    onnxtool.optimize(digits_onnx, output, bench=False)
    assert "BatchNormalization" not in {n.op_type for n in onnx.load(output).graph.node}
    return output


@pytest.mark.parametrize(("scale", "told"), [(1.0, False), (3.0, False), (255.0, True), (1 / 255, True)])
def test_a_folded_normalization_tells_by_the_first_bias(folded: Path, fixtures: Path, scale: float, told: bool) -> None:
    model = io.load(folded)
    images = np.load(fixtures / "calib.npz")["image"] * np.float32(scale)
    said = input_scaling_warning(model, open_data({"image": images}, input_specs(model)))
    assert ("another scale" in said) == told, said


def test_quantize_says_it(digits_onnx: Path, fixtures: Path, tmp_path: Path) -> None:
    images = np.load(fixtures / "calib.npz")["image"][:32]
    reports = [
        onnxtool.quantize(digits_onnx, tmp_path / "q.onnx", mode="dynamic", data={"image": images * np.float32(scale)})
        for scale in (1, 255)
    ]
    told = [any("do not look like" in w for w in r.warnings) for r in reports]
    assert told == [False, True]
