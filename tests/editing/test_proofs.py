"""An edit that did something else than it should is not written: planted faults, by what they would pass for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxtool.editing import proofs
from onnxtool.editing.context import EditContext
from onnxtool.editing.proofs import compare, converted_outputs, probes_of, same_graph, same_outputs, verify_standard
from onnxtool.errors import VerdictError
from onnxtool.runtime.session.session import EXACT

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def model(nodes: str, inputs: str = "float[n, 3] x", outputs: str = "float[n, 3] y") -> ir.Model:
    text = f'<ir_version: 9, opset_import: ["" : 18]> g ({inputs}) => ({outputs}) {{ {nodes} }}'
    return ir.from_proto(onnx.parser.parse_model(text))


@pytest.fixture
def context() -> EditContext:
    return EditContext(EXACT)


PLAIN = "y = Neg(x)"
NEARLY = "h = Neg(x) c = Constant <value_float = 1.0000002> () y = Mul(h, c)"
RANDOM = "r = RandomNormalLike(x) y = Add(x, r)"
LOOP = """k = Constant <value_int = 2> () t = Constant <value = bool {1}> ()
    y = Loop(k, t, x) <body = b (int64 i, bool c, float[n, 3] s) => (bool d, float[n, 3] u)
    { d = Identity(c) r = RandomNormalLike(s) u = Add(s, r) }>"""


@pytest.mark.parametrize(
    ("after", "outputs", "message"),
    [
        ("y = Abs(x)", "float[n, 3] y", "the proof fails: output 'y' differs"),
        (NEARLY, "float[n, 3] y", "the proof fails: output 'y' differs"),  # in the last bit
        ("z = Neg(x)", "float[n, 3] z", "instead of y"),
        ("y = Neg(x) z = Neg(y)", "float[n, 3] y, float[n, 3] z", "does not run"),
        ("c = Constant <value_floats = [1.0, 2.0]> () y = Add(x, c)", "float[n, 3] y", "does not run"),
    ],
)
def test_what_gives_something_else_is_refused(after: str, outputs: str, message: str, context: EditContext) -> None:
    with pytest.raises(VerdictError, match=message):
        same_outputs(model(PLAIN), model(after, outputs=outputs), context)


def test_within_the_tolerance_where_bits_are_not_asked_for(context: EditContext) -> None:
    found = same_outputs(model(PLAIN), model(NEARLY), context, exact=False)
    assert not found.exact and 0 < found.max_abs < 1e-5 and found.runs > 1
    assert same_outputs(model(PLAIN), model(PLAIN), context).exact


def test_only_the_same_function_on_the_same_inputs_is_certified(context: EditContext) -> None:
    same = same_outputs(model(PLAIN), model("h = Neg(x) y = Identity(h)"), context)
    assert same.certified
    turned = same_outputs(
        model(PLAIN), model("y = Abs(x)"), context, feeds=lambda f: {"x": np.abs(f["x"])}, expect=_sizes_of
    )
    assert not turned.certified  # a change on purpose
    counted = "s = NonZero(x) y = Cast<to = 1>(s)"
    kept = same_outputs(
        model(counted, outputs="float[2, m] y"), model(counted + " z = Neg(y)", outputs="float[2, m] y"), context
    )
    assert not kept.certified  # what exact arithmetic does not decide


def _sizes_of(feeds: Mapping[str, Any], _: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"y": np.abs(feeds["x"])}


def test_a_model_that_gives_other_bits_each_time_is_held_to_the_tolerance(
    context: EditContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    unsteady = EditContext(context.options)
    runner, generator = unsteady.runner(model(PLAIN)), np.random.default_rng(0)

    class Unsteady:
        inputs, outputs = runner.inputs, runner.outputs

        def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
            return {"y": -feeds["x"] * np.float32(1 + 1e-5 * generator.random())}

    monkeypatch.setattr(unsteady, "runner", lambda *_: Unsteady())
    assert not same_outputs(model(PLAIN), model(PLAIN), unsteady).exact


def test_draws_are_fixed_in_both_or_only_run(context: EditContext) -> None:
    with pytest.raises(VerdictError, match="differs"):
        same_outputs(model(RANDOM), model(RANDOM.replace("Add", "Sub")), context)
    assert same_outputs(model(RANDOM), model(RANDOM), context).compared and context.warnings
    with pytest.raises(VerdictError, match="assumed, and not proven"):
        same_outputs(model(LOOP), model(LOOP), context)
    context.allow_unproven = True
    found = same_outputs(model(LOOP), model(LOOP), context)
    assert not found.compared and "RandomNormalLike" in found.unproven


def test_what_no_run_told_anything_of_is_an_assumption(context: EditContext) -> None:
    silent = model("z = Sub(x, x) y = Div(z, z)")
    with pytest.raises(VerdictError, match="assumed, and not proven: output 'y' has not changed"):
        compare(silent, [({"x": X}, {"y": np.full((2, 3), np.nan, np.float32)})], context, "c")
    context.allow_unproven = True
    compare(silent, [({"x": X}, {"y": np.full((2, 3), np.nan, np.float32)})], context, "c")
    assert context.assumptions and any("no finite number" in line for line in context.warnings)


def test_on_inputs_of_its_own_kind_the_new_model_gives_the_same(context: EditContext) -> None:
    before, after = model(PLAIN), model("y = Neg(x)", "float[3, n] x", "float[3, n] y")

    def turn(feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"x": feeds["x"].T.copy()}

    with pytest.raises(VerdictError, match="shape"):
        converted_outputs(before, after, context, "c", forward=turn, back=turn)
    turned = model("h = Neg(x) y = Transpose(h)", "float[3, n] x")
    assert converted_outputs(before, turned, context, "c", forward=turn, back=turn).exact


def test_a_graph_is_unchanged_with_its_very_weights() -> None:
    made = model("w = Constant <value_floats = [1.0, 2.0, 3.0]> () y = Add(x, v)", "float[n, 3] x, float[3] v")
    large = np.zeros(1 << 18, np.float32)
    value = ir.Value(name="u", const_value=ir.tensor(large, name="u"))
    made.graph.register_initializer(value)
    copy = made.clone()
    copy.doc_string = copy.graph.doc_string = "another text"
    copy.graph.initializers["u"].const_value = value.const_value
    assert same_graph(made, copy).certified
    copy.graph.initializers["u"].const_value = ir.tensor(large + 1, name="u")
    with pytest.raises(VerdictError, match="graph was changed"):
        same_graph(made, copy)
    copy.graph.initializers["u"].const_value = value.const_value
    copy.graph.node(1).op_type = "Sub"
    with pytest.raises(VerdictError, match="graph was changed"):
        same_graph(made, copy)


def test_inputs_are_sought_for_outputs_that_have_no_number_yet(context: EditContext) -> None:
    loud = "k = Constant <value_float = 50.0> () h = Abs(x) d = Sub(h, k) y = Sqrt(d)"  # of small numbers NaN
    found = probes_of(model(loud), context)
    assert any(np.isfinite(p.outputs["y"]).any() for p in found)


def test_what_breaks_the_standard_is_refused() -> None:
    verify_standard(model(PLAIN))
    broken = model(PLAIN)
    broken.graph.node(0).op_type = "NoSuchOperator"
    with pytest.raises(VerdictError, match="breaks the standard"):
        verify_standard(broken)


def test_nothing_is_certified_that_is_not() -> None:
    a, b = model(PLAIN), model("y = Abs(x)")
    assert proofs._are_certified(a, a, [{"x": X}]) and not proofs._are_certified(a, b, [{"x": X}])
