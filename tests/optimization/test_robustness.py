"""Whole runs on models of unusual kinds: nothing breaks, nothing changes that should not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxtool
from onnxtool.errors import UnsupportedError
from onnxtool.model.ir.queries import operator_counts
from onnxtool.optimization.pass_base import Level
from onnxtool.report.optimize import OptimizeReport
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import EXACT

LEVELS = [level.value for level in Level]
every_level = pytest.mark.parametrize("level", LEVELS)


def parsed(text: str, weights: Mapping[str, np.ndarray] | None = None, opset: int = 20, ir: int = 10) -> Any:
    proto = onnx.parser.parse_model(f'<ir_version: {ir}, opset_import: ["" : {opset}]>\n{text}')
    for name, array in (weights or {}).items():
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return proto


def run(proto: Any, folder: Path, level: str = "extended", **options: Any) -> tuple[OptimizeReport, Any]:
    """Optimize through the front door, and read what was written."""
    onnx.save(proto, folder / "m.onnx")
    report = onnxtool.optimize(folder / "m.onnx", folder / "o.onnx", level=level, bench=False, **options)
    assert report.ok
    assert not report.dropped, report.dropped
    result = onnx.load(folder / "o.onnx")
    onnx.checker.check_model(result, full_check=level != "all")
    return report, result


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def same(proto: Any, folder: Path, feeds: dict[str, Any], *, exact: bool = False) -> None:
    """The written model gives what the source gives, here and not only in the optimizer's own comparison."""
    want = OnnxRunner.open(proto, EXACT).session.run(None, feeds)
    have = OnnxRunner.open(folder / "o.onnx", EXACT).session.run(None, feeds)
    for a, b in zip(want, have, strict=True):
        if exact or not isinstance(a, np.ndarray) or a.dtype.kind in "OUSbiu":
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


@every_level
def test_quantized_graphs_stay_quantized(tmp_path: Path, level: str) -> None:
    rng = np.random.default_rng(0)
    proto = parsed(
        """g (float[b, 3, 8, 8] x) => (float[b, 4, 8, 8] y) {
            xq = QuantizeLinear (x, xs, xz) xd = DequantizeLinear (xq, xs, xz)
            i = Identity (xd)
            wd = DequantizeLinear <axis = 0> (w, ws, wz)
            c = Conv <pads = [1, 1, 1, 1]> (i, wd)
            r = Relu (c)
            q = QuantizeLinear (r, ys, yz) y = DequantizeLinear (q, ys, yz)
        }""",
        {
            "xs": np.array(0.02, np.float32), "xz": np.array(128, np.uint8), "ys": np.array(0.05, np.float32),
            "yz": np.array(0, np.uint8), "w": rng.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8),
            "ws": rng.uniform(0.01, 0.02, 4).astype(np.float32), "wz": np.zeros(4, np.int8),
        },
    )  # fmt: skip
    _, result = run(proto, tmp_path, level)

    counts = [n.op_type for n in result.graph.node]
    assert counts.count("QuantizeLinear") == 2
    assert counts.count("DequantizeLinear") == 3
    assert "Identity" not in counts
    assert {t.name: t.data_type for t in result.graph.initializer}["w"] == TensorProto.INT8
    same(proto, tmp_path, {"x": normal(2, 3, 8, 8)}, exact=level == "basic")


@every_level
def test_sparse_weights(tmp_path: Path, level: str) -> None:
    proto = parsed("g (float[b, 4] x) => (float[b, 3] y) { i = Identity (x) m = MatMul (i, w) y = Relu (m) }")
    values = numpy_helper.from_array(np.array([1.5, -2.0, 3.0], np.float32), "w")
    indices = numpy_helper.from_array(np.array([0, 5, 10], np.int64), "w_indices")
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4, 3]))
    run(proto, tmp_path, level)

    dense = np.zeros(12, np.float32)
    dense[[0, 5, 10]] = [1.5, -2.0, 3.0]
    x = normal(2, 4)
    have = OnnxRunner.open(tmp_path / "o.onnx").run({"x": x})["y"]
    np.testing.assert_allclose(have, np.maximum(x @ dense.reshape(4, 3), 0), rtol=1e-5, atol=1e-6)


