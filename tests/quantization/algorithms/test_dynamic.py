"""Dynamic quantization against numpy, and the kernels that it ends in."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from onnxtool.errors import UnsupportedError, UsageError
from onnxtool.model import io
from onnxtool.quantization.apply_recipe import apply
from onnxtool.quantization.preprocess.prepare import prepare
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.runtime.runner import OnnxRunner
from tests.quantization.kernels import count_kernels
from tests.quantization.quant_models import build, weights

DYNAMIC = QuantRecipe(mode="dynamic")
RANDOM = np.random.default_rng(3)


def quantized(proto: onnx.ModelProto, recipe: QuantRecipe = DYNAMIC, level: str = "extended") -> onnx.ModelProto:
    return io.to_proto(apply(prepare(io.from_proto(proto), level), recipe))


def by_hand(x: np.ndarray, w: np.ndarray, per_channel: bool) -> np.ndarray:
    """Dynamic u8 activations times symmetric s8 weights, in numpy."""
    low, high = min(x.min(), 0), max(x.max(), 0)
    scale = np.float32((high - low) / 255)
    zero = np.clip(np.rint(-low / scale), 0, 255)
    xq = np.clip(np.rint(x / scale) + zero, 0, 255) - zero
    ws = np.abs(w).max(axis=0 if per_channel else None) / 127
    return xq @ np.rint(w / ws) * (scale * ws)


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("op", ["MatMul", "Gemm", "Gemm transposed"])
def test_matches_the_arithmetic_in_numpy(op: str, per_channel: bool) -> None:
    w = weights(32, 16)
    bias = weights(16)
    if op == "MatMul":
        nodes, arrays = [helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": w}
    else:
        flipped = op.endswith("transposed")
        nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=int(flipped), beta=0.5)]
        arrays = {"w": w.T.copy() if flipped else w, "b": bias}
    proto = build(nodes, arrays, {"x": ["n", 32]}, {"y": ["n", 16]})
    x = RANDOM.standard_normal((6, 32)).astype(np.float32)
    got = OnnxRunner.open(quantized(proto, QuantRecipe(mode="dynamic", per_channel=per_channel))).run({"x": x})["y"]
    expected = by_hand(x, w, per_channel) + (0 if op == "MatMul" else 0.5 * bias)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_uses_standard_operators_that_the_runtime_fuses(transformer: onnx.ModelProto) -> None:
    model = quantized(transformer, level="none")  # the optimizer would join the projections
    assert {n.domain for n in model.graph.node} == {""}
    kernels = count_kernels(io.from_proto(model))
    assert kernels["DynamicQuantizeMatMul"] + kernels.get("MatMulIntegerToFloat", 0) == 6
    assert kernels["MatMul"] + kernels.get("FusedMatMul", 0) == 2
    quantizers = [n for n in model.graph.node if n.op_type == "DynamicQuantizeLinear"]
    assert len(quantizers) == 4, "projections of one tensor share its quantization"


def test_stays_near_float_and_agrees_with_the_reference_evaluator(
    transformer: onnx.ModelProto, transformer_data: dict[str, np.ndarray]
) -> None:
    feeds = {"x": transformer_data["x"][:2]}
    model = quantized(transformer)
    expected = OnnxRunner.open(transformer).run(feeds)["y"]
    got = OnnxRunner.open(model).run(feeds)["y"]
    np.testing.assert_allclose(got, ReferenceEvaluator(model).run(None, feeds)[0], rtol=0.02, atol=0.02)
    noise = ((got - expected) ** 2).sum() / (expected**2).sum()
    assert noise < 1e-3


def test_conv_is_refused_with_the_reason(residual: onnx.ModelProto) -> None:
    with pytest.raises(UsageError, match="ConvInteger"):
        quantized(residual, QuantRecipe(mode="dynamic", op_types=("Conv",)))


def test_a_model_without_anything_to_quantize_is_refused() -> None:
    proto = build([helper.make_node("Relu", ["x"], ["y"])], {}, {"x": [2]}, {"y": [2]})
    with pytest.raises(UnsupportedError, match="no MatMul or Gemm"):
        quantized(proto)


def test_outputs_keep_their_names() -> None:
    proto = build(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": weights(4, 4)}, {"x": ["n", 4]}, {"y": ["n", 4]}
    )
    assert [o.name for o in quantized(proto).graph.output] == ["y"]


def test_a_static_product_of_dynamic_results_has_names_of_its_own() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["q"], name="left"),
        helper.make_node("MatMul", ["x", "v"], ["k"], name="right"),
        helper.make_node("MatMul", ["q", "k"], ["y"], name="product"),
    ]
    proto = build(nodes, {"w": weights(8, 8), "v": weights(8, 8)}, {"x": ["n", 8, 8]}, {"y": ["n", 8, 8]})
    ranges = {"q": (-8.0, 8.0), "k": (-8.0, 8.0), "y": (-50.0, 50.0), "x": (-4.0, 4.0)}
    plan = {"left": "dynamic", "right": "dynamic", "product": "static"}
    made = quantized(proto, QuantRecipe(plan=plan, ranges=ranges), level="none")  # type: ignore[arg-type]
    names = [i.name for i in made.graph.initializer] + [o for n in made.graph.node for o in n.output]
    assert len(names) == len(set(names))
    x = RANDOM.standard_normal((2, 8, 8)).astype(np.float32)
    expected = OnnxRunner.open(proto).run({"x": x})["y"]
    np.testing.assert_allclose(OnnxRunner.open(made).run({"x": x})["y"], expected, atol=1.5)
