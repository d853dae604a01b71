"""Our arithmetic against the ONNX reference evaluator's QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from onnxtool.quantization.algorithms.quant_math import activation_params, dequantize, quantize_weight

RANDOM = np.random.default_rng(0)


def reference(op: str, arrays: list[np.ndarray], axis: int | None) -> np.ndarray:
    names = ["a", "scale", "zero"]
    node = helper.make_node(op, names, ["b"], **({} if axis is None else {"axis": axis}))
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in zip(names, arrays, strict=True)
    ]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("b", TensorProto.UNDEFINED, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    return ReferenceEvaluator(model).run(None, dict(zip(names, arrays, strict=True)))[0]


@pytest.mark.parametrize(("kind", "axis"), [("s8", None), ("s8", 0), ("s8", 1), ("u8", None), ("u8", 1)])
def test_weights_match_the_reference_evaluator(kind: str, axis: int | None) -> None:
    weight = (RANDOM.standard_normal((5, 7, 3)) * RANDOM.uniform(0.01, 4, (5, 7, 1))).astype(np.float32)
    integers, params = quantize_weight(weight, axis, kind)  # type: ignore[arg-type]
    expected = reference("QuantizeLinear", [weight, params.scale, params.zero_point], axis)
    np.testing.assert_array_equal(integers, expected)
    restored = reference("DequantizeLinear", [integers, params.scale, params.zero_point], axis)
    np.testing.assert_allclose(dequantize(integers, params), restored, rtol=1e-6)
    step = params.scale if axis is None else params.scale.reshape([-1 if i == axis else 1 for i in range(3)])
    assert (np.abs(restored - weight) <= step * 0.5001).all()


def test_weights_use_the_whole_symmetric_range_of_each_channel() -> None:
    weight = RANDOM.standard_normal((4, 30)).astype(np.float32)
    integers, _ = quantize_weight(weight, 0)
    assert (np.abs(integers.astype(int)).max(axis=1) == 127).all()
    seven_bits, _ = quantize_weight(weight, 0, reduced=True)
    assert (np.abs(seven_bits.astype(int)).max(axis=1) == 63).all()


def test_an_all_zero_channel_stays_zero() -> None:
    weight = RANDOM.standard_normal((3, 8)).astype(np.float32)
    weight[1] = 0
    integers, params = quantize_weight(weight, 0)
    assert (integers[1] == 0).all()
    assert np.isfinite(params.scale).all()
    assert (params.scale > 0).all()


@pytest.mark.parametrize("kind", ["u8", "s8"])
@pytest.mark.parametrize(("low", "high"), [(-1.0, 3.0), (0.0, 6.0), (-5.0, 0.0), (2.0, 9.0), (0.0, 0.0)])
def test_activation_ranges_hold_zero_exactly_and_cover_both_ends(kind: str, low: float, high: float) -> None:
    params = activation_params(low, high, kind)  # type: ignore[arg-type]
    ends = np.array([min(low, 0), 0, max(high, 0)], np.float32)
    integers = reference("QuantizeLinear", [ends, params.scale, params.zero_point], None)
    restored = reference("DequantizeLinear", [integers, params.scale, params.zero_point], None)
    assert restored[1] == 0
    assert np.abs(restored - ends).max() <= float(params.scale) * 0.51


def test_a_range_above_zero_starts_at_the_lowest_integer() -> None:
    # so that saturation does what Relu does
    assert int(activation_params(0, 4, "u8").zero_point) == 0
    assert int(activation_params(0, 4, "s8").zero_point) == -128
