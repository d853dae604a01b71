"""Dims that exporters merge, or add with size 1, around transposes and matrix products."""

from __future__ import annotations

import numpy as np
import pytest

GENERATOR = np.random.default_rng(0)
DROP, SPLIT, FLAT, BIAS = (
    "drop-unit-dims",
    "split-merged-batches",
    "unflatten-products",
    "move-bias-before-reshape",
)
CLEAN = ("eliminate-dead-code", "simplify-reshapes", "collapse-transposes", "collapse-batched-transposes")


def normal(*shape: int) -> np.ndarray:
    return GENERATOR.normal(size=shape).astype(np.float32)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


UNITS = """g (float[b, s, 12] x) => (float[p, q, r] y) {
    a = Reshape (x, wide) c = Transpose <perm = [0, 3, 2, 4, 1]> (a) d = Reshape (c, narrow) y = Relu (d)
}"""


def test_dims_of_size_one_are_not_transposed(optimized) -> None:
    weights = {"wide": ints(0, 0, 1, 4, 3), "narrow": ints(-1, 12, 1)}
    result = optimized(UNITS, DROP, weights=weights)
    assert result.after == {"Reshape": 2, "Transpose": 1, "Relu": 1}
    turn = next(n for n in result.proto.graph.node if n.op_type == "Transpose")
    assert list(turn.attribute[0].ints) == [0, 2, 3, 1]


def test_a_transpose_that_moves_nothing_else_goes(optimized) -> None:
    text = """g (float[b, 1, s, 6] x) => (float[p, q, r] y) {
        a = Squeeze (x, one) u = Unsqueeze (a, two) c = Transpose <perm = [0, 2, 1, 3]> (u)
        d = Reshape (c, narrow) y = Relu (d)
    }"""
    result = optimized(text, DROP, weights={"one": ints(1), "two": ints(2), "narrow": ints(-1, 2, 3)})
    assert "Transpose" not in result.after


def test_a_transpose_that_others_read_with_its_unit_dims_stays(optimized) -> None:
    text = UNITS.replace("float[p, q, r] y", "float[p, q, r] y, float[e, f, g, h, i] z").replace(
        "y = Relu", "z = Relu (c) y = Relu"
    )
    result = optimized(text, DROP, weights={"wide": ints(0, 0, 1, 4, 3), "narrow": ints(-1, 12, 1)})
    assert result.rewrites == 0


def test_dims_of_the_wide_tensor_are_read_off_the_narrow_one(optimized) -> None:
    text = """g (float[b, s, 12] x) => (float[p, q, r] y) {
        a = Reshape (x, wide) c = Transpose <perm = [0, 3, 2, 4, 1]> (a)
        d = Shape <start = 0, end = 2> (c) n = ReduceProd <keepdims = 1> (d) t = Concat <axis = 0> (n, open)
        e = Reshape (c, t) y = Relu (e)
    }"""
    result = optimized(text, DROP, weights={"wide": ints(0, 0, 1, 4, 3), "open": ints(3, -1)}, lengths=(5, 2, 9))
    assert result.rewrites == 1
    assert len(next(n for n in result.proto.graph.node if n.op_type == "Transpose").attribute[0].ints) == 4


# [-1, 0, 6] would copy the 4, so the lengths are read off the tensor.
MERGED = """g (float[b, 4, s, 6] x, float[b, 4, t, 6] z) => (float[b, 4, s, t] y) {
    d = Shape (x) e = Shape (z) i = Gather (d, front) j = Gather (e, third) k = Gather (d, third)
    m = Concat <axis = 0> (open, k, six) n = Concat <axis = 0> (open, j, six)
    l = Reshape (x, m) r = Reshape (z, n) u = Transpose <perm = [0, 2, 1]> (r)
    p = MatMul (l, u) w = Concat <axis = 0> (i, j) q = Reshape (p, w) y = Softmax (q)
}"""
NUMBERS = {"front": ints(0, 1, 2), "third": ints(2), "open": ints(-1), "six": ints(6)}


