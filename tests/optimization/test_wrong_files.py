"""Files that optimize once wrote wrong, one for each cause: what it writes now gives what the source gives."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onnxtool
import onnxtool.errors
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import EXACT

F, I64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
SWAP = """{
    s = Shape (x)
    first = Constant <value_ints = [0]> () second = Constant <value_ints = [1]> ()
    third = Constant <value_ints = [2]> ()
    b = Gather (s, first) h = Gather (s, second) w = Gather (s, third)
    turned = Concat <axis = 0> (b, w, h)
    r = Reshape (x, turned)
    y = Neg (r)
}"""


def saved(
    path: Path, body: str, inputs: list[Any], outputs: list[Any], weights: dict[str, np.ndarray] | None = None
) -> Path:
    """A model whose nodes are ONNX text, with inputs and outputs of any dim names."""
    inner = onnx.parser.parse_graph(f"g () => () {body}")
    constants = [numpy_helper.from_array(np.asarray(a), n) for n, a in (weights or {}).items()]
    values = [[helper.make_tensor_value_info(*v) for v in side] for side in (inputs, outputs)]
    graph = helper.make_graph(list(inner.node), "g", *values, constants)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def holds(path: Path, level: str, *draws: dict[str, np.ndarray]) -> onnx.ModelProto:
    """Optimize, and hold the result against the source on each of these feeds, to the last bit at basic."""
    out = path.with_name("out.onnx")
    assert onnxtool.optimize(path, out, level=level, bench=False).ok
    before, after = OnnxRunner.open(path, EXACT), OnnxRunner.open(out, EXACT)
    for feeds in draws:
        result = after.run(feeds)
        for name, expected in before.run(feeds).items():
            assert result[name].shape == expected.shape
            if level == "basic":
                assert result[name].tobytes() == expected.tobytes()
            else:
                np.testing.assert_allclose(result[name], expected, rtol=1e-4, atol=1e-6)
    return onnx.load(out)


@pytest.mark.parametrize("name", ["?", "None", "unk__1", "-1", "unknown", "size"])
def test_dims_of_one_name_that_differ_are_not_one_size(tmp_path: Path, name: str) -> None:
    path = saved(tmp_path / "m.onnx", SWAP, [("x", F, ["n", name, name])], [("y", F, None)])
    x = np.arange(2 * 5 * 7, dtype=np.float32).reshape(2, 5, 7)
    for level in ("basic", "extended", "all"):
        holds(path, level, {"x": x})


def test_without_a_proof_a_placeholder_is_not_believed_either(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx", SWAP, [("x", F, ["n", "?", "?"])], [("y", F, None)])
    onnxtool.optimize(path, tmp_path / "o.onnx", verify=False, bench=False)
    found = OnnxRunner.open(tmp_path / "o.onnx").run({"x": np.ones((1, 3, 4), np.float32)})["y"]
    assert found.shape == (1, 4, 3)


def test_a_size_above_255_does_not_fit_a_uint8(tmp_path: Path) -> None:
    body = """{
        s = Shape (x)  one = Constant <value_ints = [1]> ()  n = Gather (s, one)
        small = CastLike (n, byte)  back = Cast <to = 7> (small)  y = Cast <to = 1> (back)
    }"""
    path = saved(tmp_path / "m.onnx", body, [("x", F, [1, "n"])], [("y", F, None)], {"byte": np.zeros(1, np.uint8)})
    holds(path, "basic", {"x": np.ones((1, 300), np.float32)})


@pytest.mark.parametrize(("low", "high"), [(-2.0, -0.5), (-0.0, 6.0), (-3.0, -0.0), (-1.0, 6.0)])
def test_clip_then_relu_keeps_the_sign_of_zero(tmp_path: Path, low: float, high: float) -> None:
    weights = {"low": np.float32(low), "high": np.float32(high)}
    body = "{ c = Clip (x, low, high)  y = Relu (c) }"
    path = saved(tmp_path / "m.onnx", body, [("x", F, ["n"])], [("y", F, ["n"])], weights)
    x = np.float32([-0.0, 0.0, -3, 3, -1, 7, -0.0, -0.4])
    holds(path, "basic", {"x": x})


@pytest.mark.parametrize("level", ["basic", "extended", "all"])
def test_an_empty_batch_that_the_source_takes_is_not_refused(tmp_path: Path, level: str) -> None:
    body = """{
        s = Shape (x)  zero = Constant <value_ints = [0]> ()  b = Gather (s, zero)
        two = Constant <value_ints = [2]> ()  three = Constant <value_ints = [3]> ()
        h = Gather (s, two)  w = Gather (s, three)  hw = Mul (h, w)
        flat = Concat <axis = 0> (b, hw)
        r = Reshape (x, flat)
        u = Neg (r)  f = Flatten (x)  y = Abs (f)
    }"""
    inputs, outputs = [("x", F, ["n", 1, "h", "w"])], [("u", F, None), ("y", F, None)]
    path = saved(tmp_path / "m.onnx", body, inputs, outputs)
    holds(path, level, *({"x": np.ones((batch, 1, 3, 4), np.float32)} for batch in (0, 2)))


def test_a_product_over_an_empty_inner_dim_is_zero(tmp_path: Path) -> None:
    body = "{ t = Transpose <perm = [0, 2, 1]> (b)  y = MatMul (a, t) }"
    inputs = [("a", F, [2, 3, "k"]), ("b", F, [2, 4, "k"])]
    path = saved(tmp_path / "m.onnx", body, inputs, [("y", F, [2, 3, 4])])
    model = holds(path, "all", {"a": np.ones((2, 3, 0), np.float32), "b": np.ones((2, 4, 0), np.float32)})
    assert "FusedMatMul" not in [n.op_type for n in model.graph.node]


@pytest.mark.parametrize("operators", [("Relu",), ("Abs", "Relu", "Transpose"), ("Identity",), ("Mul",)])
def test_a_long_chain_is_walked_without_recursion(tmp_path: Path, operators: tuple[str, ...]) -> None:
    nodes, length = [], 400  # more than the limit of recursion leaves
    for i in range(length):
        kind = operators[i % len(operators)]
        nodes.append(helper.make_node(kind, [f"t{i}", "c"][: 2 if kind == "Mul" else 1], [f"t{i + 1}"]))
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("t0", F, ["n", 4])],
        [helper.make_tensor_value_info(f"t{length}", F, None)],
        [numpy_helper.from_array(np.float32(1.0), "c")] if "Mul" in operators else [],
    )
    path = tmp_path / "chain.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 350)
    try:
        assert onnxtool.optimize(path, tmp_path / "o.onnx", bench=False).ok
        assert onnxtool.compare(path, tmp_path / "o.onnx").ok
    finally:
        sys.setrecursionlimit(usual)


def test_more_dims_than_an_array_can_have_are_an_error_of_one_line(tmp_path: Path) -> None:
    body = "{ y = Relu (x) }"
    path = saved(tmp_path / "m.onnx", body, [("x", F, [1] * 100)], [("y", F, None)])
    with pytest.raises(onnxtool.errors.InputError, match="has 100 dims"):
        onnxtool.optimize(path, tmp_path / "o.onnx")


@pytest.mark.parametrize("how", ["large weights", "data", "draws in a loop", "dropout"])
def test_one_name_is_not_believed_where_other_probes_are_off(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, weights, settings = SWAP, {}, {}
    if how == "large weights":
        monkeypatch.setattr("onnxtool.optimization.equivalence.WORTHWHILE", 0)
    elif how == "data":
        settings["data"] = {"x": np.ones((1, 3, 6, 6), np.float32)[0]}
    elif how == "dropout":
        body = body.replace("y = Neg (r)", "d = Neg (r) off = Identity (false) y = Dropout (d, half, off)")
        weights = {"half": np.float32(0.5), "false": np.array(False)}
    else:
        loop = """noise = Loop (two, true) <body = turn (int64 i, bool c) => (bool again, float[3] drawn) {
            again = Identity (c) drawn = RandomNormal <shape = [3]> ()
        }>  y = Neg (r)"""
        body, weights = body.replace("y = Neg (r)", loop), {"two": np.int64(2), "true": np.array(True)}
    outputs = [("y", F, None)] + [("noise", F, None)] * (how == "draws in a loop")
    path = saved(tmp_path / "m.onnx", body, [("x", F, ["n", "size", "size"])], outputs, weights)
    out = tmp_path / "out.onnx"
    report = onnxtool.optimize(path, out, bench=False, **settings)
    assert "Reshape" in report.after.operators
    x = np.arange(2 * 5 * 7, dtype=np.float32).reshape(2, 5, 7)
    feeds = {"x": x}
    expected, actual = (OnnxRunner.open(m, EXACT).run(feeds)["y"] for m in (path, out))
    np.testing.assert_array_equal(actual, expected)


def test_an_output_that_came_through_an_identity_keeps_what_the_file_says_of_it(tmp_path: Path) -> None:
    body = "{ a = Relu (x)  y = Identity (a) }"
    path = saved(tmp_path / "m.onnx", body, [("x", F, ["n"])], [("y", F, ["n"])], {"step": np.float32(0.5)})
    model = onnx.load(path)
    model.graph.output[0].doc_string = "the score"
    onnx.helper.set_metadata_props(model.graph.output[0], {"unit": "volt"})
    annotation = model.graph.quantization_annotation.add(tensor_name="y")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="step")
    onnx.save(model, path)
    made = holds(path, "basic", {"x": np.float32([-1, 1])}).graph
    assert [n.op_type for n in made.node] == ["Relu"]
    assert made.output[0].doc_string == "the score"
    assert [p.value for p in made.output[0].metadata_props] == ["volt"]
    assert made.quantization_annotation[0] == annotation
    assert [i.name for i in made.initializer] == ["step"]
