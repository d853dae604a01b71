"""Static quantization: what the runtime makes of our Q/DQ pairs, and how near it stays to float."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from onnxtool.equality.rule.difference import Difference
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.errors import InputError, UsageError
from onnxtool.model import io
from onnxtool.model.ir.queries import input_specs
from onnxtool.quantization.apply_recipe import apply, calibrate
from onnxtool.quantization.preprocess.prepare import prepare
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.runtime.data.open_data import open_data
from onnxtool.runtime.runner import OnnxRunner
from tests.quantization.kernels import count_kernels
from tests.quantization.quant_models import build, weights

Feeds = Mapping[str, np.ndarray]


def quantized(
    proto: onnx.ModelProto, data: Feeds, recipe: QuantRecipe, level: str = "extended"
) -> tuple[ir.Model, QuantRecipe]:
    model = io.from_proto(proto)
    prepared = prepare(model, level)
    source = open_data(data, input_specs(model))
    done = calibrate(prepared, recipe, source, None)
    return apply(prepared, done), done


def sqnr(proto: onnx.ModelProto, model: ir.Model, feeds: Feeds) -> float:
    """dB between float and quantized, through the runtime."""
    expected, actual = OnnxRunner.open(proto).run(feeds), OnnxRunner.open(model).run(feeds)
    worst = np.inf
    for name, right in expected.items():
        difference = Difference(name, Tolerance())
        difference.add(right, actual[name])
        worst = min(worst, difference.sqnr_db)
    return worst


def test_a_cnn_runs_in_integer_kernels_from_end_to_end(
    residual: onnx.ModelProto, residual_data: dict[str, np.ndarray]
) -> None:
    model, _ = quantized(residual, residual_data, QuantRecipe())
    kernels = count_kernels(model)
    assert kernels["QLinearConv"] == 6
    assert kernels["QGemm"] == 1
    assert kernels["QLinearAdd"] == 1
    assert kernels["QLinearConcat"] == 1
    assert kernels["QLinearGlobalAveragePool"] == 1
    assert kernels["QuantizeLinear"] == 1, "only the input is quantized"
    assert "DequantizeLinear" not in kernels, "the last Gemm gives floats by itself"
    assert not {"Relu", "Clip", "Conv", "Add"} & set(kernels)


@pytest.mark.parametrize(("activations", "weight_type"), [("u8", "s8"), ("u8", "u8"), ("s8", "s8")])
@pytest.mark.parametrize("per_channel", [True, False])
def test_every_flavour_stays_near_float(
    residual: onnx.ModelProto,
    residual_data: dict[str, np.ndarray],
    activations: str,
    weight_type: str,
    per_channel: bool,
) -> None:
    recipe = QuantRecipe(activations=activations, weights=weight_type, per_channel=per_channel)  # type: ignore[arg-type]
    model, _ = quantized(residual, residual_data, recipe)
    assert sqnr(residual, model, residual_data) > 25
    if activations == "u8":  # the runtime makes u8 of s8 on x86, and gives up on some nodes on the way
        assert sum(count_kernels(model).get(k, 0) for k in ("QLinearConv", "QGemm")) == 7


@pytest.mark.parametrize("method", ["minmax", "percentile", "mse", "entropy"])
def test_every_method_stays_near_float(
    residual: onnx.ModelProto, residual_data: dict[str, np.ndarray], method: str
) -> None:
    model, _ = quantized(residual, residual_data, QuantRecipe(method=method))  # type: ignore[arg-type]
    assert sqnr(residual, model, residual_data) > (15 if method == "entropy" else 25)


def test_the_runtime_agrees_with_the_reference_evaluator(
    residual: onnx.ModelProto, residual_data: dict[str, np.ndarray]
) -> None:
    # The integer kernels against Q/DQ computed in numpy by ONNX itself.
    model, _ = quantized(residual, residual_data, QuantRecipe())
    feeds = {"x": residual_data["x"][:2]}
    expected = ReferenceEvaluator(io.to_proto(model)).run(None, feeds)[0]
    difference = Difference("y", Tolerance())
    difference.add(expected, OnnxRunner.open(model).run(feeds)["y"])
    assert difference.sqnr_db > 30


def test_ranges_are_the_extremes_of_the_float_model(
    residual: onnx.ModelProto, residual_data: dict[str, np.ndarray]
) -> None:
    _, recipe = quantized(residual, residual_data, QuantRecipe())
    assert recipe.ranges is not None
    extended = onnx.ModelProto.FromString(residual.SerializeToString())
    extended.graph.output.append(helper.make_tensor_value_info("r2", onnx.TensorProto.FLOAT, None))
    values = ReferenceEvaluator(extended).run(["r2"], residual_data)[0]
    assert recipe.ranges["r2"] == pytest.approx((0.0, values.max()), rel=1e-4)
    assert recipe.ranges["x"] == pytest.approx((residual_data["x"].min(), residual_data["x"].max()))


def test_a_transformer_quantizes_its_weights_and_nothing_else(
    transformer: onnx.ModelProto, transformer_data: dict[str, np.ndarray]
) -> None:
    model, _ = quantized(transformer, transformer_data, QuantRecipe(), "none")  # the optimizer joins the projections
    kernels = count_kernels(model)
    integers = sum(kernels.get(k, 0) for k in ("MatMulIntegerToFloat", "QLinearMatMul", "QGemm"))
    assert integers == 6
    assert kernels["MatMul"] + kernels.get("FusedMatMul", 0) >= 2, "attention stays float"
    assert kernels["QuantizeLinear"] == 4, "the three projections share one"
    assert not {"QLinearAdd", "QLinearMul"} & set(kernels)
    assert sqnr(transformer, model, transformer_data) > 28


def test_excluded_nodes_stay_float(residual: onnx.ModelProto, residual_data: dict[str, np.ndarray]) -> None:
    model, _ = quantized(residual, residual_data, QuantRecipe(exclude=("c1", "Gemm_*", "*y*")))
    kernels = count_kernels(model)
    assert kernels["QLinearConv"] == 5
    assert kernels["nchwc.Conv"] == 1, "the runtime must not quantize it after all"
    assert "QGemm" not in kernels
    only, _ = quantized(residual, residual_data, QuantRecipe(op_types=("Gemm",)))
    assert count_kernels(only).get("QLinearConv", 0) == 0


def test_an_exclusion_that_matches_nothing_is_refused(
    residual: onnx.ModelProto, residual_data: dict[str, np.ndarray]
) -> None:
    with pytest.raises(UsageError, match="--exclude conv_99"):
        quantized(residual, residual_data, QuantRecipe(exclude=("conv_99",)))


def test_a_bias_far_larger_than_its_weights_survives() -> None:
    # A channel that BatchNormalization has switched off: the int32 bias would overflow at the weights' own scale.
    weight = weights(4, 3, 1, 1)
    weight[2] *= 1e-9
    bias = np.array([0.1, -0.2, 3.0, 0.5], np.float32)
    proto = build(
        [helper.make_node("Conv", ["x", "w", "b"], ["y"])],
        {"w": weight, "b": bias},
        {"x": [1, 3, 5, 5]},
        {"y": [1, 4, 5, 5]},
    )
    data = {"x": np.random.default_rng(0).standard_normal((8, 3, 5, 5)).astype(np.float32)}
    model, _ = quantized(proto, data, QuantRecipe())
    got = OnnxRunner.open(model).run({"x": data["x"][:1]})["y"]
    np.testing.assert_allclose(got[0, 2], 3.0, atol=0.05)


def test_weights_behind_constants_and_transposes_are_found() -> None:
    weight = weights(8, 4)
    nodes = [
        helper.make_node("Constant", [], ["w0"], value=onnx.numpy_helper.from_array(weight.T.copy())),
        helper.make_node("Identity", ["w0"], ["w1"]),
        helper.make_node("Transpose", ["w1"], ["w2"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "w2"], ["y"]),
    ]
    proto = build(nodes, {}, {"x": ["n", 8]}, {"y": ["n", 4]}, opset=13)
    data = {"x": np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)}
    model, _ = quantized(proto, data, QuantRecipe())
    assert count_kernels(model)["MatMulIntegerToFloat"] == 1
    assert sqnr(proto, model, data) > 30


def test_old_opsets_are_raised() -> None:
    proto = build(
        [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Relu", ["c"], ["y"])],
        {"w": weights(4, 3, 3, 3)},
        {"x": [1, 3, 8, 8]},
        {"y": [1, 4, 6, 6]},
        opset=11,
    )
    data = {"x": np.random.default_rng(0).standard_normal((8, 3, 8, 8)).astype(np.float32)}
    model, _ = quantized(proto, data, QuantRecipe())
    assert model.opset_imports[""] >= 13
    assert count_kernels(model)["QLinearConv"] == 1


def test_a_quantized_tensor_that_is_an_output_keeps_its_name() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["middle"]),
        helper.make_node("Conv", ["middle", "w1"], ["y"]),
    ]
    shape = [1, 4, 5, 5]
    proto = build(
        nodes,
        {"w0": weights(4, 3, 1, 1), "w1": weights(4, 4, 1, 1)},
        {"x": [1, 3, 5, 5]},
        {"middle": shape, "y": shape},
    )
    data = {"x": np.random.default_rng(0).standard_normal((8, 3, 5, 5)).astype(np.float32)}
    model, _ = quantized(proto, data, QuantRecipe())
    assert [o.name for o in model.graph.outputs] == ["middle", "y"]
    assert sqnr(proto, model, {"x": data["x"][:1]}) > 30


def test_weights_that_two_nodes_share_are_stored_once() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("MatMul", ["h", "w"], ["y"])]
    proto = build(nodes, {"w": weights(16, 16)}, {"x": ["n", 16]}, {"y": ["n", 16]})
    data = {"x": np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)}
    model, _ = quantized(proto, data, QuantRecipe())
    assert sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value) < 16 * 16 + 500


def test_nan_inside_the_float_model_names_tensor_and_sample() -> None:
    nodes = [helper.make_node("Log", ["x"], ["logged"]), helper.make_node("MatMul", ["logged", "w"], ["y"])]
    proto = build(nodes, {"w": weights(4, 4)}, {"x": ["n", 4]}, {"y": ["n", 4]})
    data = {"x": np.array([[1, 1, 1, 1], [1, 1, 1, 1], [1, -1, 1, 1]], np.float32)}
    with pytest.raises(InputError, match="sample 2: tensor 'logged' becomes NaN"):
        quantized(proto, data, QuantRecipe())


def test_constant_and_empty_tensors_are_no_trouble() -> None:
    nodes = [
        helper.make_node("Mul", ["x", "zero"], ["z"]),
        helper.make_node("MatMul", ["z", "w"], ["y"]),
        helper.make_node("MatMul", ["x", "v"], ["e"]),
    ]
    arrays = {"zero": np.float32(0), "w": weights(4, 4), "v": np.zeros((4, 0), np.float32)}
    proto = build(nodes, arrays, {"x": ["n", 4]}, {"y": ["n", 4], "e": ["n", 0]})
    data = {"x": np.ones((4, 4), np.float32)}
    model, _ = quantized(proto, data, QuantRecipe(method="entropy"))
    result = OnnxRunner.open(model).run(data)
    np.testing.assert_array_equal(result["y"], np.zeros((4, 4)))
    assert result["e"].shape == (4, 0)