def test_batches_stay_apart(optimized) -> None:
    result = optimized(MERGED, SPLIT, *CLEAN, weights=NUMBERS)
    assert result.after == {"Transpose": 1, "MatMul": 1, "Softmax": 1}


def test_batches_merged_from_different_dims_stay_merged(optimized) -> None:
    text = """g (float[2, 3, s, 6] x, float[3, 2, 6, 5] z) => (float[2, 3, s, 5] y) {
        l = Reshape (x, a) r = Reshape (z, c) p = MatMul (l, r) q = Reshape (p, d) y = Softmax (q)
    }"""
    weights = {"a": ints(6, -1, 6), "c": ints(6, 6, 5), "d": ints(2, 3, -1, 5)}
    assert optimized(text, SPLIT, weights=weights).rewrites == 0


def test_a_product_that_is_read_with_its_merged_batches_stays(optimized) -> None:
    text = MERGED.replace("y) {", "y, float[m, s, t] v) {").replace("y = Softmax", "v = Relu (p) y = Softmax")
    assert optimized(text, SPLIT, weights=NUMBERS).rewrites == 0


LINEAR = """g (float[b, s, 8] x) => (float[b, s, {wide}] y) {{
    f = Reshape (x, flat) p = {product}
    d = Shape (x) i = Gather (d, front) w = Concat <axis = 0> (i, width) q = Reshape (p, w) y = Relu (q)
}}"""


@pytest.mark.parametrize(
    ("product", "weight"),
    [
        ("MatMul (f, w0)", normal(8, 5)),
        ("Gemm (f, w0)", normal(8, 5)),
        ("Gemm <transB = 1> (f, w0)", normal(5, 8)),
    ],
)
def test_products_keep_their_dims(optimized, product: str, weight: np.ndarray) -> None:
    weights = {"w0": weight, "flat": ints(-1, 8), "front": ints(0, 1), "width": ints(5)}
    result = optimized(LINEAR.format(product=product, wide=5), FLAT, *CLEAN, weights=weights, exact=False)
    assert result.after == {"MatMul": 1, "Relu": 1}


@pytest.mark.parametrize(
    "product", ["Gemm (f, w0, c0)", "Gemm <alpha = 2.0> (f, w0)", "Gemm <transB = 1> (f, w1)", "MatMul (f, r)"]
)
def test_other_products_stay(optimized, product: str) -> None:
    weights = {
        "w0": normal(8, 8),
        "w1": normal(8, 8),
        "c0": normal(8),
        "flat": ints(-1, 8),
        "front": ints(0, 1),
        "width": ints(8),
    }
    text = LINEAR.format(product=product, wide=8)
    # w1 has another reader, and would be stored twice; r is not a weight
    text = text.replace("y = Relu (q)", "v = MatMul (q, w1) y = Relu (v)")
    text = text.replace("float[b, s, 8] x)", "float[b, s, 8] x, float[8, 8] r)")
    assert optimized(text, FLAT, weights=weights, exact=False).rewrites == 0


def test_joined_heads_are_not_flattened_further(optimized) -> None:
    text = """g (float[b, s, 4, 2] x) => (float[b, s, 5] y) {
        f = Reshape (x, flat) p = MatMul (f, w0)
        d = Shape (x) i = Gather (d, front) w = Concat <axis = 0> (i, width) q = Reshape (p, w) y = Relu (q)
    }"""
    weights = {"w0": normal(8, 5), "flat": ints(-1, 8), "front": ints(0, 1), "width": ints(5)}
    result = optimized(text, FLAT, *CLEAN, weights=weights, exact=False)
    assert result.after == {"Reshape": 1, "MatMul": 1, "Relu": 1}


HEADS = """g (float[b, s, 8] x) => (float[b, s, 4, 2] y) {
    p = MatMul (x, w0) q = Reshape (p, heads) y = Add (bias, q)
}"""


def test_a_bias_moves_in_front_of_the_reshape(optimized) -> None:
    weights = {"w0": normal(8, 8), "heads": ints(0, 0, 4, 2), "bias": normal(1, 4, 2)}
    result = optimized(HEADS, BIAS, weights=weights)
    assert [n.op_type for n in result.proto.graph.node] == ["MatMul", "Add", "Reshape"]
    assert result.proto.graph.output[0].name == "y"


