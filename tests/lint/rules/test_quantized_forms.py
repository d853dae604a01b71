"""What TensorRT and QNN take of a quantized model: each demand fires alone, none on a model that meets all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxtool.lint.check import check

RANDOM = np.random.default_rng(5)


def pair(value: str, scale: str, zero: str) -> list[onnx.NodeProto]:
    return [
        helper.make_node("QuantizeLinear", [value, scale, zero], [f"{value}_q"], name=f"{value}_Q"),
        helper.make_node("DequantizeLinear", [f"{value}_q", scale, zero], [f"{value}_d"], name=f"{value}_DQ"),
    ]


def integer_model(
    *,
    kind: Any = np.int8,
    zero: int = 0,
    bias: bool = False,
    columns: int = 1,
    batch: int | str = 4,
    product: str = "MatMul",
    after: str = "",
) -> onnx.ModelProto:
    """x -> Q/DQ -> MatMul or Conv -> Q/DQ, with integer weights, and optionally an integer bias."""
    conv = product == "Conv"
    shape: list[Any] = [batch, 8, 5, 5] if conv else [batch, 8]
    weight = RANDOM.integers(-127, 128, (8, 8, 1, 1) if conv else (8, 8)).astype(np.int8)
    scales = np.full((columns,) if columns > 1 else (), 0.01, np.float32)
    arrays = {
        "s": np.array(0.05, np.float32),
        "z": np.array(zero, kind),
        "w": weight,
        "ws": scales,
        "wz": np.zeros(scales.shape, np.int8),
        "b": RANDOM.integers(-9, 9, 8).astype(np.int32),
        "bs": np.array(0.0005, np.float32),
    }
    split = {} if columns == 1 else {"axis": 0 if conv else 1}
    operands = ["x_d", "w_d"] + (["b_d"] if bias else [])
    nodes = [
        *pair("x", "s", "z"),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["w_d"], name="w_DQ", **split),
        *([helper.make_node("DequantizeLinear", ["b", "bs"], ["b_d"], name="b_DQ")] if bias else []),
        helper.make_node("Gemm" if bias and not conv else product, operands, ["h"], name="product"),
        *([helper.make_node(after, ["h"], ["a"], name="after")] if after else []),
        *pair("a" if after else "h", "s", "z"),
    ]
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("a_d" if after else "h_d", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items() if name in used],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def told(proto: onnx.ModelProto, rule: str, folder: Path) -> list[str]:
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    onnx.checker.check_model(proto)
    return [finding.message for finding in check(path, select=[rule]).findings]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (integer_model, None),
        (lambda: integer_model(columns=8), None),
        (lambda: integer_model(kind=np.uint8), "uint8"),
        (lambda: integer_model(kind=np.uint16), "uint16"),
        (lambda: integer_model(zero=3), "a zero point that is not 0"),
        (lambda: integer_model(bias=True), "a quantized bias"),
    ],
)
def test_tensorrt_takes_int8_about_zero_and_float_biases(
    made: Callable[[], onnx.ModelProto], expected: str | None, tmp_path: Path
) -> None:
    messages = told(made(), "OT208", tmp_path)
    assert messages == [] if expected is None else len(messages) == 1 and messages[0].startswith(expected), messages


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda: integer_model(kind=np.uint8, zero=128), None),
        (lambda: integer_model(kind=np.uint16), None),
        (lambda: integer_model(kind=np.uint8, bias=True), None),
        (lambda: integer_model(kind=np.uint8, after="Relu"), None),
        (lambda: integer_model(kind=np.uint8, product="Conv", columns=8), None),
        (integer_model, "activations of int8"),
        (lambda: integer_model(kind=np.uint8, batch="n"), "a dynamic shape: 1 node, the first x"),
        (lambda: integer_model(kind=np.uint8, columns=8), "weights with a scale for each channel"),
        (lambda: integer_model(kind=np.uint8, after="Softplus"), "operators that are not between Q/DQ pairs"),
    ],
)
def test_qnn_takes_fixed_shapes_and_every_operator_between_pairs(
    made: Callable[[], onnx.ModelProto], expected: str | None, tmp_path: Path
) -> None:
    messages = told(made(), "OT209", tmp_path)
    assert messages == [] if expected is None else len(messages) == 1 and messages[0].startswith(expected), messages


def test_a_zero_point_that_is_left_out_is_of_the_type_that_the_specification_gives(tmp_path: Path) -> None:
    proto = integer_model()
    for node in proto.graph.node:
        if node.name.startswith(("x_", "h_")):
            del node.input[2]
    assert told(proto, "OT208", tmp_path)[0].startswith("uint8")  # Q without a zero point writes uint8


def test_operators_that_are_integer_themselves_are_named_for_both(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [
            helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], name="dynamic"),
            helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], name="back"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    assert told(proto, "OT208", tmp_path)[0] == "an operator that TensorRT lacks: 1 node, the first dynamic"
    assert told(proto, "OT209", tmp_path)[0] == "an operator that QNN lacks: 1 node, the first dynamic"


def test_a_float_model_is_no_quantized_form_at_all(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Softplus", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    assert not told(proto, "OT208", tmp_path) and not told(proto, "OT209", tmp_path)
