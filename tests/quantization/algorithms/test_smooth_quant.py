"""Activation smoothing: the float model stays what it is, and channels with outliers no longer ruin int8."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import onnxtool
from onnxtool.errors import InputError, UsageError
from onnxtool.model import io
from onnxtool.model.ir.queries import input_specs
from onnxtool.quantization.algorithms.preprocessing import channel_extremes, conditioned
from onnxtool.quantization.algorithms.smooth_quant import smooth, smoothable, smoothing_scales
from onnxtool.quantization.apply_recipe import apply, calibrate
from onnxtool.quantization.preprocess.prepare import prepare
from onnxtool.quantization.recipe import QuantRecipe, dump_recipe, load_recipe
from onnxtool.runtime.data.open_data import open_data
from onnxtool.runtime.runner import OnnxRunner
from tests.quantization.quant_models import build, weights

node = helper.make_node
WIDTH = 32
PLANTED = (3, 17)


def outliers() -> onnx.ModelProto:
    """A transformer's MLP: LayerNorm whose gamma has two channels far larger, MatMul, Relu, MatMul."""
    gamma = np.ones(WIDTH, np.float32)
    gamma[list(PLANTED)] = 60
    up = weights(WIDTH, 48)
    up[list(PLANTED)] /= 60
    nodes = [
        node("LayerNormalization", ["x", "gamma", "beta"], ["n"], axis=-1),
        node("MatMul", ["n", "up"], ["u0"]),
        node("Add", ["u0", "b"], ["u1"]),
        node("Relu", ["u1"], ["u"]),
        node("MatMul", ["u", "down"], ["y"]),
    ]
    arrays = {"gamma": gamma, "beta": weights(WIDTH) * 0.1, "up": up, "b": weights(48) * 0.1, "down": weights(48, 8)}
    return build(nodes, arrays, {"x": ["batch", "length", WIDTH]}, {"y": ["batch", "length", 8]})


def behind_residual() -> onnx.ModelProto:
    """The same tensor with outliers goes into the residual too, so that no gamma may be touched."""
    gamma = np.ones(WIDTH, np.float32)
    gamma[list(PLANTED)] = 60
    up = weights(WIDTH, WIDTH)
    up[list(PLANTED)] /= 60
    nodes = [
        node("LayerNormalization", ["x", "gamma"], ["n"], axis=-1),
        node("MatMul", ["n", "up"], ["u"]),
        node("Tanh", ["n"], ["t"]),
        node("Add", ["u", "t"], ["y"]),
    ]
    return build(nodes, {"gamma": gamma, "up": up}, {"x": ["n", 4, WIDTH]}, {"y": ["n", 4, WIDTH]})


@pytest.fixture(scope="module")
def data() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(3).standard_normal((24, 4, WIDTH)).astype(np.float32)}


def noise(proto: onnx.ModelProto, model: object, feeds: dict[str, np.ndarray]) -> float:
    expected = OnnxRunner.open(proto).run(feeds)["y"]
    error = OnnxRunner.open(model).run(feeds)["y"] - expected  # type: ignore[arg-type]
    return float((error**2).sum() / (expected**2).sum())


def test_scales_are_the_papers_formula() -> None:
    random = np.random.default_rng(0)
    extremes = random.uniform(0.1, 50, 6)
    first, second = random.standard_normal((6, 4)), random.standard_normal((6, 9))
    for alpha in (0.3, 0.5, 0.8):
        scales = smoothing_scales(extremes, [first, second], alpha)
        largest = np.maximum(np.abs(first).max(1), np.abs(second).max(1))
        expected = extremes**alpha / largest ** (1 - alpha)
        np.testing.assert_allclose(scales / scales[0], expected / expected[0], rtol=1e-5)
    with_dead = smoothing_scales(np.array([0.0, 4.0, 4.0, 4.0, 4.0, 4.0]), [first], 0.5)
    assert with_dead[0] == 1


