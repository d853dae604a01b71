"""Where Q/DQ pairs go, told by the kernels that the runtime makes of them."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from onnxtool.model import io
from onnxtool.model.ir.queries import input_specs
from onnxtool.quantization.algorithms.qdq_placement import is_product
from onnxtool.quantization.apply_recipe import apply, calibrate, placement_of
from onnxtool.quantization.preprocess.prepare import prepare
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.runtime.data.open_data import open_data
from onnxtool.runtime.runner import OnnxRunner
from tests.quantization.kernels import count_kernels
from tests.quantization.quant_models import build, weights

node = helper.make_node
DATA = {"x": np.random.default_rng(5).standard_normal((12, 3, 8, 8)).astype(np.float32)}


def detector() -> onnx.ModelProto:
    """Split, bottleneck, Concat, nearest Resize and SiLU: the parts of a one-stage detector."""
    nodes = [
        node("Conv", ["x", "w0"], ["c0"], pads=[1, 1, 1, 1]),
        node("Sigmoid", ["c0"], ["s0"]),
        node("Mul", ["c0", "s0"], ["a0"]),
        node("Split", ["a0"], ["left", "right"], axis=1, num_outputs=2),
        node("Conv", ["right", "w1"], ["c1"], pads=[1, 1, 1, 1]),
        node("Concat", ["left", "c1"], ["k"], axis=1),
        node("Resize", ["k", "", "scales"], ["big"], mode="nearest"),
        node("Conv", ["big", "w2"], ["y"]),
    ]
    arrays = {
        "w0": weights(8, 3, 3, 3),
        "w1": weights(4, 4, 3, 3),
        "w2": weights(6, 8, 1, 1),
        "scales": np.array([1, 1, 2, 2], np.float32),
    }
    return build(nodes, arrays, {"x": ["n", 3, 8, 8]}, {"y": ["n", 6, 16, 16]})


def quantized(proto: onnx.ModelProto, recipe: QuantRecipe) -> onnx.ModelProto:
    prepared = prepare(io.from_proto(proto))
    data = open_data(DATA, input_specs(prepared))
    return io.to_proto(apply(prepared, calibrate(prepared, recipe, data, None)))


def test_a_detectors_parts_stay_on_integers() -> None:
    proto = detector()
    model = quantized(proto, QuantRecipe())
    kernels = count_kernels(io.from_proto(model))
    assert kernels["QLinearConv"] == 3
    assert kernels["QLinearMul"] == 1
    assert kernels["QLinearConcat"] == 1
    assert kernels["QuantizeLinear"] == 1, "at the input"
    assert kernels["DequantizeLinear"] == 1, "at the output"
    expected = OnnxRunner.open(proto).run(DATA)["y"]
    error = OnnxRunner.open(model).run(DATA)["y"] - expected
    assert (error**2).sum() < 1e-3 * (expected**2).sum()


def test_what_moves_values_shares_their_scale() -> None:
    prepared = prepare(io.from_proto(detector()))
    placement = placement_of(prepared.graph, QuantRecipe())
    shared = {moved.name: source.name for moved, source in placement.same_as.items()}
    assert shared["left"] == shared["right"] == "a0"
    assert shared["big"] == "k"
    assert not {"left", "right", "big"} & set(placement.observed)


def test_a_sum_with_one_float_side_stays_float() -> None:
    nodes = [
        node("Conv", ["x", "w0"], ["c"], pads=[1, 1, 1, 1]),
        node("Tanh", ["x"], ["t"]),
        node("Add", ["c", "t"], ["s"]),
        node("Conv", ["s", "w1"], ["y"]),
    ]
    arrays = {"w0": weights(3, 3, 3, 3), "w1": weights(4, 3, 1, 1)}
    proto = build(nodes, arrays, {"x": ["n", 3, 8, 8]}, {"y": ["n", 4, 8, 8]})
    kernels = count_kernels(io.from_proto(quantized(proto, QuantRecipe())))
    assert kernels["QLinearConv"] == 2
    assert "QLinearAdd" not in kernels


def test_linear_layers_hand_on_integers_only_to_each_other() -> None:
    nodes = [
        node("Gemm", ["x", "w0", "b0"], ["g0"]),
        node("Relu", ["g0"], ["r0"]),
        node("Gemm", ["r0", "w1"], ["g1"]),
        node("Tanh", ["g1"], ["t"]),
        node("Gemm", ["t", "w2"], ["y"]),
    ]
    arrays = {"w0": weights(12, 16), "b0": weights(16), "w1": weights(16, 16), "w2": weights(16, 4)}
    proto = build(nodes, arrays, {"x": ["n", 12]}, {"y": ["n", 4]})
    prepared = prepare(io.from_proto(proto))
    data = open_data(
        {"x": np.random.default_rng(0).standard_normal((16, 12)).astype(np.float32)}, input_specs(prepared)
    )
    kernels = count_kernels(apply(prepared, calibrate(prepared, QuantRecipe(), data, None)))
    assert kernels["QGemm"] == 3
    assert kernels["QuantizeLinear"] == 2, "the input, and what comes out of Tanh"
    assert "DequantizeLinear" not in kernels
    assert "Relu" not in kernels


def attention_kernels(proto: onnx.ModelProto, feeds: dict[str, np.ndarray], recipe: QuantRecipe) -> dict[str, int]:
    prepared = prepare(io.from_proto(proto), "none")
    done = calibrate(prepared, recipe, open_data(feeds, input_specs(prepared)), None)
    model = apply(prepared, done)
    expected = OnnxRunner.open(proto).run(feeds)["y"]
    error = OnnxRunner.open(model).run(feeds)["y"] - expected
    assert (error**2).sum() < 3e-3 * (expected**2).sum()
    return count_kernels(model)


def test_attention_runs_on_integers_when_asked(
    transformer: onnx.ModelProto, transformer_data: dict[str, np.ndarray]
) -> None:
    plain = attention_kernels(transformer, transformer_data, QuantRecipe())
    asked = attention_kernels(transformer, transformer_data, QuantRecipe(attention=True))
    kinds = ("MatMulIntegerToFloat", "QLinearMatMul", "QGemm")
    assert sum(plain.get(k, 0) for k in kinds) == 6
    assert sum(asked.get(k, 0) for k in kinds) == 8
    assert not {"MatMul", "FusedMatMul"} & set(asked)
    assert "DequantizeLinear" not in asked, "no strays"


def test_a_product_of_a_tensor_with_itself_or_of_other_types_stays_as_it_is() -> None:
    square = build([node("MatMul", ["x", "x"], ["y"])], {}, {"x": [4, 4]}, {"y": [4, 4]})
    prepared = prepare(io.from_proto(square), "none")
    assert not any(is_product(n) for n in prepared.graph)
