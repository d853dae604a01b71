"""Small models for quantizing, each written with onnx.helper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxtool.model.operators.table import lookup

RANDOM = np.random.default_rng(7)


def weights(*shape: int, scale: float = 1.0) -> np.ndarray:
    """Random float32 weights of about unit gain."""
    fan = int(np.prod(shape[1:])) if len(shape) > 1 else 1
    return (RANDOM.standard_normal(shape) * scale / np.sqrt(fan)).astype(np.float32)


def build(
    nodes: Sequence[onnx.NodeProto],
    arrays: Mapping[str, np.ndarray],
    inputs: Mapping[str, Sequence[Any]],
    outputs: Mapping[str, Sequence[Any]],
    opset: int = 20,
) -> onnx.ModelProto:
    """A checked float32 model."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs.items()],
        [numpy_helper.from_array(a, n) for n, a in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def residual_proto() -> onnx.ModelProto:
    """Conv-Relu, a residual block, MaxPool, Concat of two branches, pooling and a Gemm: what a CNN is made of."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c0"], pads=[1, 1, 1, 1]),
        node("Relu", ["c0"], ["r0"]),
        node("Conv", ["r0", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], ["r1"]),
        node("Conv", ["r1", "w2", "b2"], ["c2"], pads=[1, 1, 1, 1]),
        node("Add", ["c2", "r0"], ["a2"]),
        node("Relu", ["a2"], ["r2"]),
        node("MaxPool", ["r2"], ["p2"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p2", "w3", "b3"], ["c3"]),
        node("Clip", ["c3", "zero", "six"], ["r3"]),
        node("Conv", ["p2", "w4", "b4"], ["c4"]),
        node("Concat", ["r3", "c4"], ["k"], axis=1),
        node("Conv", ["k", "w5"], ["c5"], pads=[1, 1, 1, 1]),
        node("Relu", ["c5"], ["r5"]),
        node("GlobalAveragePool", ["r5"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "w6", "b6"], ["y"], transB=1),
    ]
    arrays = {
        "w0": weights(16, 3, 3, 3),
        "w1": weights(16, 16, 3, 3),
        "w2": weights(16, 16, 3, 3),
        "w3": weights(8, 16, 1, 1),
        "w4": weights(8, 16, 1, 1),
        "w5": weights(24, 16, 3, 3),
        "w6": weights(10, 24),
        **{f"b{i}": weights(n) * 0.1 for i, n in enumerate((16, 16, 16, 8, 8))},
        "b6": weights(10) * 0.1,
        "zero": np.float32(0),
        "six": np.float32(6),
    }
    return build(nodes, arrays, {"x": ["batch", 3, 16, 16]}, {"y": ["batch", 10]})


def transformer_proto() -> onnx.ModelProto:
    """LayerNorm, three projections of one tensor, attention, residual, and an MLP with Relu."""
    node = helper.make_node
    nodes = [
        node("LayerNormalization", ["x", "g", "h"], ["n"]),
        *(node("MatMul", ["n", f"w{k}"], [f"{k}0"]) for k in "qkv"),
        *(node("Add", [f"{k}0", f"b{k}"], [k]) for k in "qkv"),
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["scores"]),
        node("Softmax", ["scores"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["mixed"]),
        node("MatMul", ["mixed", "wo"], ["o"]),
        node("Add", ["x", "o"], ["s"]),
        node("LayerNormalization", ["s", "g", "h"], ["m"]),
        node("MatMul", ["m", "wu"], ["u0"]),
        node("Add", ["u0", "bu"], ["u1"]),
        node("Relu", ["u1"], ["u"]),
        node("MatMul", ["u", "wd"], ["d"]),
        node("Add", ["s", "d"], ["y"]),
    ]
    arrays = {f"w{k}": weights(32, 32) for k in "qkvo"} | {f"b{k}": weights(32) * 0.1 for k in "qkv"}
    arrays |= {"wu": weights(32, 64), "wd": weights(64, 32), "bu": weights(64) * 0.1}
    arrays |= {"g": np.ones(32, np.float32), "h": np.zeros(32, np.float32)}
    return build(nodes, arrays, {"x": ["batch", "length", 32]}, {"y": ["batch", "length", 32]})


def integer_kernels(kernels: Mapping[str, int]) -> int:
    """Number of compute nodes that run on integers."""
    return sum(number for name, number in kernels.items() if _multiplies_integers(name))


def _multiplies_integers(name: str) -> bool:
    rows = (lookup(name), lookup(name, "com.microsoft"))  # counted without their domain
    return any(row.integer == "computes" and row.accumulates for row in rows)