def custom(op_type: str = "Mystery") -> Any:
    nodes = [
        helper.make_node("Identity", ["x"], ["a"]),
        helper.make_node(op_type, ["a"], ["b"], domain="my.company", depth=3),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 4]) for n in "xy"]
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("my.company", 1)]
    return helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:]), opset_imports=opsets, ir_version=10)


@every_level
def test_operators_that_nobody_knows_are_left_alone(tmp_path: Path, level: str) -> None:
    onnx.save(custom(), tmp_path / "m.onnx")

    with pytest.raises(UnsupportedError, match=r"Mystery|my\.company"):
        onnxtool.optimize(tmp_path / "m.onnx", tmp_path / "o.onnx", level=level, bench=False)
    assert not (tmp_path / "o.onnx").exists()

    report = onnxtool.optimize(tmp_path / "m.onnx", tmp_path / "o.onnx", level=level, verify=False)
    result = onnx.load(tmp_path / "o.onnx")
    assert report.comparison is None
    assert [(n.domain, n.op_type) for n in result.graph.node] == [("my.company", "Mystery"), ("", "Relu"), ("", "Relu")]
    assert result.graph.node[0].attribute[0].i == 3
    assert {o.domain: o.version for o in result.opset_import} == {"": 20, "my.company": 1}


@every_level
def test_a_standard_name_in_another_domain_is_another_operator(tmp_path: Path, level: str) -> None:
    onnx.save(custom("Identity"), tmp_path / "m.onnx")
    onnxtool.optimize(tmp_path / "m.onnx", tmp_path / "o.onnx", level=level, verify=False)

    assert ("my.company", "Identity") in [(n.domain, n.op_type) for n in onnx.load(tmp_path / "o.onnx").graph.node]


@every_level
@pytest.mark.parametrize("name", ["", "same"])
def test_nodes_without_names_of_their_own(tmp_path: Path, level: str, name: str) -> None:
    proto = parsed(
        """g (float[b, 4] x) => (float[b, 2] y, float[b, 2] z) {
            a = Identity (x) t = Transpose <perm = [1, 0]> (w) m = MatMul (a, t) s = Add (m, c)
            y = Relu (s) u = MatMul (a, t) z = Sigmoid (u)
        }""",
        {"w": normal(2, 4), "c": normal(2)},
    )
    for node in proto.graph.node:
        node.name = name
    _, result = run(proto, tmp_path, level)

    names = [n.name for n in result.graph.node if n.name]
    assert len(names) == len(set(names))
    for index, node in enumerate(proto.graph.node):
        node.name = str(index)  # the runtime refuses to run nodes that share a name
    same(proto, tmp_path, {"x": normal(3, 4)}, exact=level == "basic")