@pytest.mark.parametrize("shape", [(2,), (4, 1), (3, 1, 4, 2)])
def test_a_bias_that_is_no_row_of_the_product_stays(optimized, shape: tuple[int, ...]) -> None:
    weights = {"w0": normal(8, 8), "heads": ints(-1, 1, 4, 2), "bias": normal(*shape)}
    text = HEADS.replace("b, s, 4, 2] y", "e, f, 4, 2] y")
    assert optimized(text, BIAS, weights=weights, compare=len(shape) < 4).rewrites == 0


def test_attention_of_keras_through_tf2onnx(optimized) -> None:
    """Einsums with dims of size one, merged batches and computed shapes, as they stand in such a file."""
    text = """g (float[b, s, 8] x) => (float[b, s, 8] y) {
        d = Shape <start = 0, end = 2> (x) l = Shape <start = 1, end = 2> (x)
        f = Reshape (x, flat) heads = Concat <axis = 0> (d, h42, one)
        q0 = Gemm <transB = 1> (f, wq) q1 = Reshape (q0, heads) q2 = Squeeze (q1, four) q3 = Add (q2, bq)
        k0 = Gemm <transB = 1> (f, wk) k1 = Reshape (k0, heads) k2 = Squeeze (k1, four) k3 = Add (k2, bk)
        v0 = Gemm <transB = 1> (f, wv) v1 = Reshape (v0, heads) v2 = Squeeze (v1, four) v3 = Add (v2, bv)
        q4 = Unsqueeze (q3, three) q5 = Transpose <perm = [0, 2, 1, 3, 4]> (q4)
        k4 = Unsqueeze (k3, one) k5 = Transpose <perm = [0, 3, 1, 2, 4]> (k4)
        v4 = Unsqueeze (v3, two) v5 = Transpose <perm = [0, 3, 2, 4, 1]> (v4)
        e = Shape <start = 0, end = 2> (v5) n = ReduceProd <keepdims = 1> (e)
        m2 = Concat <axis = 0> (n, open, two) ml = Concat <axis = 0> (n, open, l)
        q6 = Reshape (q5, m2) k6 = Reshape (k5, m2) k7 = Transpose <perm = [0, 2, 1]> (k6)
        v6 = Reshape (v5, ml) v7 = Transpose <perm = [0, 2, 1]> (v6)
        s0 = MatMul (q6, k7) sw = Concat <axis = 0> (e, l, l, one) s1 = Reshape (s0, sw) s2 = Squeeze (s1, four)
        s3 = Mul (s2, scale) s4 = Softmax (s3) s5 = Unsqueeze (s4, three) s6 = Reshape (s5, ml)
        o0 = MatMul (s6, v7) ow = Concat <axis = 0> (e, l, two, one) o1 = Reshape (o0, ow) o2 = Squeeze (o1, four)
        o3 = Transpose <perm = [0, 2, 1, 3]> (o2) o4 = Reshape (o3, flat) o5 = Gemm <transB = 1> (o4, wo)
        yw = Concat <axis = 0> (d, eight, one) o6 = Reshape (o5, yw) y = Squeeze (o6, three)
    }"""
    weights = {f"w{p}": normal(8, 8) for p in "qkvo"} | {f"b{p}": normal(4, 2) for p in "qkv"}
    weights |= {"one": ints(1), "two": ints(2), "three": ints(3), "four": ints(4), "eight": ints(8), "open": ints(-1)}
    weights |= {"h42": ints(4, 2), "flat": ints(-1, 8), "scale": np.array(0.7, np.float32)}
    result = optimized(text, weights=weights, exact=False)
    assert result.after == {
        "MatMul": 4,
        "Add": 1,
        "Split": 1,
        "Reshape": 4,
        "Transpose": 5,
        "Softmax": 1,
    }
    fused = optimized(text, weights=weights, exact=False, level="all")
    assert fused.after.get("com.microsoft.MultiHeadAttention") == 1 or fused.after.get("com.microsoft.Attention") == 1
