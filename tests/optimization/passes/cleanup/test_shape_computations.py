"""Shape arithmetic with dims that are not known: folded where the result is the same at every size."""

from __future__ import annotations

import numpy as np
import pytest


def test_a_computed_flatten_becomes_a_constant_reshape(optimized) -> None:
    result = optimized(
        """g (float[b, 3, 4] x) => (float[b, 12] y) {
            s = Shape (x) i = Constant <value = int64[1] {0}> () n = Gather (s, i)
            rest = Constant <value = int64[1] {-1}> () t = Concat <axis = 0> (n, rest) y = Reshape (x, t)
        }"""
    )
    assert result.after == {"Reshape": 1}


def test_heads_are_split_and_joined_by_constant_reshapes(optimized) -> None:
    result = optimized(
        """g (float[b, s, 12] x) => (float[b, s, 12] y) {
            d = Shape (x) zero = Constant <value = int64 {0}> () one = Constant <value = int64 {1}> ()
            n = Gather (d, zero) m = Gather (d, one) axis = Constant <value = int64[1] {0}> ()
            nu = Unsqueeze (n, axis) mu = Unsqueeze (m, axis)
            h = Constant <value = int64[2] {3, 4}> () t = Concat <axis = 0> (nu, mu, h)
            r = Reshape (x, t) p = Transpose <perm = [0, 2, 1, 3]> (r) q = Transpose <perm = [0, 2, 1, 3]> (p)
            w = Constant <value = int64[1] {12}> () u = Concat <axis = 0> (nu, mu, w) v = Reshape (q, u)
            y = Relu (v)
        }"""
    )
    assert result.after == {"Relu": 1}


def test_a_shape_that_depends_on_two_dims_at_once_stays(optimized) -> None:
    result = optimized(
        """g (float[b, s] x, float[m] z) => (float[p, q] y) {
            d = Shape (x) y = Expand (z, d)
        }""",
        feeds=[{"x": np.ones((2, k), np.float32), "z": np.arange(k, dtype=np.float32)} for k in (3, 5)],
    )
    assert result.after == {"Shape": 1, "Expand": 1}


def test_static_dims_fold_even_beside_dynamic_ones(optimized) -> None:
    result = optimized(
        """g (float[b, 7] x) => (float[b, 7] y) {
            d = Shape (x) i = Constant <value = int64 {1}> () n = Gather (d, i) f = Cast <to = 1> (n)
            y = Div (x, f)
        }"""
    )
    assert result.after == {"Div": 1}


def test_the_same_size_is_computed_once(optimized) -> None:
    result = optimized(
        """g (float[b, s] x, float[b, s] z) => (float[b, s] y, int64[2] n) {
            d = Shape (x) e = Shape (z) c = ConstantOfShape <value = float[1] {1.0}> (e)
            a = Add (x, c) f = ConstantOfShape <value = float[1] {2.0}> (d) y = Mul (a, f) n = Identity (d)
        }"""
    )
    assert result.after["Shape"] == 1


def test_a_run_of_dims_is_read_with_one_shape(optimized) -> None:
    result = optimized(
        """g (float[b, s, 4] x) => (float[b, s] y) {
            d = Shape (x) zero = Constant <value = int64[1] {0}> () one = Constant <value = int64[1] {1}> ()
            n = Gather (d, zero) m = Gather (d, one) t = Concat <axis = 0> (n, m)
            y = ConstantOfShape <value = float[1] {1.0}> (t)
        }"""
    )
    assert result.after == {"Shape": 1, "ConstantOfShape": 1}


def test_below_opset_15_shape_has_no_start(optimized) -> None:
    result = optimized(
        """g (float[b, s, 4] x) => (float[b, s] y) {
            d = Shape (x) zero = Constant <value = int64[1] {0}> () one = Constant <value = int64[1] {1}> ()
            n = Gather (d, zero) m = Gather (d, one) t = Concat <axis = 0> (n, m)
            y = ConstantOfShape <value = float[1] {1.0}> (t)
        }""",
        opset=13,
    )
    assert all(not n.attribute for n in result.proto.graph.node if n.op_type == "Shape")


