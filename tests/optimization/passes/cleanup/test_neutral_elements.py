"""Arithmetic with a neutral element."""

from __future__ import annotations

import numpy as np
import pytest

F = np.float32
CONSTANTS = {
    "one": np.array(1.0, F),
    "ones": np.ones(4, F),
    "zero": np.array(0.0, F),
    "zeros": np.zeros((1, 4), F),
    "almost": np.array([1, 1, 1, 1.0000001], F),
    "wide": np.ones((3, 1, 4), F),
}


@pytest.mark.parametrize("step", ["Mul (x, one)", "Mul (ones, x)", "Div (x, ones)", "Pow (x, one)"])
def test_exact_ones_go_at_level_basic(optimized, step: str) -> None:
    text = f"g (float[b, 4] x) => (float[b, 4] y) {{ a = {step} y = Relu (a) }}"
    assert optimized(text, weights=CONSTANTS, level="basic").after == {"Relu": 1}


@pytest.mark.parametrize(
    "step", ["Mul (x, zero)", "Div (one, x)", "Pow (one, x)", "Mul (x, almost)", "Sub (zero, x)", "Add (x, one)"]
)
def test_other_constants_stay(optimized, step: str) -> None:
    text = f"g (float[b, 4] x) => (float[b, 4] y) {{ a = {step} y = Relu (a) }}"
    assert len(optimized(text, weights=CONSTANTS).after) == 2


def test_a_one_that_widens_the_result_stays(optimized) -> None:
    text = "g (float[1, 4] x) => (float[3, 1, 4] y) { a = Mul (x, wide) y = Relu (a) }"
    assert optimized(text, weights=CONSTANTS).after == {"Mul": 1, "Relu": 1}


@pytest.mark.parametrize("step", ["Add (x, zeros)", "Add (zero, x)", "Sub (x, zero)"])
def test_adding_zero_goes_at_level_extended(optimized, step: str) -> None:
    # -0.0 + 0.0 is 0.0, so this is not exact to the last bit.
    text = f"g (float[b, 4] x) => (float[b, 4] y) {{ a = {step} y = Abs (a) }}"
    assert optimized(text, weights=CONSTANTS, level="basic").after == {step.split(" ")[0]: 1, "Abs": 1}
    assert optimized(text, weights=CONSTANTS, exact=False).after == {"Abs": 1}


def test_adding_an_integer_zero_is_exact(optimized) -> None:
    text = "g (int64[b, 4] x) => (int64[b, 4] y) { a = Add (x, none) y = Abs (a) }"
    assert optimized(text, weights={"none": np.array(0)}, level="basic").after == {"Abs": 1}


def test_logic(optimized) -> None:
    text = "g (bool[b, 4] x) => (bool[b, 4] y) { a = And (x, t) c = Or (f, a) y = Not (c) }"
    weights = {"t": np.array([[True] * 4]), "f": np.array(False)}
    assert optimized(text, weights=weights, level="basic").after == {"Not": 1}


def test_a_selection_that_is_always_the_same(optimized) -> None:
    text = "g (float[b, 4] x, float[b, 4] z) => (float[b, 4] y) { a = Where (c, x, z) y = Relu (a) }"
    assert optimized(text, weights={"c": np.array([[True] * 4])}).after == {"Relu": 1}
    assert optimized(text, weights={"c": np.array([[True, True, False, True]])}).after == {"Where": 1, "Relu": 1}


def test_a_mask_that_is_zero_everywhere_is_seen_through(optimized) -> None:
    text = """g (float[b, s] x) => (float[b, s] y) {
        d = Shape (x) t = Expand (true, d) m = Where (t, zero, inf) a = Add (x, m) y = Abs (a)
    }"""
    weights = {"true": np.array([[True]]), "zero": np.array(0.0, F), "inf": np.array(-np.inf, F)}
    assert optimized(text, weights=weights, exact=False).after == {"Abs": 1}


def test_a_selection_that_broadcasts_stays(optimized) -> None:
    text = "g (float[1, 4] x, float[b, 4] z) => (float[b, 4] y) { a = Where (c, x, z) y = Relu (a) }"
    assert optimized(text, weights={"c": np.array([[True] * 4])}).after == {"Where": 1, "Relu": 1}


_RECURRENT = """
g (float[t, b, 3] x) => (float[t, 1, b, 4] y)
<int64[1] one = {1}, int64[1] four = {4}, int64[1] batch_axis = {1}>
{
    s = Shape (x)
    b = Gather (s, batch_axis)
    dims = Concat <axis = 0> (one, b, four)
    h = ConstantOfShape (dims)
    STEP
}
"""


@pytest.mark.parametrize(
    ("step", "gates"),
    [
        ("y, y_h, y_c = LSTM <hidden_size = 4> (x, w, r, , , h, h)", 4),
        ("y, y_h = GRU <hidden_size = 4> (x, w, r, , , h)", 3),
        ("y, y_h = RNN <hidden_size = 4> (x, w, r, bias, , h)", 1),
    ],
)
def test_zero_states_of_recurrent_layers_go(optimized, step: str, gates: int) -> None:
    random = np.random.default_rng(0)
    weights = {
        "w": random.normal(size=(1, 4 * gates, 3)).astype(F),
        "r": random.normal(size=(1, 4 * gates, 4)).astype(F),
        "bias": np.zeros((1, 8 * gates), F),
    }
    result = optimized(_RECURRENT.replace("STEP", step), weights=weights, level="basic")
    assert list(result.after) == [step.partition("= ")[2].split(" ")[0]]


def test_other_states_of_recurrent_layers_stay(optimized) -> None:
    random = np.random.default_rng(0)
    weights = {
        "w": random.normal(size=(1, 16, 3)).astype(F),
        "r": random.normal(size=(1, 16, 4)).astype(F),
        "h": random.normal(size=(1, 5, 4)).astype(F),
        "zero": np.zeros((1, 5, 4), F),
    }
    text = "g (float[t, 5, 3] x) => (float[t, 1, 5, 4] y) { y, n, c = LSTM <hidden_size = 4> (x, w, r, , , h, zero) }"
    result = optimized(text, weights=weights, level="basic")
    assert list(result.proto.graph.node[0].input)[5:] in (["h"], ["h", ""])
