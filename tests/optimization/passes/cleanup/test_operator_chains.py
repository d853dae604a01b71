"""Chains of transposes, casts, slices, concatenations, clips."""

from __future__ import annotations

import numpy as np
import pytest


def test_transposes_compose(optimized) -> None:
    result = optimized(
        """g (float[b, 3, 4] x) => (float[4, b, 3] y) {
            a = Transpose <perm = [1, 0, 2]> (x) c = Transpose <perm = [2, 1, 0]> (a) y = Relu (c)
        }"""
    )
    assert result.after == {"Transpose": 1, "Relu": 1}


def test_transposes_without_perm_reverse(optimized) -> None:
    result = optimized(
        "g (float[b, 3, 4] x) => (float[b, 3, 4] y) { a = Transpose (x) c = Transpose (a) y = Relu (c) }"
    )
    assert result.after == {"Relu": 1}


def test_transpose_without_perm_before_gemm(optimized) -> None:
    # Defect elsewhere: the missing perm was taken for no permutation.
    result = optimized(
        "g (float[3, b] x) => (float[b, 2] y) { a = Transpose (x) y = Gemm (a, w, c) }",
        weights={"w": np.arange(6, dtype=np.float32).reshape(3, 2), "c": np.ones(2, np.float32)},
    )
    assert result.after == {"Gemm": 1}


def test_a_transpose_of_something_else_stays(optimized) -> None:
    result = optimized(
        "g (float[b, 3, 3] x) => (float[b, 3, 3] y) { a = Transpose <perm = [0, 2, 1]> (x) y = MatMul (a, x) }"
    )
    assert result.after == {"Transpose": 1, "MatMul": 1}


@pytest.mark.parametrize(
    ("source", "middle", "target", "left"),
    [
        ("float", 11, 1, 0),  # to double and back
        ("int32", 7, 6, 0),
        ("bool", 6, 9, 0),
        ("int32", 7, 1, 1),  # to int64 and on to float
        ("float", 10, 1, 2),  # float16 rounds
        ("float", 16, 1, 2),  # bfloat16 rounds
        ("int64", 6, 7, 2),  # int32 wraps around
        ("float", 6, 1, 2),  # int32 cuts off
        ("int64", 1, 7, 2),  # float holds 24 bits
        ("float", 9, 1, 2),  # bool keeps one
    ],
)
def test_casts(optimized, source: str, middle: int, target: int, left: int) -> None:
    types = {1: "float", 6: "int32", 7: "int64", 9: "bool"}
    generator = np.random.default_rng(0)
    arrays = {
        "float": (generator.normal(size=7) * 1000).astype(np.float32),
        "int32": generator.integers(-(2**31), 2**31 - 1, 7).astype(np.int32),
        "int64": generator.integers(-(2**62), 2**62, 7),
        "bool": generator.integers(0, 2, 7).astype(bool),
    }
    result = optimized(
        f"""g ({source}[7] x) => ({types[target]}[7] y) {{
            a = Cast <to = {middle}> (x) c = Cast <to = {target}> (a) y = Reshape (c, s) }}""",
        "collapse-casts",
        "eliminate-dead-code",
        weights={"s": np.array([7])},
        feeds=[{"x": arrays[source]}],
    )
    assert result.after.get("Cast", 0) == left


def test_slices_of_different_axes_become_one(optimized) -> None:
    result = optimized(
        """g (float[b, 8, 9] x) => (float[b, 3, 4] y) {
            a = Slice (x, one, four, axis1) y = Slice (a, minus, huge, axis2)
        }""",
        weights={
            "one": np.array([1]),
            "four": np.array([4]),
            "axis1": np.array([1]),
            "minus": np.array([-4]),
            "huge": np.array([2**62]),
            "axis2": np.array([-1]),
        },
    )
    assert result.after == {"Slice": 1}


def test_slices_of_the_same_axis_stay(optimized) -> None:
    result = optimized(
        """g (float[b, 8] x) => (float[b, 3] y) { a = Slice (x, one, huge, axis) y = Slice (a, one, four, axis) }""",
        weights={"one": np.array([1]), "four": np.array([4]), "huge": np.array([2**62]), "axis": np.array([1])},
    )
    assert result.after == {"Slice": 2}


def test_one_index_becomes_a_gather(optimized) -> None:
    result = optimized(
        "g (float[3, b, 4] x) => (float[b, 4] y) { a = Slice (x, one, two, zero) y = Squeeze (a, zero) }",
        weights={"one": np.array([1]), "two": np.array([2]), "zero": np.array([0])},
    )
    assert result.after == {"Gather": 1}


def test_concats_along_one_axis_are_spliced(optimized) -> None:
    result = optimized(
        """g (float[b, 2] x) => (float[b, 6] y) {
            e = Exp (x) a = Concat <axis = 1> (x, e) y = Concat <axis = -1> (a, x)
        }"""
    )
    assert result.after == {"Exp": 1, "Concat": 1}


def test_concats_along_other_axes_stay(optimized) -> None:
    result = optimized(
        """g (float[2, 2] x) => (float[4, 4] y) { a = Concat <axis = 0> (x, x) y = Concat <axis = 1> (a, a) }"""
    )
    assert result.after == {"Concat": 2}


CLIPS = {name: np.array(v, np.float32) for name, v in {"m": -1.0, "n": 2.0, "p": 0.5, "q": 3.0, "z": -3.0}.items()}


@pytest.mark.parametrize(
    ("steps", "left"),
    [
        ("a = Relu (x) y = Relu (a)", 1),
        ("a = Clip (x, m, n) y = Relu (a)", 1),
        ("a = Relu (x) y = Clip (a, m, n)", 1),
        ("a = Relu (x) y = Clip (a, z, m)", 1),  # everything ends at m
        ("a = Clip (x, m, n) y = Clip (a, p, q)", 1),
        ("a = Clip (x, p) y = Clip (a, , n)", 1),
        ("a = Clip (x, m, p) y = Clip (a, n, q)", 1),  # the ranges do not meet
        ("a = Clip (x, n, m) y = Relu (a)", 2),  # low above high: left to the runtime
    ],
)
def test_clips_and_relus(optimized, steps: str, left: int) -> None:
    feeds = [{"x": np.array([-5, -1, -0.5, 0, 0.4, 0.6, 2, 2.5, 3, 9, np.nan, np.inf, -np.inf], np.float32)}]
    result = optimized(f"g (float[13] x) => (float[13] y) {{ {steps} }}", weights=CLIPS, feeds=feeds)
    assert result.nodes == left


def test_clip_attributes_of_old_opsets(optimized) -> None:
    result = optimized(
        "g (float[b] x) => (float[b] y) { a = Clip <min = 0.0, max = 6.0> (x) y = Clip <max = 4.0> (a) }",
        opset=8,
        ir_version=4,
    )
    assert result.after == {"Clip": 1}
