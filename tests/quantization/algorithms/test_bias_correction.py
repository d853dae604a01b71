"""Bias correction: shifts of means as numpy finds them, and gone from the quantized model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import onnxtool
from onnxtool.errors import UsageError
from onnxtool.model import io
from onnxtool.model.ir.queries import input_specs
from onnxtool.quantization.algorithms.bias_correction import measure_shifts
from onnxtool.quantization.apply_recipe import apply, calibrate
from onnxtool.quantization.calibration.observer import OutputProbe
from onnxtool.quantization.preprocess.prepare import prepare
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.runtime.data.open_data import open_data
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import SessionOptions
from tests.quantization.quant_models import build, weights

node = helper.make_node
RANDOM = np.random.default_rng(11)
# All positive, as behind a Relu: the mean of the weights' error shows.
IMAGES = {"x": RANDOM.uniform(0, 2, (10, 3, 7, 7)).astype(np.float32)}
ROWS = {"x": RANDOM.uniform(0, 2, (40, 24)).astype(np.float32)}


def coarse(*shape: int) -> np.ndarray:
    """Weights with one large value in the first row, so that one scale for all is coarse."""
    array = weights(*shape)
    array.reshape(-1)[0] = 8 * np.abs(array).max()
    return array


def rounded(array: np.ndarray) -> np.ndarray:
    """Symmetric int8 with one scale, in plain numpy."""
    scale = np.float32(np.abs(array).max() / np.float32(127))
    return np.asarray(np.clip(np.rint(array / scale), -127, 127) * scale, np.float32)


def conv() -> tuple[onnx.ModelProto, np.ndarray]:
    weight = coarse(5, 3, 3, 3)
    nodes = [node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1], strides=[2, 2])]
    return build(nodes, {"w": weight}, {"x": ["n", 3, 7, 7]}, {"y": ["n", 5, 4, 4]}), weight


def linear(kind: str) -> tuple[onnx.ModelProto, np.ndarray]:
    weight, bias = coarse(24, 6), weights(6)
    nodes = {
        "Gemm": [node("Gemm", ["x", "w", "b"], ["y"])],
        "Gemm, transposed": [node("Gemm", ["x", "w", "b"], ["y"], transB=1)],
        "MatMul": [node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "b"], ["y"])],
    }[kind]
    stored = weight.T.copy() if "transposed" in kind else weight
    opset = 13 if "MatMul" in kind else 20  # axes of a sum are an input of both, those of a maximum of the latter
    return build(nodes, {"w": stored, "b": bias}, {"x": ["n", 24]}, {"y": ["n", 6]}, opset), weight


def patches(images: np.ndarray) -> np.ndarray:
    """What a 3x3 kernel with stride 2 and padding 1 sees: [positions, channels * 9]."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    views = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    return views.transpose(0, 2, 3, 1, 4, 5).reshape(-1, images.shape[1] * 9)


def test_shifts_of_a_padded_convolution_are_numpys() -> None:
    proto, weight = conv()
    prepared = prepare(io.from_proto(proto), "none")
    name = next(iter(prepared.graph)).name or ""
    recipe = QuantRecipe(per_channel=False)
    shifts = measure_shifts(prepared, {name: "static"}, recipe, open_data(IMAGES, input_specs(prepared)))
    seen = patches(IMAGES["x"].astype(np.float64))
    expected = (seen @ (weight - rounded(weight)).reshape(5, -1).T.astype(np.float64)).mean(axis=0)
    np.testing.assert_allclose(shifts[name], expected, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("kind", ["Gemm", "Gemm, transposed", "MatMul"])
@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_shifts_of_linear_layers_are_numpys_and_take_no_copy_of_the_weights(
    kind: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, opened = list[int](), OutputProbe.open

    def seen(self: OutputProbe, options: SessionOptions) -> OnnxRunner:
        sizes.extend(v.const_value.size for v in self.graph.initializers.values() if v.const_value is not None)
        return opened(self, options)

    monkeypatch.setattr(OutputProbe, "open", seen)
    proto, weight = linear(kind)
    prepared = prepare(io.from_proto(proto), "none")
    name = next(iter(prepared.graph)).name or ""
    recipe = QuantRecipe(mode=mode, per_channel=False)  # type: ignore[arg-type]
    shifts = measure_shifts(prepared, {name: mode}, recipe, open_data(ROWS, input_specs(prepared)))  # type: ignore[dict-item]
    assert sizes.count(weight.size) == 1
    expected = ROWS["x"].astype(np.float64).mean(axis=0) @ (weight - rounded(weight)).astype(np.float64)
    np.testing.assert_allclose(shifts[name], expected, rtol=1e-3, atol=1e-6)


CASES = [
    ("conv", IMAGES, "static"),
    *((kind, ROWS, mode) for kind in ("Gemm", "MatMul") for mode in ("static", "dynamic")),
]


@pytest.mark.parametrize(("kind", "feeds", "mode"), CASES)
@pytest.mark.parametrize("level", ["none", "extended"])
def test_means_come_back(kind: str, feeds: dict[str, np.ndarray], mode: str, level: str) -> None:
    proto, _ = conv() if kind == "conv" else linear(kind)
    prepared = prepare(io.from_proto(proto), level)
    expected = OnnxRunner.open(proto).run(feeds)["y"]
    axes = (0, 2, 3) if expected.ndim == 4 else (0,)
    found = []
    for corrected in (False, True):
        recipe = QuantRecipe(mode=mode, per_channel=False, bias_correction=corrected)  # type: ignore[arg-type]
        done = calibrate(prepared, recipe, open_data(feeds, input_specs(prepared)), None)
        actual = OnnxRunner.open(apply(prepared, done)).run(feeds)["y"]
        found.append(np.abs((actual - expected).mean(axis=axes)).max())
    assert found[1] < 0.3 * found[0]


def test_a_product_without_an_addition_is_left_alone() -> None:
    proto = build([node("MatMul", ["x", "w"], ["y"])], {"w": coarse(24, 6)}, {"x": ["n", 24]}, {"y": ["n", 6]})
    prepared = prepare(io.from_proto(proto))
    recipe = QuantRecipe(mode="dynamic", bias_correction=True)
    done = calibrate(prepared, recipe, open_data(ROWS, input_specs(prepared)), None)
    assert done.shifts == {}
    assert "Add" not in [n.op_type for n in apply(prepared, done).graph]


def test_the_command_needs_data_for_it_and_a_saved_recipe_does_not(tmp_path: Path) -> None:
    proto, _ = linear("MatMul")
    io.save(io.from_proto(proto), tmp_path / "m.onnx")
    with pytest.raises(UsageError, match="--bias-correction needs --data"):
        onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "q.onnx", mode="dynamic", bias_correction=True)
    saved = tmp_path / "r.json"
    report = onnxtool.quantize(
        tmp_path / "m.onnx", tmp_path / "q.onnx", mode="dynamic", bias_correction=True, data=ROWS, recipe_file=saved
    )
    assert "bias-corrected" in report.summary
    onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "again.onnx", recipe_file=saved)
    assert (tmp_path / "q.onnx").read_bytes() == (tmp_path / "again.onnx").read_bytes()
