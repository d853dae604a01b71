"""Dims by the rules of operators, held against what the runtime gives at many sizes."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import Fail

from onnxtool.model.operators.shape_inference import infer_shapes
from onnxtool.model.operators.symbolic_dims import evaluate
from onnxtool.model.operators.value_facts import known, sizes_of
from onnxtool.runtime.runner import OnnxRunner

FACTORS = (0.5, 0.3, 1.0, 1.7, 2.0, 3.0)
SIZED = {
    **{
        f"a slice from {start} to {end} by {step}": f"y = Slice(x, s{start}, s{end}, axes, s{step})".replace("-", "m")
        for start, end, step in itertools.product((0, 1, 5, -1, -4), (0, 3, 99, -1, -6, 2**40), (1, 3))
    },
    **{
        f"a pool of {kernel} by {stride}, padded by {pad}, {mode}": f"y = MaxPool<kernel_shape = [{kernel}], "
        f"strides = [{stride}], pads = [{pad}, {pad}], ceil_mode = {int(mode == 'ceil')}>(x)"
        for kernel, stride, pad, mode in itertools.product((2, 3), (1, 2, 3), (0, 1), ("floor", "ceil"))
    },
    **{f"resized by {factor}": f'y = Resize(x, "", f{place})' for place, factor in enumerate(FACTORS)},
    "padded": "y = Pad(x, pads)",
    "padded to a multiple of 5": "n = Shape<start = 2>(x) r = Mod(n, s5) l = Sub(s5, r) m = Mod(l, s5)"
    " pads = Concat<axis = 0>(s0, s0, s0, s0, s0, m) y = Pad(x, pads)".replace("pads", "more"),
    "resized to a size": 'y = Resize(x, "", "", sizes)',
}


@pytest.mark.parametrize("name", SIZED)
def test_the_rules_give_the_dims_that_the_runtime_gives_at_all_sizes(name: str) -> None:
    numbers = {f"s{n}".replace("-", "m"): np.array([n]) for n in (0, 1, 3, 5, 99, -1, -4, -6, 2**40)}
    numbers |= {f"f{k}": np.float32([1, 1, factor]) for k, factor in enumerate(FACTORS)}
    numbers |= {"axes": np.array([2]), "sizes": np.array([1, 1, 7]), "pads": np.array([0, 0, 1, 0, 0, 2])}
    text = f'<ir_version: 9, opset_import: ["" : 20]> g (float[1, 1, n] x) => (float[1, 1, m] y) {{ {SIZED[name]} }}'
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(array, n) for n, array in numbers.items())
    model, session = ir.from_proto(proto), OnnxRunner.open(proto).session
    infer_shapes(model)
    (*_, size), run = known(sizes_of(model.graph.outputs[0])), 0
    for n in range(3, 26):  # windows are no larger than the data
        try:
            given = session.run(None, {"x": np.zeros((1, 1, n), np.float32)})[0].shape[-1]
        except Fail:  # resized to nothing
            continue
        assert evaluate(size, {"n": n}) == given, n
        run += 1
    assert run > 18


@pytest.mark.parametrize("factor", [np.inf, np.nan, -2.0, 0.0])
def test_a_factor_that_no_size_has_tells_nothing(factor: float) -> None:
    text = """<ir_version: 9, opset_import: ["" : 20]> g (float[1, n] x) => (float[1, m] y) { y = Resize(x, "", f) }"""
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.float32([1, factor]), "f"))
    model = ir.from_proto(proto)
    infer_shapes(model)
    assert str(known(sizes_of(model.graph.outputs[0]))[1]).startswith("?")
