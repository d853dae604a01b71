"""Multiplications by one number, moved into the weights that they come from."""

from __future__ import annotations

import numpy as np
import pytest

GENERATOR = np.random.default_rng(0)
WEIGHTS = {
    "w": GENERATOR.normal(size=(8, 8)).astype(np.float32),
    "k": GENERATOR.normal(size=(8, 8)).astype(np.float32),
    "b": GENERATOR.normal(size=8).astype(np.float32),
    "heads": np.array([0, 0, 2, 4]),
    "scale": np.array(0.5, np.float32),
    "row": GENERATOR.normal(size=4).astype(np.float32),
    "zero": np.array(0.0, np.float32),
}
HEAD = "g (float[b0, s0, 8] x) => (float[p, q, r, t] y) { m = MatMul (x, w) a = Add (m, b) h = Reshape (a, heads) "
HEAD += "t0 = Transpose <perm = [0, 2, 1, 3]> (h) "


@pytest.mark.parametrize("step", ["Mul (t0, scale)", "Mul (scale, t0)", "Div (t0, scale)"])
def test_through_reshape_transpose_and_bias(optimized, step: str) -> None:
    result = optimized(f"{HEAD} c = {step} y = Relu (c) }}", weights=WEIGHTS, exact=False)
    assert result.after == {"MatMul": 1, "Add": 1, "Reshape": 1, "Transpose": 1, "Relu": 1}


def test_behind_a_product_of_two_computed_tensors(optimized) -> None:
    result = optimized(
        """g (float[b0, s0, 8] x) => (float[b0, s0, s0] y) {
            q = MatMul (x, w) k0 = MatMul (x, k) kt = Transpose <perm = [0, 2, 1]> (k0) p = MatMul (q, kt)
            c = Mul (p, scale) y = Softmax (c)
        }""",
        weights=WEIGHTS,
        exact=False,
    )
    assert "Mul" not in result.after


@pytest.mark.parametrize(
    "rest",
    [
        "c = Mul (t0, row) y = Relu (c)",  # one number for each column
        "c = Div (scale, t0) y = Relu (c)",
        "c = Mul (t0, zero) y = Relu (c)",  # 0 times infinity is not zero
        "c = Mul (t0, scale) y = Add (c, t0)",  # somebody reads it unscaled
        "r = Relu (t0) c = Mul (r, scale) y = Neg (c)",
    ],
)
def test_what_cannot_be_moved_stays(optimized, rest: str) -> None:
    result = optimized(f"{HEAD} {rest} }}", weights=WEIGHTS, exact=False)
    assert result.after.get("Mul", 0) + result.after.get("Div", 0) == 1


def test_through_a_part_that_is_sliced_out(optimized) -> None:
    result = optimized(
        """g (float[b0, 8] x) => (float[b0, 4] y) {
            m = MatMul (x, w) s = Slice (m, from, to, axis) c = Mul (s, scale) y = Relu (c)
        }""",
        weights=WEIGHTS | {"from": np.array([2]), "to": np.array([6]), "axis": np.array([1])},
        exact=False,
    )
    assert result.after == {"MatMul": 1, "Slice": 1, "Relu": 1}


def test_not_through_a_split_whose_other_part_is_read(optimized) -> None:
    result = optimized(
        """g (float[b0, 8] x) => (float[b0, 4] y, float[b0, 4] z) {
            m = MatMul (x, w) s, z = Split <axis = 1, num_outputs = 2> (m) c = Mul (s, scale) y = Relu (c)
        }""",
        weights=WEIGHTS,
        exact=False,
    )
    assert result.after == {"MatMul": 1, "Split": 1, "Mul": 1, "Relu": 1}


def test_never_at_level_basic(optimized) -> None:
    result = optimized(f"{HEAD} c = Mul (t0, scale) y = Relu (c) }}", weights=WEIGHTS, level="basic")
    assert result.after["Mul"] == 1


def test_a_turned_operand_keeps_its_own_transpose(optimized) -> None:
    # The runtime makes it part of the product; merged with the one before it, it would have to be carried out.
    result = optimized(
        """g (float[b0, s0, 2, 4] x, float[b0, 2, s0, 4] z) => (float[b0, 2, s0, s0] y) {
            t0 = Transpose <perm = [0, 2, 1, 3]> (x) t1 = Transpose <perm = [0, 1, 3, 2]> (t0) y = MatMul (z, t1)
        }"""
    )
    assert result.after == {"Transpose": 2, "MatMul": 1}