def test_an_expand_before_a_broadcast_is_left_out(optimized) -> None:
    result = optimized(
        """g (float[b, 1, s] x, float[b, 4, s] z) => (float[b, 4, s] y) {
            d = Shape (z) e = Expand (x, d) y = Add (e, z)
        }"""
    )
    assert result.after == {"Add": 1}


def test_an_expand_of_an_exponent_stays(optimized) -> None:
    # The runtime raises to one number in another way than to many.
    result = optimized(
        """g (float[b, 4] x, float[b, 1] e) => (float[b, 4] y) {
            d = Shape (x) w = Expand (e, d) y = Pow (x, w)
        }"""
    )
    assert result.after == {"Shape": 1, "Expand": 1, "Pow": 1}


def test_an_expand_that_decides_the_shape_stays(optimized) -> None:
    result = optimized(
        """g (float[b, 1, s] x, float[b, 4, s] z) => (float[b, 4, s] y) {
            d = Shape (z) e = Expand (x, d) y = Relu (e)
        }"""
    )
    assert result.after == {"Shape": 1, "Expand": 1, "Relu": 1}


@pytest.mark.parametrize("opset", [9, 11, 13, 20])
def test_reshape_chains_with_zero_and_minus_one(optimized, opset: int) -> None:
    # Defect elsewhere: a 0 of the second Reshape was read against the wrong input, and allowzero was added below 14.
    result = optimized(
        """g (float[b, 6, 4] x) => (float[b, 2, 3, 4] y) {
            a = Reshape (x, first) c = Reshape (a, second) y = Relu (c)
        }""",
        weights={"first": np.array([0, 3, -1]), "second": np.array([0, 2, 3, 4])},
        opset=opset,
        ir_version=4,
    )
    assert result.after == {"Reshape": 1, "Relu": 1}
    assert all(not n.attribute for n in result.proto.graph.node)


def test_reshape_to_zero_means_zero_with_allowzero(optimized) -> None:
    result = optimized(
        """g (float[0, 3] x) => (float[3, 0] y) { a = Reshape <allowzero = 1> (x, t) y = Relu (a) }""",
        weights={"t": np.array([3, 0])},
    )
    assert result.after == {"Reshape": 1, "Relu": 1}


def test_squeeze_and_unsqueeze_cancel(optimized) -> None:
    result = optimized(
        """g (float[b, 1, 4] x) => (float[b, 1, 4] y) { a = Squeeze (x, one) c = Unsqueeze (a, one) y = Relu (c) }""",
        weights={"one": np.array([1])},
    )
    assert result.after == {"Relu": 1}


def test_a_data_dependent_size_is_not_taken_for_a_dim(optimized) -> None:
    result = optimized(
        """g (float[b] x) => (float[n] y) {
            k = NonZero (x) d = Shape (k) i = Constant <value = int64[1] {1}> () n = Gather (d, i)
            y = ConstantOfShape <value = float[1] {3.0}> (n)
        }""",
        feeds=[{"x": np.array(v, np.float32)} for v in ([1, 0, 2], [0, 0, 0], [1, 1, 1])],
    )
    assert "NonZero" in result.after


def test_a_loop_that_grows_its_state_is_not_believed_the_first_shape(optimized) -> None:
    result = optimized(
        """g (int64 n, float[1] x) => (float[m] y) {
            cond = Constant <value = bool {1}> ()
            y = Loop (n, cond, x) <body = loop (int64 i, bool go, float[1] state) => (bool on, float[p] out) {
                on = Identity (go) d = Shape (state) f = Cast <to = 1> (d) out = Concat <axis = 0> (state, f)
            }>
        }""",
        feeds=[{"n": np.array(k), "x": np.ones(1, np.float32)} for k in (0, 1, 4)],
    )
    assert result.after["Shape"] == 1
