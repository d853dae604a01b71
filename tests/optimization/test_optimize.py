"""`onnxtool.optimize`: files in, files out, nothing wrong ever written."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnxtool
from onnxtool.errors import InputError, UsageError, VerdictError
from onnxtool.model import io
from onnxtool.model.provenance.metadata import read_history
from onnxtool.optimization import registry
from onnxtool.optimization.pass_base import Level
from onnxtool.optimization.pass_context import PassContext
from onnxtool.report.measurement.bench import LatencyRatio
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import EXACT


def write(path: Path, text: str, weights: dict[str, Any] | None = None, ir_version: int = 10, opset: int = 20) -> Path:
    proto = onnx.parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["" : {opset}]>\n{text}')
    for name, array in (weights or {}).items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    onnx.save(proto, path)
    return path


RELU = "g (float[b, 3] x) => (float[b, 3] y) { a = Identity (x) c = Relu (a) y = Relu (c) }"


class Harmful:
    """Turns the first Relu into Neg."""

    name = "harm"
    level = Level.BASIC

    def apply(self, model: ir.Model, context: PassContext) -> int:
        for node in context.nodes(model, "Relu"):
            context.replace_op(node, "Neg", list(node.inputs))
            return 1
        return 0


class Broken(Harmful):
    """Makes a model that does not load."""

    name = "break"

    def apply(self, model: ir.Model, context: PassContext) -> int:
        for node in context.nodes(model, "Relu"):
            context.replace_op(node, "NoSuchOperator", list(node.inputs))
            return 1
        return 0


class Growing(Harmful):
    """Writes Relu as the maximum with a constant that takes room."""

    name = "grow"

    def apply(self, model: ir.Model, context: PassContext) -> int:
        for node in context.nodes(model, "Relu"):
            context.replace_op(
                node, "Max", [node.inputs[0], context.initializer(np.zeros(3, np.float32), "zeros" * 60)]
            )
            return 1
        return 0


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Add passes for one test."""
    built_in = registry.all_passes()

    def add(*passes: Any) -> None:
        every = (*((p, "test") for p in passes), *built_in)
        monkeypatch.setattr(registry, "all_passes", lambda: every)

    yield add


