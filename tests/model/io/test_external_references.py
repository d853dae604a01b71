"""Weights in external data that are too small for a data file of ours: nothing may point into the source's any more."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxtool.model import io

node = helper.make_node
RANDOM = np.random.default_rng(0)


def _floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def _weights(**arrays: np.ndarray) -> list[onnx.TensorProto]:
    return [numpy_helper.from_array(array, name) for name, array in arrays.items()]


@pytest.fixture(scope="module")
def proto() -> onnx.ModelProto:
    """Large and small weights in the main graph, in branches and in Constant nodes."""
    inner = {"large_inside": _floats(64, 64), "small_inside": _floats(3)}

    def branch(name: str) -> onnx.GraphProto:
        nodes = [
            node("MatMul", ["t", "large_inside"], ["p"]),
            node("ReduceSum", ["small_inside"], ["o"], keepdims=0),
            node("Add", ["p", "o"], ["res"]),
        ]
        output = helper.make_tensor_value_info("res", TensorProto.FLOAT, None)
        return helper.make_graph(nodes, name, [], [output], _weights(**inner))

    constants = {"c0": _floats(4), "c1": _floats(600)}
    sums = [node("ReduceSum", [name], [f"{name}_sum"], keepdims=0) for name in (*constants, "small")]
    nodes = [
        node("Mul", ["x", "row"], ["t"]),
        *(node("Constant", [], [n], value=numpy_helper.from_array(a, n)) for n, a in constants.items()),
        *sums,
        node("MatMul", ["t", "large"], ["u"]),
        node("If", ["condition"], ["v"], then_branch=branch("a"), else_branch=branch("b")),
        node("Sum", ["u", "v", *(n.output[0] for n in sums)], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64]),
            helper.make_tensor_value_info("condition", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 64])],
        _weights(large=_floats(64, 64), row=_floats(64), small=_floats(8)),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.parametrize("name", ["weights.bin", "m.onnx.data"])  # the second is what the written file calls its own
@pytest.mark.parametrize("external", [True, False, None])
@pytest.mark.parametrize("in_place", [True, False])
def test_what_is_written_stands_alone(
    proto: onnx.ModelProto, name: str, external: bool | None, in_place: bool, tmp_path: Path
) -> None:
    feeds = {"x": _floats(2, 64), "condition": np.array(True)}
    (expected,) = ort.InferenceSession(proto.SerializeToString()).run(None, feeds)
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    copy = onnx.ModelProto.FromString(proto.SerializeToString())
    onnx.save(
        copy, source / "m.onnx", save_as_external_data=True, location=name, size_threshold=0, convert_attribute=True
    )
    io.save(io.load(source / "m.onnx", in_place=in_place), target / "m.onnx", external=external)
    for file in source.iterdir():
        file.unlink()
    (found,) = ort.InferenceSession(str(target / "m.onnx")).run(None, feeds)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert {p.name for p in target.iterdir()} == ({"m.onnx", "m.onnx.data"} if external else {"m.onnx"})
