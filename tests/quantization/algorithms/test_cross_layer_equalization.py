"""Cross-layer equalization: the float model stays what it is, and one scale for a whole layer becomes enough."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxtool.model import io
from onnxtool.model.ir.queries import input_specs
from onnxtool.quantization.algorithms.cross_layer_equalization import equalized_tensors, equalizing_scales
from onnxtool.quantization.algorithms.preprocessing import conditioned
from onnxtool.quantization.apply_recipe import apply, calibrate
from onnxtool.quantization.calibration.observer import observe
from onnxtool.quantization.preprocess.prepare import prepare
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.runtime.data.open_data import open_data
from onnxtool.runtime.runner import OnnxRunner
from tests.quantization.quant_models import build, weights

node = helper.make_node
CHANNELS = 8
DATA = {"x": np.random.default_rng(4).standard_normal((8, 3, 12, 12)).astype(np.float32)}


def unbalanced(top: float | None = None) -> onnx.ModelProto:
    """Conv, Relu, depthwise Conv, Relu, Conv, whose channels have ranges a thousand times apart.

    With `top`, a Clip to it stands where the first Relu is.
    """
    uneven = np.geomspace(0.05, 50, CHANNELS).astype(np.float32)
    first, depthwise, last = weights(CHANNELS, 3, 1, 1), weights(CHANNELS, 1, 3, 3), weights(4, CHANNELS, 1, 1)
    first *= uneven[:, None, None, None]
    depthwise *= (uneven[::-1] / uneven)[:, None, None, None]
    last /= uneven[::-1][None, :, None, None]
    arrays = {"w0": first, "b0": weights(CHANNELS) * uneven, "w1": depthwise, "w2": last, "b2": weights(4)}
    if top is not None:
        arrays |= {"zero": np.float32(0), "top": np.float32(top)}
    clip = node("Clip", ["c0", "zero", "top"], ["r0"])
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c0"]),
        node("Relu", ["c0"], ["r0"]) if top is None else clip,
        node("Conv", ["r0", "w1"], ["c1"], pads=[1, 1, 1, 1], group=CHANNELS),
        node("Relu", ["c1"], ["r1"]),
        node("Conv", ["r1", "w2", "b2"], ["y"]),
    ]
    return build(nodes, arrays, {"x": ["n", 3, 12, 12]}, {"y": ["n", 4, 12, 12]})


def array_of(model: object, consumer: str) -> np.ndarray:
    graph = model.graph  # type: ignore[attr-defined]
    found = next(n for n in graph if n.outputs[0].name == consumer)
    array: np.ndarray = found.inputs[1].const_value.numpy()
    return array


def test_the_float_model_computes_the_same() -> None:
    proto = unbalanced()
    expected = OnnxRunner.open(proto).run(DATA)["y"]
    model = conditioned(prepare(io.from_proto(proto), "none"), QuantRecipe(equalize=True))
    actual = OnnxRunner.open(model).run(DATA)["y"]
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def test_only_what_lies_between_two_layers_is_divided() -> None:
    prepared = prepare(io.from_proto(unbalanced()), "none")
    names = [v.name or "" for n in prepared.graph for v in n.outputs]
    equalized = conditioned(prepared, QuantRecipe(equalize=True))
    before, after = (observe(m, names, open_data(DATA, input_specs(prepared))) for m in (prepared, equalized))
    changed = {n for n in names if not np.allclose(before[n].range("minmax"), after[n].range("minmax"), rtol=1e-4)}
    assert equalized_tensors(prepared.graph) == changed == {"c0", "r0", "c1", "r1"}


def test_both_sides_of_every_pair_get_the_same_range() -> None:
    model = conditioned(prepare(io.from_proto(unbalanced()), "none"), QuantRecipe(equalize=True))
    first, depthwise, last = (np.abs(array_of(model, name)) for name in ("c0", "c1", "y"))
    np.testing.assert_allclose(first.max(axis=(1, 2, 3)), depthwise.max(axis=(1, 2, 3)), rtol=0.02)
    np.testing.assert_allclose(depthwise.max(axis=(1, 2, 3)), last.max(axis=(0, 2, 3)), rtol=0.02)


def test_scales_are_the_papers_formula() -> None:
    first, second = np.array([4.0, 1.0, 0.0]), np.array([1.0, 9.0, 5.0])
    scales = equalizing_scales(first, second)
    # s = (1 / r2) sqrt(r1 r2), and both ranges become sqrt(r1 r2)
    np.testing.assert_allclose(scales[:2], np.sqrt(first * second)[:2] / second[:2])
    np.testing.assert_allclose((first / scales)[:2], np.sqrt(first * second)[:2])
    assert scales[2] == 1, "a dead channel"


def test_grouped_convolutions_are_matched_group_by_group() -> None:
    nodes = [
        node("Conv", ["x", "w0"], ["c0"]),
        node("MaxPool", ["c0"], ["p0"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p0", "w1"], ["y"], group=2),
    ]
    uneven = np.geomspace(0.1, 10, 6).astype(np.float32)
    arrays = {"w0": weights(6, 3, 1, 1) * uneven[:, None, None, None], "w1": weights(4, 3, 3, 3)}
    proto = build(nodes, arrays, {"x": ["n", 3, 12, 12]}, {"y": ["n", 4, 4, 4]})
    model = conditioned(prepare(io.from_proto(proto), "none"), QuantRecipe(equalize=True))
    expected = OnnxRunner.open(proto).run(DATA)["y"]
    np.testing.assert_allclose(OnnxRunner.open(model).run(DATA)["y"], expected, rtol=1e-3, atol=1e-4)
    assert not np.allclose(array_of(model, "c0"), arrays["w0"])


def test_a_clip_with_an_upper_end_is_not_passed() -> None:
    proto = unbalanced(6.0)
    model = conditioned(prepare(io.from_proto(proto), "none"), QuantRecipe(equalize=True))
    np.testing.assert_allclose(array_of(model, "c0"), array_of(prepare(io.from_proto(proto), "none"), "c0"))
    expected = OnnxRunner.open(proto).run(DATA)["y"]
    np.testing.assert_allclose(OnnxRunner.open(model).run(DATA)["y"], expected, rtol=1e-3, atol=1e-3)


def test_a_tensor_that_others_read_too_is_left_alone() -> None:
    nodes = [
        node("Conv", ["x", "w0"], ["c0"]),
        node("Relu", ["c0"], ["r0"]),
        node("Conv", ["r0", "w1"], ["c1"]),
        node("Add", ["r0", "c1"], ["y"]),
    ]
    arrays = {"w0": weights(4, 3, 1, 1) * 9, "w1": weights(4, 4, 1, 1)}
    proto = build(nodes, arrays, {"x": ["n", 3, 12, 12]}, {"y": ["n", 4, 12, 12]})
    model = conditioned(prepare(io.from_proto(proto), "none"), QuantRecipe(equalize=True))
    np.testing.assert_array_equal(array_of(model, "c0"), arrays["w0"])


@pytest.mark.parametrize("level", ["none", "extended"])
def test_one_scale_for_a_layer_becomes_enough(level: str) -> None:
    proto = unbalanced()
    prepared = prepare(io.from_proto(proto), level)
    expected = OnnxRunner.open(proto).run(DATA)["y"]
    found = []
    for equalize in (False, True):
        recipe = QuantRecipe(per_channel=False, equalize=equalize)
        recipe = calibrate(prepared, recipe, open_data(DATA, input_specs(prepared)), None)
        error = OnnxRunner.open(apply(prepared, recipe)).run(DATA)["y"] - expected
        found.append(float((error**2).sum()))
    assert found[1] < 0.1 * found[0]
