"""Other opset versions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxtool
from onnxtool.errors import UnsupportedError, UsageError
from onnxtool.runtime.runner import OnnxRunner


def model(path: Path, text: str, opset: int, ir_version: int = 8) -> Path:
    onnx.save(onnx.parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["" : {opset}]>\n{text}'), path)
    return path


REDUCE = "g (float[b, 4] x) => (float[b, 1] y) { y = ReduceMean <axes = [1]> (x) }"


def test_upgrades_and_compares(tmp_path: Path) -> None:
    source, out = model(tmp_path / "m.onnx", REDUCE, 13), tmp_path / "o.onnx"

    report = onnxtool.optimize(source, out, opset=20, bench=False)

    assert report.ok
    assert onnx.load(out).opset_import[0].version == 20
    assert len(onnx.load(out).graph.node[0].input) == 2


@pytest.mark.parametrize("channels", ["6", "c"])
def test_a_scale_for_each_group_becomes_one_for_each_channel(channels: str, tmp_path: Path) -> None:
    scales = "<float[3] s = {1.5, 2, -3}, float[3] c = {0.1, 0.2, 0.3}>"
    shape = f"float[b,{channels},w]"
    text = f"g ({shape} x) => ({shape} y) {scales} {{ y = GroupNormalization <num_groups = 3> (x, s, c) }}"
    source, out = model(tmp_path / "m.onnx", text, 18), tmp_path / "o.onnx"
    assert onnxtool.edit(source, out, [("opset", "21")]).ok
    x = np.random.default_rng(0).normal(size=(2, 6, 5)).astype(np.float32)
    before, after = (OnnxRunner.open(path).run({"x": x})["y"] for path in (source, out))
    np.testing.assert_allclose(before, after, rtol=1e-5, atol=1e-6)


def test_downgrades_and_compares(tmp_path: Path) -> None:
    text = "g (float[b, 4] x) => (float[b, 4] y) { y = LeakyRelu <alpha = 0.1> (x) }"
    source, out = model(tmp_path / "m.onnx", text, 18), tmp_path / "o.onnx"

    assert onnxtool.optimize(source, out, opset=13, bench=False).ok
    assert onnx.load(out).opset_import[0].version == 13


def test_names_the_operator_that_cannot_be_converted(tmp_path: Path) -> None:
    text = "g (float[b, 4] x) => (int64[1] y) { y = Shape <start = 1> (x) }"
    source, out = model(tmp_path / "m.onnx", text, 20, 9), tmp_path / "o.onnx"

    with pytest.raises(UnsupportedError, match="at Shape"):
        onnxtool.optimize(source, out, opset=13, bench=False)
    assert not out.exists()


def test_refuses_unknown_versions(tmp_path: Path) -> None:
    source = model(tmp_path / "m.onnx", REDUCE, 13)
    with pytest.raises(UsageError, match="knows 7 to"):
        onnxtool.optimize(source, tmp_path / "o.onnx", opset=999, bench=False)


def test_constants_are_no_obstacle(tmp_path: Path) -> None:
    # The converter has no adapter for Constant from opset 12 to 11.
    text = "g (float[b, 4] x) => (float[b, 4] y) { c = Constant <value_float = 2.0> () y = Mul (x, c) }"
    source, out = model(tmp_path / "m.onnx", text, 12, 7), tmp_path / "o.onnx"

    assert onnxtool.optimize(source, out, opset=11, bench=False).ok
    assert onnx.load(out).opset_import[0].version == 11


@pytest.mark.parametrize(
    ("text", "opset", "target"),
    [
        ("g (float[n, 4] x) => (int64[2] y) { y = Shape(x) }", 18, 13),
        ("g (float[n, 4] x) => (float[n, 4] y) { c = Constant<value_float = 2.0>() y = Pow(x, c) }", 18, 12),
        ("g (float[n, 4] x) => (float[n, 4] y) { y = Gelu(x) }", 20, 13),
        ("g (float[n, 4] x, float[4] w) => (float[n, 4] y) { y = LayerNormalization(x, w) }", 18, 14),
        (
            """g (float[n, 4] x, bool c) => (float[n, 4] y) {
                y = If(c) <then_branch = t () => (float[n, 4] a) { a = Neg(x) },
                           else_branch = e () => (float[n, 4] b) { b = Softmax<axis = -1>(x) }>
            }""",
            18,
            13,
        ),
    ],
)
def test_what_an_older_operator_set_has_or_can_say_is_converted(
    tmp_path: Path, text: str, opset: int, target: int
) -> None:
    source, out = model(tmp_path / "m.onnx", text, opset), tmp_path / "o.onnx"
    onnxtool.edit(source, out, [("opset", str(target))])
    made = onnx.load(out)
    assert [(o.domain, o.version) for o in made.opset_import] == [("", target)]
    onnx.checker.check_model(made, full_check=True)
    assert onnxtool.compare(source, out, effort="quick").ok


def test_the_axes_of_a_reduction_become_attributes_again(tmp_path: Path) -> None:
    """The converter has a way from 18 to 13, and none on from there, where nothing has changed."""
    text = """g (float[b, 4] x) => (float[b, 1] y) {
        axes = Constant <value_ints = [1]> () y = ReduceMean (x, axes) }"""
    source, out = model(tmp_path / "m.onnx", text, 18), tmp_path / "o.onnx"

    assert onnxtool.optimize(source, out, opset=11, bench=False).ok
    assert onnx.load(out).opset_import[0].version == 11


def test_functions_go_with_the_rest_of_the_model(tmp_path: Path) -> None:
    source = tmp_path / "m.onnx"
    text = """<ir_version: 9, opset_import: ["" : 18, "my" : 1]>
    g (float[2, 4] x) => (float[2, 1] y) { y = my.Mean <k = 2.0> (x) }
    <domain: "my", opset_import: ["" : 18]> Mean <k> (p) => (q) {
        axes = Constant <value_ints = [1]> ()  m = ReduceMean (p, axes)  c = Constant <value_float: float = @k> ()
        q = Mul (m, c) }"""
    onnx.save(onnx.parser.parse_model(text), source)

    assert onnxtool.edit(source, tmp_path / "o.onnx", ["opset=13"]).ok
    assert onnx.load(tmp_path / "o.onnx").opset_import[0].version == 13


def test_what_the_converter_drops_is_carried_over(tmp_path: Path) -> None:
    text = "g (float[2, 4] x) => (float[2, 4] y) { a = Mul (x, w) y = Relu (a) }"
    made = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]>\n{text}')
    graph = made.graph
    graph.initializer.append(onnx.numpy_helper.from_array(np.ones(4, np.float32), "w"))
    graph.initializer[0].doc_string = "learned"
    for part in (graph, graph.node[1], graph.input[0], graph.output[0]):
        part.metadata_props.add(key="source", value=part.name)
    note = graph.quantization_annotation.add(tensor_name="a")
    note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="w")
    onnx.save(made, tmp_path / "m.onnx")

    assert onnxtool.edit(tmp_path / "m.onnx", tmp_path / "o.onnx", ["opset=21"]).ok
    result = onnx.load(tmp_path / "o.onnx").graph
    for old, new in ((graph, result), *zip(graph.node, result.node, strict=True), (graph.input[0], result.input[0])):
        assert list(old.metadata_props) == list(new.metadata_props)
    assert list(result.quantization_annotation) == [note]
    assert result.initializer[0].doc_string == "learned" and result.output[0].metadata_props