@pytest.fixture(scope="module")
def digits(digits_onnx: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The digits CNN as optimize writes it, with its report."""
    path = tmp_path_factory.mktemp("digits") / "out.onnx"
    return path, onnxtool.optimize(digits_onnx, path, bench=False)


def test_writes_an_equal_smaller_model(digits_onnx: Path, digits: tuple[Path, Any]) -> None:
    out, report = digits

    assert report.ok
    assert report.after.nodes == 11
    assert report.after.bytes < report.before.bytes
    assert report.comparison is not None
    assert len({run["image"][0] for run in report.comparison.runs}) == 3
    assert report.latency is None
    with np.load(digits_onnx.parent / "eval.npz") as data:
        feeds = {"image": data["image"][:64]}
    want = OnnxRunner.open(digits_onnx, EXACT).run(feeds)["logits"]
    have = OnnxRunner.open(out).run(feeds)["logits"]
    np.testing.assert_allclose(have, want, rtol=1e-3, atol=1e-4)


def test_records_where_it_came_from(digits_onnx: Path, digits: tuple[Path, Any]) -> None:
    (step,) = read_history(io.load(digits[0]).metadata_props)
    assert step["command"] == "optimize"
    assert step["source_sha256"] == io.sha256(digits_onnx)


def test_the_same_input_gives_the_same_bytes(digits_onnx: Path, digits: tuple[Path, Any], tmp_path: Path) -> None:
    onnxtool.optimize(digits_onnx, tmp_path / "again.onnx", bench=False)

    assert (tmp_path / "again.onnx").read_bytes() == digits[0].read_bytes()


def test_input_may_be_output(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", RELU)
    onnxtool.optimize(path, path)

    assert [n.op_type for n in onnx.load(path).graph.node] == ["Relu"]


def test_measures_latency_side_by_side(tmp_path: Path) -> None:
    report = onnxtool.optimize(write(tmp_path / "m.onnx", RELU), tmp_path / "o.onnx")

    assert report.latency is not None
    assert report.latency.low <= report.latency.value <= report.latency.high


@pytest.mark.parametrize("kind", [Harmful, Broken])
def test_drops_and_names_the_guilty_pass(added: Any, tmp_path: Path, kind: type[Harmful]) -> None:
    added(kind())
    source, out = write(tmp_path / "m.onnx", RELU), tmp_path / "o.onnx"

    report = onnxtool.optimize(source, out, bench=False)

    assert [d.name for d in report.dropped] == [kind.name]
    assert report.ok
    assert kind.name in report.warnings[0]
    assert [n.op_type for n in onnx.load(out).graph.node] == ["Relu"]
    assert not dataclasses.replace(report, strict=True).ok


def test_drops_two_guilty_passes(added: Any, tmp_path: Path) -> None:
    added(Harmful(), Broken())

    report = onnxtool.optimize(write(tmp_path / "m.onnx", RELU), tmp_path / "o.onnx", bench=False)

    assert {d.name for d in report.dropped} == {"harm", "break"}
    assert report.after.operators == {"Relu": 1}


def test_skips_and_selects_passes(tmp_path: Path) -> None:
    source = write(tmp_path / "m.onnx", RELU)
    skipped = onnxtool.optimize(source, tmp_path / "o.onnx", skip=["collapse-clips"], bench=False)
    only = onnxtool.optimize(source, tmp_path / "o.onnx", passes=["eliminate-identity"], bench=False)

    assert skipped.after.operators == {"Relu": 2}
    assert [p.name for p in only.passes] == ["eliminate-identity"]


def test_random_models_are_compared_by_shape(tmp_path: Path) -> None:
    text = "g (float[b, 3] x) => (float[b, 3] y) { r = RandomNormalLike (x) a = Identity (r) y = Add (x, a) }"
    report = onnxtool.optimize(write(tmp_path / "m.onnx", text), tmp_path / "o.onnx", bench=False)

    assert report.ok
    assert report.after.operators == {"RandomNormalLike": 1, "Add": 1}
    assert "random" in report.warnings[0]


def test_ir_3_weights_stay_constants(tmp_path: Path) -> None:
    # Defects elsewhere: folded weights become required inputs; lifting the version makes all weights overridable.
    source = write(
        tmp_path / "m.onnx",
        """g (float[b, 2] x, float[2, 2] w, float[2] c) => (float[b, 2] y) {
            s = Neg (w) m = MatMul (x, s) y = Add (m, c)
        }""",
        {"w": np.ones((2, 2), np.float32), "c": np.ones(2, np.float32)},
        ir_version=3,
        opset=8,
    )
    out = tmp_path / "o.onnx"
    report = onnxtool.optimize(source, out, bench=False)

    session = OnnxRunner.open(out).session
    assert [i.name for i in session.get_inputs()] == ["x"]
    assert not session.get_overridable_initializers()
    assert report.after.operators == {"Gemm": 1}
    onnx.checker.check_model(onnx.load(out))


def test_defaults_stay_overridable_unless_frozen(tmp_path: Path) -> None:
    text = "g (float[b, 2] x, float[2] w) => (float[b, 2] y) { e = Exp (w) y = Mul (x, e) }"
    source, out = write(tmp_path / "m.onnx", text, {"w": np.ones(2, np.float32)}), tmp_path / "o.onnx"

    onnxtool.optimize(source, out, bench=False)
    feeds = {"x": np.ones((1, 2), np.float32), "w": np.zeros(2, np.float32)}
    np.testing.assert_array_equal(OnnxRunner.open(out).session.run(None, feeds)[0], np.ones((1, 2)))
    onnxtool.optimize(source, out, freeze_initializers=True, bench=False)
    assert [i.name for i in onnx.load(out).graph.input] == ["x"]
    assert [n.op_type for n in onnx.load(out).graph.node] == ["Mul"]


def test_frozen_dims_fold_further(tmp_path: Path) -> None:
    text = """g (float[b, s] x) => (float[p] y) { d = Shape (x) e = Cast <to = 1> (d) r = ReduceSum (x, k)
        t = Slice (e, zero, one) y = Mul (r, t) }"""
    weights = {"k": np.array([0, 1]), "zero": np.array([0]), "one": np.array([1])}
    text = text.replace("ReduceSum (x, k)", "ReduceSum <keepdims = 0> (x, k)")
    source, out = write(tmp_path / "m.onnx", text, weights), tmp_path / "o.onnx"

    report = onnxtool.optimize(source, out, input_shapes={"x": (2, 5)}, bench=False)

    assert report.after.operators == {"ReduceSum": 1, "Mul": 1}
    assert [d.dim_value for d in onnx.load(out).graph.input[0].type.tensor_type.shape.dim] == [2, 5]
    with pytest.raises(UsageError, match="2 dims"):
        onnxtool.optimize(source, out, input_shapes={"x": (2,)}, bench=False)


def test_external_data_is_read_in_place_and_written_anew(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    proto = onnx.load(write(tmp_path / "plain.onnx", "g (float[b, 64] x) => (float[b, 64] y) { y = MatMul (x, w) }"))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    source, out = tmp_path / "in" / "m.onnx", tmp_path / "out" / "m.onnx"
    onnx.save(proto, source, save_as_external_data=True, location="weights.bin", size_threshold=0)

    report = onnxtool.optimize(source, out, bench=False)

    # Defect elsewhere: the weights of the result still pointed into the source's folder.
    assert report.ok
    (tmp_path / "in" / "weights.bin").unlink()
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(onnx.load(out).graph.initializer[0]), weight)


def test_a_size_that_the_source_refuses_is_no_test(tmp_path: Path) -> None:
    text = "g (float[b, c, h] x) => (float[b, p] y) { r = Reshape (x, t) a = Identity (r) y = MatMul (a, w) }"
    weights = {"t": np.array([0, 144]), "w": np.ones((144, 2), np.float32)}
    text = text.replace("float[b, c, h]", "float[b, 3, h]")
    report = onnxtool.optimize(write(tmp_path / "m.onnx", text, weights), tmp_path / "o.onnx", bench=False)

    assert report.comparison is not None
    assert {run["x"][2] for run in report.comparison.runs} == {48}


def test_a_model_that_never_runs_needs_data(tmp_path: Path) -> None:
    text = "g (float[b, 3] x) => (float[b, 3] y) { r = Reshape (x, t) y = Relu (r) }"
    source = write(tmp_path / "m.onnx", text, {"t": np.array([7919, 3])})
    out = tmp_path / "o.onnx"

    with pytest.raises(InputError, match="--data"):
        onnxtool.optimize(source, out, bench=False)
    assert not out.exists()
    assert onnxtool.optimize(source, out, verify=False).comparison is None
    report = onnxtool.optimize(source, out, data={"x": np.ones((7919, 3), np.float32)}, bench=False)
    assert report.ok


def test_nothing_is_written_when_even_the_source_is_wrong(added: Any, tmp_path: Path, monkeypatch: Any) -> None:
    import onnxtool.optimization.optimize as api

    monkeypatch.setattr(api.OptimizationProof, "__call__", lambda self, model: "output 'y' differs")
    with pytest.raises(VerdictError, match="Nothing was written"):
        onnxtool.optimize(write(tmp_path / "m.onnx", RELU), tmp_path / "o.onnx", bench=False)
    assert not (tmp_path / "o.onnx").exists()


def test_the_runtimes_own_mistake_is_not_blamed_on_a_pass(tmp_path: Path) -> None:
    # The runtime fuses Pad with MaxPool to wrong values when its optimizations are on.
    text = """g (float[1, 1, 4, 4] x) => (float[1, 1, 3, 3] y) {
        n = Abs (x) m = Neg (n) i = Identity (m) a = Pad (i, p)
        y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (a)
    }"""
    source = write(tmp_path / "m.onnx", text, {"p": np.array([0, 0, 1, 1, 0, 0, 1, 1])})
    report = onnxtool.optimize(source, tmp_path / "o.onnx", bench=False)

    assert report.ok
    assert not report.dropped
    assert report.after.operators == {"Abs": 1, "Neg": 1, "Pad": 1, "MaxPool": 1}


def test_lists_every_pass_in_a_line() -> None:
    from onnxtool.optimization.optimize import list_passes

    passes = list_passes().passes
    assert len({p.name for p in passes}) == len(passes) > 20
    assert all(len(p.description) > 20 and p.description.endswith(".") for p in passes)
    assert {p.level for p in passes} >= {"basic", "extended"}


def test_warns_where_there_is_nothing_but_nan_to_compare(tmp_path: Path) -> None:
    text = "g (float[b, 3] x) => (float[b, 3] y) { a = Abs (x) m = Neg (a) c = Sub (m, one) y = Log (c) }"
    source = write(tmp_path / "m.onnx", text, {"one": np.ones(1, np.float32)})
    report = onnxtool.optimize(source, tmp_path / "o.onnx", bench=False)

    assert report.ok
    assert "'y' had no finite number" in report.warnings[0]


def test_no_shapes_beside_those_of_inputs_and_outputs(tmp_path: Path) -> None:
    text = "g (float[b, 3] x) => (float[b, 4] y) { m = MatMul (x, w) i = Identity (m) y = Add (i, v) }"
    weights = {"w": np.ones((3, 4), np.float32), "v": np.ones(4, np.float32)}
    output = tmp_path / "out.onnx"
    onnxtool.optimize(write(tmp_path / "m.onnx", text, weights), output)
    proto = onnx.load(output)
    assert proto.graph.initializer
    assert not proto.graph.value_info
    onnx.checker.check_model(proto, full_check=True)


@pytest.mark.parametrize(("count", "nodes"), [(400, 1), (10, 2)])
def test_inputs_and_shapes_that_go_make_room_for_a_weight(tmp_path: Path, count: int, nodes: int) -> None:
    """Before IR 4 each weight is an input too, and exporters write the shapes of all values."""
    chain = " ".join(f"i{n} = Add (i{n - 1}, v{n})" for n in range(1, count))
    text = f"""g (float[b, 32] x) => (float[b, 48] y) {{
        i0 = Identity (x) {chain} w = ConstantOfShape <value = float[1] {{0.5}}> (s) y = MatMul (i{count - 1}, w)
    }}"""
    proto = onnx.parser.parse_model(f'<ir_version: 3, opset_import: ["" : 9]>\n{text}')
    weights = {f"v{n}": np.zeros(1, np.float32) for n in range(1, count)} | {"s": np.array([32, 48])}
    for name, array in weights.items():
        tensor = onnx.numpy_helper.from_array(array, name)
        proto.graph.initializer.append(tensor)
        proto.graph.input.append(onnx.helper.make_tensor_value_info(name, tensor.data_type, array.shape))
    onnx.save(onnx.shape_inference.infer_shapes(proto), tmp_path / "m.onnx")
    report = onnxtool.optimize(tmp_path / "m.onnx", tmp_path / "out.onnx", level="extended", bench=False)
    assert report.after.nodes == nodes
    assert report.after.bytes <= report.before.bytes


def lengthen_names(path: Path, times: int) -> None:
    proto = onnx.load(path)
    for node in proto.graph.node:
        node.name = f"{node.op_type}/" * times
    onnx.save(proto, path)


def test_where_there_is_nothing_to_gain_the_output_is_the_source(tmp_path: Path) -> None:
    source = write(tmp_path / "m.onnx", "g (float[b, 3] x) => (float[b, 3] y) { a = Relu (x) c = Abs (a) y = Exp (c) }")
    lengthen_names(source, 20)
    report = onnxtool.optimize(source, tmp_path / "out.onnx")
    assert report.ok
    assert report.verdict == f"nothing to gain: {tmp_path / 'out.onnx'} is {source} unchanged"
    assert (tmp_path / "out.onnx").read_bytes() == source.read_bytes()
    assert report.after == report.before
    again = onnxtool.optimize(source, source)
    assert again.verdict.startswith("nothing to gain")
    assert onnx.load(source).graph.node[0].op_type == "Relu"


def test_external_data_comes_along_where_there_is_nothing_to_gain(tmp_path: Path) -> None:
    text = "g (float[b, 600] x) => (float[b, 600] y) { y = MatMul (x, w) }"
    source = write(tmp_path / "m.onnx", text, {"w": np.ones((600, 600), np.float32) + np.eye(600, dtype=np.float32)})
    onnx.save(onnx.load(source), tmp_path / "e.onnx", save_as_external_data=True, location="e.data")
    (tmp_path / "sub").mkdir()
    report = onnxtool.optimize(tmp_path / "e.onnx", tmp_path / "sub" / "out.onnx", bench=False)
    assert report.verdict.startswith("nothing to gain")
    feeds = {"x": np.ones((1, 600), np.float32)}
    values = [onnxtool.run(p, data=feeds).values["y"] for p in (tmp_path / "e.onnx", tmp_path / "sub" / "out.onnx")]
    np.testing.assert_array_equal(*values)


@pytest.mark.parametrize(("asked", "kept"), [({}, True), ({"input_shapes": {"x": (2, 3)}}, False)])
def test_a_result_that_is_slower_for_sure_gives_way_to_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], kept: bool
) -> None:
    text = "g (float[b, 3] x) => (float[b, 3] y) { i = Identity (x) y = Relu (i) }"
    source = write(tmp_path / "m.onnx", text)
    slow = LatencyRatio(1.5, 1.4, 1.6, 1.0, 1.5)
    monkeypatch.setattr("onnxtool.optimization.optimize.measure_ratio", lambda *_: slow)
    monkeypatch.setattr("onnxtool.optimization.pass_bisection.confirmed_ratio", lambda *_: slow)
    report = onnxtool.optimize(source, tmp_path / "out.onnx", **asked)
    assert report.ok
    assert ((tmp_path / "out.onnx").read_bytes() == source.read_bytes()) == kept
    assert ("slower than its source" in report.verdict) == kept
    assert report.latency is not None
    assert report.latency.value == (1.0 if kept else 1.5)


def test_a_frozen_dim_is_written_even_where_nothing_else_changes(tmp_path: Path) -> None:
    source = write(tmp_path / "m.onnx", "g (float[b, 3] x) => (float[b, 3] y) { y = Relu (x) }")
    onnxtool.optimize(source, tmp_path / "out.onnx", input_shapes={"x": (2, 3)})
    assert onnx.load(tmp_path / "out.onnx").graph.input[0].type.tensor_type.shape.dim[0].dim_value == 2


def test_nodes_lose_their_names_where_the_file_would_be_larger_else(tmp_path: Path, added: Any) -> None:
    added(Growing())
    source = write(tmp_path / "m.onnx", "g (float[b, 3] x) => (float[b, 3] y) { a = Relu (x) y = Abs (a) }")
    lengthen_names(source, 100)
    report = onnxtool.optimize(source, tmp_path / "out.onnx", bench=False)
    written = onnx.load(tmp_path / "out.onnx").graph
    assert [n.op_type for n in written.node] == ["Max", "Abs"]
    assert not written.node[0].name
    assert report.after.bytes <= report.before.bytes


def test_provenance_is_left_out_where_it_would_make_the_file_larger(tmp_path: Path) -> None:
    text = "g (float[b, 8192] x) => (float[b, 8192] y) { i = Identity (x) y = Add (i, w) }"
    source = write(tmp_path / "m.onnx", text, {"w": np.arange(8192, dtype=np.float32)})
    before = source.stat().st_size
    report = onnxtool.optimize(source, source, level="basic")
    assert report.after.nodes == 1
    assert not read_history(io.load(source).metadata_props)
    assert source.stat().st_size == report.after.bytes
    assert report.after.bytes <= before + 92  # at most the digest


def test_what_was_optimized_does_not_grow_when_it_is_again(tmp_path: Path) -> None:
    """Weights of one repeated number, of which the first run writes out as many as there is room for."""
    light = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / "light_inception_v1.onnx"
    sizes, counts = [light.stat().st_size], []
    for source, target in ((light, tmp_path / "once.onnx"), (tmp_path / "once.onnx", tmp_path / "twice.onnx")):
        report = onnxtool.optimize(source, target, verify=False, bench=False)
        sizes.append(target.stat().st_size)
        counts.append(report.after.nodes)
        graph = onnx.load(target).graph
        read = {name for node in graph.node for name in node.input}
        assert read >= {i.name for i in graph.initializer}
    assert sizes == sorted(sizes, reverse=True)
    assert counts[0] == counts[1] < 237


# Both pairs of outputs have one that no certificate covers (NonZero), and one that no input moves.
@pytest.mark.parametrize(("made", "told"), [("Relu", "zero"), ("Log", "not finite"), ("Sign", "constant")])
def test_an_output_of_which_no_run_tells_anything_is_not_written(tmp_path: Path, made: str, told: str) -> None:
    text = f"""g (float[b, 4] x) => (float[b, 4] y, int64[2, k] z) {{
        a = Identity (x) one = Constant <value_float = 1.0> () e = Abs (a) o = Max (e, one) n = Neg (o) y = {made} (n)
        z = NonZero (a) }}"""
    source, output = write(tmp_path / "m.onnx", text), tmp_path / "o.onnx"
    with pytest.raises(VerdictError, match=rf"not tested: 'y' was {told} in every run.*--allow-unproven"):
        onnxtool.optimize(source, output, bench=False)
    assert not output.exists()
    report = onnxtool.optimize(source, output, bench=False, allow_unproven=True)
    assert not report.ok and output.exists() and report.comparison is not None
    assert [o.untested for o in report.comparison.outputs] == [told, ""]


def test_outputs_that_no_number_of_an_input_reaches_may_stay_the_same(tmp_path: Path) -> None:
    text = """g (float[b, 4] x) => (float[2] y, int64[2, k] z) {
        a = Identity (x) one = Constant <value_floats = [1.0, 1.0]> () y = Neg (one) z = NonZero (a) }"""
    report = onnxtool.optimize(write(tmp_path / "m.onnx", text), tmp_path / "o.onnx", bench=False)
    assert report.ok and report.comparison is not None and report.comparison.verdict == "tested"
