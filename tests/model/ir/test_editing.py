"""Weights held as arrays, functions in place of their calls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from onnxtool.model.ir.editing import hold_arrays, inline_functions, release_mapped
from onnxtool.model.ir.queries import constant_array, is_constant


def model() -> ir.Model:
    info = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in ("x", "given", "y")]
    nodes = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.array([3, 4], np.float32))),
        helper.make_node("Sum", ["x", "w", "given", "c"], ["y"]),
    ]
    tensors = [
        numpy_helper.from_array(np.array([1, 2], np.float32), "w"),
        numpy_helper.from_array(np.array([5, 6], np.float32), "given"),
        numpy_helper.from_array(np.array(["a"]), "text"),
        helper.make_tensor("half", onnx.TensorProto.BFLOAT16, [1], [1.5]),
    ]
    return ir.from_proto(helper.make_model(helper.make_graph(nodes, "g", info[:2], info[2:], tensors)))


def test_arrays_are_held_so_that_reading_copies_nothing() -> None:
    found = model()
    before = {n: v.const_value.numpy().tolist() for n, v in found.graph.initializers.items() if v.const_value}
    hold_arrays(found)
    held = {n: v.const_value for n, v in found.graph.initializers.items()}
    assert held["w"] is not None and np.shares_memory(held["w"].numpy(), held["w"].numpy())
    assert {n: t.numpy().tolist() for n, t in held.items() if t} == before
    assert held["half"] is not None and held["half"].dtype == ir.DataType.BFLOAT16


def test_what_is_constant_has_an_array() -> None:
    found = model()
    for value in (
        *found.graph.inputs,
        *found.graph.initializers.values(),
        *(v for n in found.graph for v in n.outputs),
    ):
        assert is_constant(value) == (constant_array(value) is not None), value.name
    assert not is_constant(None) and is_constant(found.graph.initializers["w"])
    assert not is_constant(found.graph.initializers["given"]), "a caller may give another"


def test_what_was_read_of_a_data_file_is_unmapped_and_read_again(tmp_path: Path) -> None:
    weight = np.arange(2048, dtype=np.float32).reshape(32, 64)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
        [helper.make_tensor_value_info("x", 1, ["n", 32])], [helper.make_tensor_value_info("y", 1, ["n", 64])],
        [numpy_helper.from_array(weight, "w")],
    )  # fmt: skip
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx", save_as_external_data=True, location="m.data")
    model = ir.load(tmp_path / "m.onnx")
    tensor = model.graph.initializers["w"].const_value
    assert isinstance(tensor, ir.ExternalTensor)
    assert tensor.numpy().sum() == weight.sum() and tensor.raw is not None
    release_mapped(model)
    assert tensor.raw is None and np.array_equal(tensor.numpy(), weight)
    held = tensor.numpy()
    release_mapped(model)
    assert np.array_equal(held, weight), "what somebody still has stays"


@pytest.mark.parametrize(("versions", "inlined"), [((20, 20), True), ((20, 19), False)])
def test_functions_that_mean_other_operators_stay(versions: tuple[int, int], inlined: bool) -> None:
    text = f"""<ir_version: 9, opset_import: ["" : {versions[0]}, "own" : 1]>
    g (float[n, 4] x) => (float[n, 4] y) {{ y = own.F(x) }}
    <domain: "own", opset_import: ["" : {versions[1]}]> F (a) => (b) {{ b = Relu(a) }}"""
    model = ir.from_onnx_text(text)
    assert inline_functions(model) is inlined
    assert [n.op_type for n in model.graph] == (["Relu"] if inlined else ["F"])
    assert bool(model.functions) is not inlined


def test_functions_in_a_circle_stay() -> None:
    text = """<ir_version: 9, opset_import: ["" : 20, "own" : 1]>
    g (float[n, 4] x) => (float[n, 4] y) { y = own.F(x) }
    <domain: "own", opset_import: ["" : 20, "own" : 1]> F (a) => (b) { b = own.G(a) }
    <domain: "own", opset_import: ["" : 20, "own" : 1]> G (a) => (b) { b = own.F(a) }"""
    model = ir.from_onnx_text(text)
    assert not inline_functions(model)
    assert [n.op_type for n in model.graph] == ["F"] and len(model.functions) == 2
