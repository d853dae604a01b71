"""Weights behind Identity, Constant, Transpose, Cast, Reshape and their like are found, whatever the mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxtool.model import io
from onnxtool.model.ir.queries import input_specs
from onnxtool.quantization.apply_recipe import apply, calibrate
from onnxtool.quantization.preprocess.prepare import prepare
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.runtime.data.open_data import open_data
from onnxtool.runtime.runner import OnnxRunner
from tests.quantization.kernels import count_kernels
from tests.quantization.quant_models import build, integer_kernels, weights

node = helper.make_node
ROWS = {"x": np.random.default_rng(0).standard_normal((16, 24)).astype(np.float32)}
Made = tuple[Sequence[onnx.NodeProto], dict[str, np.ndarray]]


def constant(array: np.ndarray, name: str) -> onnx.NodeProto:
    return node("Constant", [], [name], value=numpy_helper.from_array(array))


def behind_identity(weight: np.ndarray) -> Made:
    return [node("Identity", ["w0"], ["w1"]), node("Identity", ["w1"], ["w"])], {"w0": weight}


def behind_constant(weight: np.ndarray) -> Made:
    return [constant(weight, "w")], {}


def behind_transpose(weight: np.ndarray) -> Made:
    return [node("Transpose", ["w0"], ["w"], perm=[1, 0])], {"w0": weight.T.copy()}


def behind_half(weight: np.ndarray) -> Made:
    return [node("Cast", ["w0"], ["w"], to=TensorProto.FLOAT)], {"w0": weight.astype(np.float16)}


def behind_double(weight: np.ndarray) -> Made:
    return [constant(weight.astype(np.float64), "w0"), node("Cast", ["w0"], ["w"], to=TensorProto.FLOAT)], {}


def behind_reshape(weight: np.ndarray) -> Made:
    shape = np.array(weight.shape, np.int64)
    return [node("Reshape", ["w0", "shape"], ["w"])], {"w0": weight.reshape(-1), "shape": shape}


def behind_squeeze(weight: np.ndarray) -> Made:
    axes = np.array([0], np.int64)
    return [node("Squeeze", ["w0", "axes"], ["w"])], {"w0": weight[None], "axes": axes}


def behind_all_of_it(weight: np.ndarray) -> Made:
    nodes = [
        constant(weight.T.astype(np.float16).copy(), "w0"),
        node("Cast", ["w0"], ["w1"], to=TensorProto.FLOAT),
        node("Identity", ["w1"], ["w2"]),
        node("Transpose", ["w2"], ["w"], perm=[1, 0]),
    ]
    return nodes, {}


WAYS = [
    behind_identity,
    behind_constant,
    behind_transpose,
    behind_half,
    behind_double,
    behind_reshape,
    behind_squeeze,
    behind_all_of_it,
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("level", ["none", "extended"])
@pytest.mark.parametrize("mode", ["static", "dynamic", "int4"])
def test_weights_are_found(way: Callable[[np.ndarray], Made], level: str, mode: str) -> None:
    nodes, arrays = way(weights(24, 32))
    nodes = [*nodes, node("MatMul", ["x", "w"], ["y"])]
    proto = build(nodes, arrays, {"x": ["n", 24]}, {"y": ["n", 32]}, opset=17)
    prepared = prepare(io.from_proto(proto), level)
    recipe = QuantRecipe(mode=mode, block_size=16)  # type: ignore[arg-type]
    done = calibrate(prepared, recipe, open_data(ROWS, input_specs(prepared)), None)
    model = apply(prepared, done)
    assert integer_kernels(count_kernels(model)) == 1
    expected = OnnxRunner.open(proto).run(ROWS)["y"]
    error = OnnxRunner.open(model).run(ROWS)["y"] - expected
    assert (error**2).sum() < (0.03 if mode == "int4" else 1e-3) * (expected**2).sum()


def test_a_weight_that_is_quantized_already_stays_and_the_others_are_quantized() -> None:
    integers = np.random.default_rng(1).integers(-127, 128, (24, 32)).astype(np.int8)
    nodes = [
        node("DequantizeLinear", ["q", "s"], ["w"]),
        node("MatMul", ["x", "w"], ["h"]),
        node("MatMul", ["h", "v"], ["y"]),
    ]
    arrays = {"q": integers, "s": np.float32(0.01), "v": weights(32, 8)}
    proto = build(nodes, arrays, {"x": ["n", 24]}, {"y": ["n", 8]}, opset=17)
    prepared = prepare(io.from_proto(proto))
    model = apply(prepared, QuantRecipe(mode="dynamic"))
    stored = [v.const_value.numpy() for v in model.graph.initializers.values() if v.const_value is not None]
    assert any(a.dtype == np.int8 and np.array_equal(a, integers) for a in stored)
    expected = OnnxRunner.open(proto).run(ROWS)["y"]
    error = OnnxRunner.open(model).run(ROWS)["y"] - expected
    assert (error**2).sum() < 1e-2 * (expected**2).sum()