def test_magnitudes_of_channels_are_numpys(data: dict[str, np.ndarray]) -> None:
    proto = outliers()
    prepared = prepare(io.from_proto(proto), "none")
    seen = channel_extremes(prepared, open_data(data, input_specs(prepared)))
    x = data["x"].astype(np.float64)
    normal = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    arrays = {t.name: onnx.numpy_helper.to_array(t) for t in proto.graph.initializer}
    expected = np.abs(normal * arrays["gamma"] + arrays["beta"]).max(axis=(0, 1))
    np.testing.assert_allclose(seen["n"], expected, rtol=1e-4)
    assert set(seen) == {"n", "u"}


def test_a_sample_that_gives_nan_is_refused(data: dict[str, np.ndarray]) -> None:
    proto = behind_residual()
    proto.graph.node.insert(0, node("Sqrt", ["x"], ["root"]))
    proto.graph.node[1].input[0] = "root"
    prepared = prepare(io.from_proto(proto), "none")
    rows = np.abs(data["x"])
    rows[5, 2, 0] = -1
    with pytest.raises(InputError, match="sample 5: tensor 'n' becomes NaN"):
        channel_extremes(prepared, open_data({"x": rows}, input_specs(prepared)))


@pytest.mark.parametrize("make", [outliers, behind_residual])
@pytest.mark.parametrize("level", ["none", "extended"])
def test_the_float_model_computes_the_same(make: object, level: str, data: dict[str, np.ndarray]) -> None:
    proto = make()  # type: ignore[operator]
    prepared = prepare(io.from_proto(proto), level)
    seen = channel_extremes(prepared, open_data(data, input_specs(prepared)))
    smoothed = conditioned(prepared, QuantRecipe(smooth=0.5, channels=seen))
    expected = OnnxRunner.open(proto).run(data)["y"]
    actual = OnnxRunner.open(smoothed).run(data)["y"]
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    before = {v.name: v.const_value.numpy() for v in prepared.graph.initializers.values() if v.const_value is not None}
    after = [v.const_value.numpy() for v in smoothed.graph.initializers.values() if v.const_value is not None]
    assert any(not any(np.array_equal(a, b) for b in before.values()) for a in after), "it was smoothed at all"


def test_gamma_and_the_weights_before_a_relu_take_the_scales_and_no_node_is_added(
    data: dict[str, np.ndarray],
) -> None:
    prepared = prepare(io.from_proto(outliers()), "none")
    seen = channel_extremes(prepared, open_data(data, input_specs(prepared)))
    smoothed = conditioned(prepared, QuantRecipe(smooth=0.5, channels=seen))
    assert [n.op_type for n in smoothed.graph] == [n.op_type for n in prepared.graph]
    tensors = channel_extremes(smoothed, open_data(data, input_specs(prepared)))
    spread = [np.max(t["n"]) / np.median(t["n"]) for t in (seen, tensors)]
    assert spread[1] < 0.3 * spread[0]
    assert tensors["u"] != pytest.approx(seen["u"], rel=1e-2), "through the Relu"


def test_a_tensor_that_others_read_too_gets_a_mul_where_outliers_are_large(data: dict[str, np.ndarray]) -> None:
    prepared = prepare(io.from_proto(behind_residual()), "none")
    seen = channel_extremes(prepared, open_data(data, input_specs(prepared)))
    smoothed = conditioned(prepared, QuantRecipe(smooth=0.5, channels=seen))
    assert [n.op_type for n in smoothed.graph].count("Mul") == 1
    even = {name: [1.0] * len(values) for name, values in seen.items()}
    untouched = conditioned(prepared, QuantRecipe(smooth=0.5, channels=even))
    assert "Mul" not in [n.op_type for n in untouched.graph], "no outliers, nothing to pay for"