@every_level
def test_functions_of_the_model(tmp_path: Path, level: str) -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 20, "local" : 1]>
        g (float[b, 4] x) => (float[b, 4] y) { a = local.twice <factor = 2.0> (x) y = local.outer (a) }
        <domain: "local", opset_import: ["" : 20]>
        twice <factor> (v) => (w) { f = Constant <value_float : float = @factor> () w = Mul (v, f) }
        <domain: "local", opset_import: ["" : 20, "local" : 1]>
        outer (v) => (w) { i = Identity (v) r = Relu (i) w = local.twice <factor = 0.5> (r) }"""
    )
    _, result = run(proto, tmp_path, level)

    assert not result.functions
    x = normal(3, 4)
    np.testing.assert_allclose(OnnxRunner.open(tmp_path / "o.onnx").run({"x": x})["y"], np.maximum(x, 0), rtol=1e-6)


@every_level
def test_sequences_and_optionals(tmp_path: Path, level: str) -> None:
    proto = parsed(
        """g (float[b, 4] x) => (seq(float[b, 4]) s, float[c, 4] y, bool has) {
            i = Identity (x) j = Neg (i) k = Neg (i)
            s = SequenceConstruct (j, k, x)
            y = ConcatFromSequence <axis = 0> (s)
            o = Optional (i) has = OptionalHasElement (o)
        }"""
    )
    _, result = run(proto, tmp_path, level)

    assert result.graph.output[0].type.HasField("sequence_type")
    assert [o.name for o in result.graph.output] == ["s", "y", "has"]
    same(proto, tmp_path, {"x": normal(2, 4)})


def test_a_sequence_that_is_longer_for_some_inputs(tmp_path: Path) -> None:
    proto = parsed(
        """g (float[b, 4] x) => (seq(float[r, 4]) s) {
            i = Identity (x)
            s = SplitToSequence <axis = 0> (i)
        }"""
    )
    report, result = run(proto, tmp_path)

    assert report.ok
    assert result.graph.output[0].type.HasField("sequence_type")


@every_level
def test_string_tensors(tmp_path: Path, level: str) -> None:
    proto = parsed(
        """g (string[b] words) => (string[b] y, int64[b] z) {
            i = Identity (words)
            e = StringConcat (fixed, fixed)
            s = StringConcat (i, e) y = Identity (s)
            q = Equal (i, fixed) z = Cast <to = 7> (q)
        }"""
    )
    proto.graph.initializer.append(helper.make_tensor("fixed", TensorProto.STRING, [1], ["größe".encode()]))
    run(proto, tmp_path, level)
    same(proto, tmp_path, {"words": np.array(["a", "größe", ""], object)})


@every_level
def test_overridable_inputs_stay_overridable(tmp_path: Path, level: str) -> None:
    text = """g (float[b, 4] x, float[4, 4] w, float[4] c) => (float[b, 4] y) {
        t = Transpose (w) n = Neg (c) m = MatMul (x, t) s = Add (m, n) y = Relu (s) }"""
    weights = {"w": normal(4, 4), "c": normal(4)}
    proto = parsed(text, weights)
    _, result = run(proto, tmp_path, level)
    assert [i.name for i in result.graph.input] == ["x", "w", "c"]
    session = OnnxRunner.open(tmp_path / "o.onnx").session
    assert {i.name for i in session.get_overridable_initializers()} == {"w", "c"}
    same(proto, tmp_path, {"x": normal(2, 4), "w": normal(4, 4, seed=5), "c": normal(4, seed=6)})

    _, frozen = run(proto, tmp_path, level, freeze_initializers=True)
    assert [i.name for i in frozen.graph.input] == ["x"]
    assert len(frozen.graph.node) < len(result.graph.node)
    same(proto, tmp_path, {"x": normal(2, 4)})


@every_level
def test_scan_and_loop_bodies_with_captures(tmp_path: Path, level: str) -> None:
    proto = parsed(
        """g (float[s, 4] x) => (float[4] y, float[s, 4] all) {
            z = Identity (zero)
            k = Neg (scale)
            y, all = Scan <num_scan_inputs = 1,
                body = step (float[4] state, float[4] item) => (float[4] o, float[4] p) {
                a = Identity (item) m = Mul (a, k) o = Add (state, m) p = Identity (o)
            }> (z, x)
        }""",
        {"zero": np.zeros(4, np.float32), "scale": normal(4)},
    )
    run(proto, tmp_path, level)
    same(proto, tmp_path, {"x": normal(5, 4)})


# Newer ones the runtime does not know yet.
OPSETS = range(7, 27)


@pytest.mark.parametrize("opset", OPSETS)
@every_level
def test_every_opset(tmp_path: Path, opset: int, level: str) -> None:
    axes = "axes = [2, 3], " if opset < 18 else ""
    reduce = f"r = ReduceMean <{axes}keepdims = 0> (c{'' if opset < 18 else ', axes'})"
    sqz = "s = Squeeze <axes = [1]> (u)" if opset < 13 else "s = Squeeze (u, one)"
    unsqueeze = "u = Unsqueeze <axes = [1]> (r)" if opset < 13 else "u = Unsqueeze (r, one)"
    weights = {
        "w": normal(6, 3, 3, 3), "scale": np.abs(normal(6)) + 0.5, "bias": normal(6), "mean": normal(6),
        "var": np.abs(normal(6)) + 0.5, "v": normal(5, 6), "d": normal(5), "axes": np.array([2, 3]),
        "one": np.array([1]),
    }  # fmt: skip
    # Below opset 7 nothing broadcasts by itself; Softmax and the reductions changed at 13 and 18.
    proto = parsed(
        f"""g (float[b, 3, 8, 8] x) => (float[b, 5] y) {{
            i = Identity (x) k = Conv <pads = [1, 1, 1, 1]> (i, w)
            n = BatchNormalization (k, scale, bias, mean, var) c = Relu (n)
            {reduce} {unsqueeze} {sqz}
            t = Transpose <perm = [1, 0]> (v) m = MatMul (s, t) a = Add (m, d)
            y = Softmax <axis = 1> (a)
        }}""",
        opset=opset,
        ir=3 if opset < 9 else 8,
    )
    used = {name for node in proto.graph.node for name in node.input}
    for name, array in weights.items():
        if name in used:
            proto.graph.initializer.append(numpy_helper.from_array(array, name))
            if opset < 9:  # IR version 3 lists every weight as an input
                kind = helper.np_dtype_to_tensor_dtype(array.dtype)
                proto.graph.input.append(helper.make_tensor_value_info(name, kind, array.shape))
    report, result = run(proto, tmp_path, level)

    assert {o.version for o in result.opset_import if o.domain == ""} == {opset}
    assert report.after.nodes < report.before.nodes
    same(proto, tmp_path, {"x": normal(2, 3, 8, 8)}, exact=level == "basic")


def test_a_broadcast_freezes_no_dim(tmp_path: Path) -> None:
    # Defect elsewhere: the result of x + row got the row's size in a dim that is dynamic in x.
    text = """g (float[b, s, 4] x, float[1, 1, 4] row) => (float[b, s, 4] y) {
        a = Add (x, row) h = Shape (a) r = Reshape (a, h) n = Neg (r) y = Reshape (n, h) }"""
    proto = parsed(text)
    _, result = run(proto, tmp_path)

    assert [n.op_type for n in result.graph.node] == ["Add", "Neg"]
    assert [d.dim_param for d in result.graph.output[0].type.tensor_type.shape.dim[:2]] == ["b", "s"]
    for shape in ((1, 1, 4), (3, 5, 4)):
        same(proto, tmp_path, {"x": normal(*shape), "row": normal(1, 1, 4)})


@pytest.mark.parametrize("opset", [8, 13, 14])
def test_allowzero_is_not_used_where_it_does_not_exist(tmp_path: Path, opset: int) -> None:
    text = """g (float[b, 2, 6] x) => (float[b, 3, 4] y) {
        h = Reshape (x, a) f = Reshape (h, c) y = Reshape (f, d) }"""
    weights = {"a": np.array([0, 0, 2, 3]), "c": np.array([0, -1]), "d": np.array([0, 3, 4])}
    proto = parsed(text, weights, opset=opset, ir=4)
    _, result = run(proto, tmp_path)

    (reshape,) = result.graph.node
    assert not reshape.attribute
    same(proto, tmp_path, {"x": normal(3, 2, 6)}, exact=True)


def test_a_scale_along_the_last_axis_is_none_of_channels(tmp_path: Path) -> None:
    # Defect elsewhere: as many columns as channels, and the row was multiplied into the weights.
    text = "g (float[b, 3, 6, 6] x) => (float[b, 4, 4, 4] y) { c = Conv (x, w) y = Mul (c, row) }"
    proto = parsed(text, {"w": normal(4, 3, 3, 3), "row": normal(4)})
    _, result = run(proto, tmp_path)

    assert [n.op_type for n in result.graph.node] == ["Conv", "Mul"]
    same(proto, tmp_path, {"x": normal(2, 3, 6, 6)})


def test_counts_are_those_of_the_file(tmp_path: Path) -> None:
    from onnxtool.model import io

    text = """g (bool c, float[b, 4] x) => (float[b, 4] y) {
        y = If (c) <then_branch = t () => (float[b, 4] p) { i = Identity (x) p = Relu (i) },
                    else_branch = e () => (float[b, 4] q) { q = Neg (x) }> }"""
    report, _ = run(parsed(text), tmp_path)

    assert report.before.nodes == 4
    assert report.after.nodes == 3 == sum(operator_counts(io.load(tmp_path / "o.onnx")).values())
