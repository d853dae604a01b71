"""Model-local functions and constant conditions."""

from __future__ import annotations

import numpy as np
import onnx

FUNCTION = """<ir_version: 10, opset_import: ["" : 20, "local" : 1]>
g (float[b, 3] x) => (float[b, 3] y) { a = local.twice <f = 2.0> (x) y = local.twice <f = 3.0> (a) }
<opset_import: ["" : 20], domain: "local"> twice <f> (v) => (w) {
    c = Constant <value_float: float = @f> () d = Mul (v, c) w = Relu (d)
}"""


def test_inlines_functions_with_their_attributes(optimized) -> None:
    result = optimized(onnx.parser.parse_model(FUNCTION))
    assert result.after == {"Mul": 2, "Relu": 2}
    assert not result.proto.functions


def test_a_function_of_another_opset_is_left_alone(optimized) -> None:
    text = FUNCTION.replace('<opset_import: ["" : 20], domain', '<opset_import: ["" : 18], domain')
    result = optimized(onnx.parser.parse_model(text), compare=False)
    assert len(result.proto.functions) == 1


def test_takes_the_branch_of_a_constant_condition(optimized) -> None:
    text = """g (float[b, 2] x) => (float[b, 2] y) {
        a = Exp (x)
        y = If (c) <
            then_branch = t () => (float[b, 2] t) { k = Constant <value = float {2.0}> () s = Mul (a, k) t = Neg (s) },
            else_branch = e () => (float[b, 2] t) { t = Abs (a) }
        >
    }"""
    yes = optimized(text, weights={"c": np.array(True)})
    no = optimized(text, weights={"c": np.array(False)})
    assert yes.after == {"Exp": 1, "Mul": 1, "Neg": 1}
    assert no.after == {"Exp": 1, "Abs": 1}


def test_nested_constant_conditions_vanish(optimized) -> None:
    result = optimized(
        """g (float[b, 2] x) => (float[b, 2] y) {
            y = If (c) <
                then_branch = t () => (float[b, 2] t) {
                    t = If (d) <
                        then_branch = i () => (float[b, 2] i) { i = Exp (x) },
                        else_branch = j () => (float[b, 2] j) { j = Identity (x) }
                    >
                },
                else_branch = e () => (float[b, 2] e) { e = Abs (x) }
            >
        }""",
        weights={"c": np.array(True), "d": np.array(False)},
    )
    assert result.after == {"Identity": 1}


def test_a_computed_condition_stays(optimized) -> None:
    result = optimized(
        """g (bool c, float[b, 2] x) => (float[b, 2] y) {
            y = If (c) <
                then_branch = t () => (float[b, 2] t) { t = Exp (x) },
                else_branch = e () => (float[b, 2] e) { e = Abs (x) }
            >
        }""",
        feeds=[{"c": np.array(flag), "x": np.ones((2, 2), np.float32)} for flag in (True, False)],
    )
    assert result.rewrites == 0


def test_loops_keep_their_state(optimized) -> None:
    result = optimized(
        """g (int64 n, float[2] x) => (float[2] y, float[n, 2] z) {
            cond = Constant <value = bool {1}> ()
            y, z = Loop (n, cond, x) <body = loop (int64 i, bool go, float[2] state)
                => (bool on, float[2] out, float[2] each) {
                on = Identity (go) one = Constant <value = float {1.0}> () two = Exp (one)
                a = Identity (state) out = Add (a, two) each = Identity (out)
            }>
        }""",
        feeds=[{"n": np.array(k), "x": np.ones(2, np.float32)} for k in (0, 1, 4)],
    )
    assert "Exp" not in result.after


def test_branches_may_use_the_same_names(optimized) -> None:
    # Valid ONNX, but nodes can only move between graphs when every name is taken once.
    result = optimized(
        """g (bool c, float[b, 2] x) => (float[b, 2] y) {
            y = If (c) <
                then_branch = t () => (float[b, 2] r) { k = Constant <value = float {2.0}> () r = Mul (x, k) },
                else_branch = e () => (float[b, 2] r) { k = Constant <value = float {3.0}> () r = Mul (x, k) }
            >
        }""",
        feeds=[{"c": np.array(flag), "x": np.ones((2, 2), np.float32)} for flag in (True, False)],
    )
    assert result.after == {"If": 1, "Mul": 2}