@pytest.mark.parametrize("make", [outliers, behind_residual])
@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_outliers_no_longer_ruin_int8(make: object, mode: str, data: dict[str, np.ndarray]) -> None:
    proto = make()  # type: ignore[operator]
    prepared = prepare(io.from_proto(proto))
    source = open_data(data, input_specs(prepared))
    found = []
    for alpha in (0.0, 0.5):
        recipe = calibrate(prepared, QuantRecipe(mode=mode, smooth=alpha), source, None)  # type: ignore[arg-type]
        found.append(noise(proto, apply(prepared, recipe), data))
    assert found[1] < 0.25 * found[0]


def test_the_command_needs_data_for_it_and_a_saved_recipe_does_not(tmp_path: Path, data: dict[str, np.ndarray]) -> None:
    io.save(io.from_proto(outliers()), tmp_path / "m.onnx")
    with pytest.raises(UsageError, match="--smooth needs --data"):
        onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "q.onnx", mode="dynamic", smooth=0.5)
    with pytest.raises(UsageError, match="--smooth goes with"):
        onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "q.onnx", mode="int4", smooth=0.5)
    saved = tmp_path / "r.json"
    report = onnxtool.quantize(
        tmp_path / "m.onnx", tmp_path / "q.onnx", mode="dynamic", smooth=0.5, data=data, recipe_file=saved
    )
    assert "smooth 0.5" in report.summary
    again = onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "r.onnx", recipe_file=saved)
    assert again.recipe == report.recipe
    assert (tmp_path / "q.onnx").read_bytes() == (tmp_path / "r.onnx").read_bytes()
    recipe = load_recipe(saved)
    assert load_recipe(_written(tmp_path / "copy.json", dump_recipe(recipe))) == recipe


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_auto_smooths_where_accuracy_is_short(tmp_path: Path, data: dict[str, np.ndarray]) -> None:
    io.save(io.from_proto(outliers()), tmp_path / "m.onnx")
    report = onnxtool.quantize(
        tmp_path / "m.onnx", tmp_path / "q.onnx", data=data, time_limit=30, target="vnni", smallest=True
    )
    tried = [c for c in report.frontier if "smooth 0.5" in c.recipe]
    assert tried
    plain = {c.name: c for c in report.frontier}
    (first, *_) = tried
    before = plain[first.name.removesuffix(", smooth 0.5")]
    assert first.fidelity is not None and before.fidelity is not None
    assert first.fidelity.channel_db > before.fidelity.channel_db + 3
    assert "smooth" in report.summary


@pytest.mark.parametrize("shared", ["", "read", "made"])
def test_a_weight_that_two_layers_share_is_not_copied(shared: str) -> None:
    """Layers of one weight (ALBERT and its kin), of which smoothing would make as many as there are layers."""
    up, down, other = weights(WIDTH, WIDTH), weights(WIDTH, WIDTH), weights(WIDTH, WIDTH)
    names = {"": ("up", "down", "other"), "read": ("up", "down", "down"), "made": ("up", "down", "up")}[shared]
    nodes = [
        node("MatMul", ["x", names[0]], ["a"]),
        node("Relu", ["a"], ["b"]),
        node("MatMul", ["b", names[1]], ["c"]),
        node("Sigmoid", ["c"], ["d"]),
        node("MatMul", ["d", names[2]], ["y"]),
    ]
    arrays = {name: array for name, array in {"up": up, "down": down, "other": other}.items() if name in names}
    prepared = prepare(io.from_proto(build(nodes, arrays, {"x": ["n", WIDTH]}, {"y": ["n", WIDTH]})))
    found = [g.value.name for g in smoothable(prepared.graph)]
    assert found == {"": ["x", "b", "d"], "read": ["x"], "made": ["b"]}[shared]
    extremes = {name: np.linspace(1, 50, WIDTH).tolist() for name in ("x", "b", "d")}
    before = {v.name for v in prepared.graph.initializers.values()}
    divided = smooth(prepared, extremes, 0.5)
    assert ("b" in divided) == (shared == "")
    assert ({v.name for v in prepared.graph.initializers.values()} == before) == (shared != "")
