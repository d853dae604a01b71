"""Preparation keeps the function, and hard-swish networks end up in integers throughout."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxtool.model import io
from onnxtool.model.ir.queries import input_specs, operator_counts
from onnxtool.quantization.apply_recipe import apply, calibrate
from onnxtool.quantization.preprocess.prepare import prepare
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.runtime.data.open_data import open_data
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import EXACT
from tests.quantization.kernels import count_kernels
from tests.quantization.quant_models import build, weights


def hard_swish_proto(pads: int) -> onnx.ModelProto:
    """Conv, hard-swish, learnable scale and shift, Conv: as in PP-LCNet."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c0"], pads=[1, 1, 1, 1]),
        node("HardSigmoid", ["c0"], ["gate"], alpha=1 / 6, beta=0.5),
        node("Mul", ["c0", "gate"], ["h"]),
        node("Mul", ["a", "h"], ["scaled"]),
        node("Add", ["scaled", "b"], ["shifted"]),
        node("Conv", ["shifted", "w1"], ["y"], pads=[pads] * 4),
    ]
    arrays = {
        "w0": weights(8, 3, 3, 3, scale=4),
        "b0": weights(8),
        "w1": weights(8, 8, 3, 3),
        "a": np.array([0.3], np.float32),
        "b": np.array([-0.2], np.float32),
    }
    return build(nodes, arrays, {"x": ["n", 3, 10, 10]}, {"y": ["n", 8, None, None]})


DATA = {"x": np.random.default_rng(4).standard_normal((16, 3, 10, 10)).astype(np.float32)}


@pytest.mark.parametrize(("pads", "operators"), [(0, 0), (1, 1)])
def test_scalars_before_a_conv_go_into_it(pads: int, operators: int) -> None:
    proto = hard_swish_proto(pads)
    prepared = prepare(io.from_proto(proto))
    counts = operator_counts(prepared)
    assert counts["Mul"] == 1, "only x * HardSigmoid(x) is left"
    assert counts.get("Add", 0) == operators, "an addition before padding cannot move"
    expected = OnnxRunner.open(proto, EXACT).run(DATA)["y"]
    np.testing.assert_allclose(OnnxRunner.open(prepared, EXACT).run(DATA)["y"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("activations", ["u8", "s8"])
def test_hard_swish_runs_on_integers(activations: str) -> None:
    proto = hard_swish_proto(1)
    prepared = prepare(io.from_proto(proto))
    data = open_data(DATA, input_specs(prepared))
    model = apply(prepared, calibrate(prepared, QuantRecipe(activations=activations), data, None))  # type: ignore[arg-type]
    if activations == "u8":
        kernels = count_kernels(model)
        assert kernels["QLinearConv"] == 2
        assert not {"HardSigmoid", "Mul", "Add", "Conv"} & set(kernels)
    expected = OnnxRunner.open(proto).run(DATA)["y"]
    error = OnnxRunner.open(model).run(DATA)["y"] - expected
    assert (error**2).sum() < 2e-3 * (expected**2).sum()


def test_means_over_the_picture_become_pooling() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("ReduceMean", ["c", "axes"], ["m"], keepdims=0),
        helper.make_node("Relu", ["m"], ["y"]),
    ]
    arrays = {"w": weights(6, 3, 1, 1), "axes": np.array([-1, 2])}
    proto = build(nodes, arrays, {"x": ["n", 3, 10, 10]}, {"y": ["n", 6]})
    prepared = prepare(io.from_proto(proto))
    assert operator_counts(prepared)["GlobalAveragePool"] == 1
    expected = OnnxRunner.open(proto).run(DATA)["y"]
    np.testing.assert_allclose(OnnxRunner.open(prepared).run(DATA)["y"], expected, rtol=1e-4, atol=1e-6)


def test_the_source_model_is_left_as_it_is() -> None:
    model = io.from_proto(hard_swish_proto(0))
    before = io.to_proto(model).SerializeToString()
    prepare(model)
    assert io.to_proto(model).SerializeToString() == before


def test_names_are_the_same_every_time() -> None:
    names = [[n.name for n in prepare(io.from_proto(hard_swish_proto(1))).graph] for _ in range(2)]
    assert names[0] == names[1]
    assert len(set(names[0])) == len(names[0])
