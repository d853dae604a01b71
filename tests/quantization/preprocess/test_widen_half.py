"""float16 models in float32, against the runtime's own answers of the float16 model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxtool import quantize
from onnxtool.model import io
from onnxtool.quantization.preprocess.prepare import prepare
from onnxtool.quantization.preprocess.widen_half import has_half, widen_half
from onnxtool.runtime.runner import OnnxRunner

HALF, SINGLE = TensorProto.FLOAT16, TensorProto.FLOAT
node = helper.make_node


def half_model(
    nodes: list[onnx.NodeProto], arrays: dict[str, np.ndarray], outputs: dict[str, int], shape: list[int | None]
) -> onnx.ModelProto:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "half",
        [info("x", HALF, shape)],
        [info(name, dtype, None) for name, dtype in outputs.items()],
        [numpy_helper.from_array(a, name) for name, a in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def branches() -> list[onnx.NodeProto]:
    info = helper.make_tensor_value_info
    two = numpy_helper.from_array(np.float16(2).reshape(1), "two")
    then = helper.make_graph([node("Mul", ["h", "two"], ["t"])], "then", [], [info("t", HALF, None)], [two])
    other = helper.make_graph(
        [node("Constant", [], ["c"], value=numpy_helper.from_array(np.float16([5]))), node("Add", ["h", "c"], ["e"])],
        "other", [], [info("e", HALF, None)],
    )  # fmt: skip
    return [
        node("MatMul", ["x", "w"], ["h"]),
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Cast", ["s"], ["s32"], to=SINGLE),
        node("Greater", ["s32", "zero"], ["yes"]),
        node("If", ["yes"], ["y"], then_branch=then, else_branch=other),
    ]


WEIGHT = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float16)
CASES = {
    "weights": ([node("MatMul", ["x", "w"], ["h"]), node("Relu", ["h"], ["y"])], {"y": HALF}),
    "two outputs, one of float32": (
        [node("MatMul", ["x", "w"], ["y"]), node("Cast", ["y"], ["z"], to=SINGLE)],
        {"y": HALF, "z": SINGLE},
    ),
    "the input handed on": (
        [node("MatMul", ["x", "w"], ["y"]), node("Identity", ["x"], ["z"])],
        {"y": HALF, "z": HALF},
    ),
    "casts in between": (
        [
            node("Cast", ["x"], ["a"], to=SINGLE),
            node("Softmax", ["a"], ["b"]),
            node("Cast", ["b"], ["c"], to=HALF),
            node("MatMul", ["c", "w"], ["y"]),
        ],
        {"y": HALF},
    ),
    "filled": (
        [
            node("Shape", ["x"], ["s"]),
            node("ConstantOfShape", ["s"], ["f"], value=numpy_helper.from_array(np.float16([3]))),
            node("Add", ["x", "f"], ["h"]),
            node("MatMul", ["h", "w"], ["y"]),
        ],
        {"y": HALF},
    ),
    "branches": (branches(), {"y": HALF}),
    "a fixed output": (
        [node("MatMul", ["x", "w"], ["y"]), node("Identity", ["w"], ["z"])],
        {"y": HALF, "z": HALF},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_computes_in_float32_between_inputs_and_outputs_of_float16(case: str) -> None:
    nodes, outputs = CASES[case]
    proto = half_model(nodes, {"w": WEIGHT, "zero": np.zeros((), np.float32)}, outputs, [None, 8])
    model = io.from_proto(proto)
    wide = prepare(model)
    values = [v for g in wide.graphs() for n in g if n.op_type != "Cast" for v in (*n.inputs, *n.outputs)]
    assert values and not any(v is not None and v.dtype == ir.DataType.FLOAT16 for v in values)
    before, after = OnnxRunner.open(model), OnnxRunner.open(wide)
    assert [(s.name, s.dtype) for s in after.inputs] == [("x", np.float16)]
    for sign in (1, -1):
        feeds = {"x": sign * np.random.default_rng(1).random((4, 8)).astype(np.float16)}
        expected, found = before.run(feeds), after.run(feeds)
        assert {k: v.dtype for k, v in found.items()} == {k: v.dtype for k, v in expected.items()}
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=4e-3, atol=4e-3)


def test_float_models_are_left_alone() -> None:
    nodes = [node("MatMul", ["x", "w"], ["y"])]
    half = io.from_proto(half_model(nodes, {"w": WEIGHT}, {"y": HALF}, [None, 8]))
    assert has_half(half)
    assert [v.dtype for v in prepare(half, "none", half=True).graph.initializers.values()] == [ir.DataType.FLOAT16]
    single = onnx.ModelProto()
    single.CopyFrom(half_model(nodes, {"w": WEIGHT.astype(np.float32)}, {"y": SINGLE}, [None, 8]))
    single.graph.input[0].type.tensor_type.elem_type = SINGLE
    model = io.from_proto(single)
    assert not has_half(model)
    widen_half(model)
    assert [n.op_type for n in model.graph] == ["MatMul"]


def test_half_inside_a_branch_is_seen() -> None:
    body = helper.make_graph(
        [node("Cast", ["x"], ["b"], to=HALF), node("Cast", ["b"], ["r"], to=SINGLE)],
        "body", [], [helper.make_tensor_value_info("r", SINGLE, None)],
    )  # fmt: skip
    nodes = [node("If", ["yes"], ["y"], then_branch=body, else_branch=body)]
    proto = half_model(nodes, {"yes": np.array(True)}, {"y": SINGLE}, [None, 8])
    proto.graph.input[0].type.tensor_type.elem_type = SINGLE
    model = io.from_proto(onnx.shape_inference.infer_shapes(proto))
    assert has_half(model)


@pytest.mark.parametrize("mode", ["static", "dynamic", "int8"])
def test_quantizes_a_float16_model_and_stores_what_stays_float_in_16_bits(mode: str, tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    table = random.standard_normal((64, 64)).astype(np.float16)
    conv = random.standard_normal((64, 1, 1, 64)).astype(np.float16)
    nodes = [
        node("MatMul", ["x", "t"], ["a"]),
        node("Relu", ["a"], ["b"]),
        node("ConvTranspose", ["b4", "c"], ["d"]),
    ]
    nodes = [*nodes[:2], node("Reshape", ["b", "to4"], ["b4"]), nodes[2], node("Flatten", ["d"], ["y"])]
    arrays = {"t": table, "c": conv, "to4": np.array([-1, 64, 1, 1])}
    model = half_model(nodes, arrays, {"y": HALF}, [None, 64])
    data = {"x": random.standard_normal((32, 64)).astype(np.float16)}
    target = tmp_path / "out.onnx"
    report = quantize(model, target, mode=mode, data=data)
    written = onnx.load(target)
    stored = {i.name: i.data_type for i in written.graph.initializer}
    assert [t for t in stored.values() if t == HALF], "the weight of the ConvTranspose, which has no integer kernel"
    assert not [n for n, t in stored.items() if t == SINGLE and n.startswith("c")]
    found = report.fidelity
    assert found is not None and found.sqnr_db > 25
    assert written.graph.input[0].type.tensor_type.elem_type == HALF
    assert written.graph.output[0].type.tensor_type.elem_type == HALF
