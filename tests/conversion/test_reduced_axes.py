"""Reductions give the shape that ONNX says where there is no row, too."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxtool.conversion.reduced_axes import count_axes_from_first
from onnxtool.runtime.runner import OnnxRunner

HEAD = '<ir_version: 8, opset_import: ["" : {}]> g (float[n, 3, 4] x) => ({} y) <int64[2] last = {{-1, 1}}> {{ {} }}'
REDUCTIONS = {
    "an input": (20, "float", "y = ReduceMean <keepdims = 0> (x, last)", (0,)),
    "an input that two share": (20, "float", "m = ReduceMax(x, last) k = ReduceMin(x, last) y = Add(m, k)", (0, 1, 1)),
    "an attribute": (11, "float", "y = ReduceL2 <axes = [-1], keepdims = 0> (x)", (0, 3)),
    "a place": (20, "int64", "y = ArgMax <axis = -2, keepdims = 0> (x)", (0, 4)),
    "none": (20, "float", "y = ReduceSum <keepdims = 0> (x)", ()),
    "one that does nothing": (20, "float", "y = ReduceSum <noop_with_empty_axes = 1> (x)", (0, 3, 4)),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_an_empty_batch_is_reduced(name: str) -> None:
    opset, kind, node, shape = REDUCTIONS[name]
    model = ir.from_proto(onnx.parser.parse_model(HEAD.format(opset, kind, node)))
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    before = OnnxRunner.open(model).run({"x": x})["y"]
    count_axes_from_first(model)
    runner = OnnxRunner.open(model)
    assert runner.run({"x": x[:0]})["y"].shape == shape
    np.testing.assert_array_equal(runner.run({"x": x})["y"], before)


def test_what_is_reduced_in_a_branch_and_of_an_unknown_rank() -> None:
    text = """<ir_version: 8, opset_import: ["" : 20]> g (float[n, 4] x, float[] z, bool c) => (float[m] y, float w)
        <int64[1] last = {-1}> {
        y = If(c) <then_branch = t () => (float[m] o) { o = ReduceSum <keepdims = 0> (x, last) },
                   else_branch = e () => (float[m] p) { p = ReduceMax <keepdims = 0> (x, last) }>
        s = Shape(z) k = Reshape(x, s) w = ReduceSum(k, last) }"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    count_axes_from_first(model)
    axes = [n.inputs[1] for n in model.graph.all_nodes() if n.op_type.startswith("Reduce")]
    found = [a.const_value.numpy().tolist() for a in axes if a is not None and a.const_value is not None]
    assert found == [[1], [1], [-1]]
