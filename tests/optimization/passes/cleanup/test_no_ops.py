"""Nodes that change nothing: which go, which only look like it."""

from __future__ import annotations

import numpy as np
import pytest

IDENTITY = "eliminate-identity"
NO_OPS = "eliminate-no-ops"


def test_removes_identities_in_the_middle(optimized) -> None:
    result = optimized("g (float[b, 3] x) => (float[b, 3] y) { a = Identity (x) y = Relu (a) }", IDENTITY)
    assert result.after == {"Relu": 1}


def test_a_graph_output_keeps_its_name(optimized) -> None:
    result = optimized("g (float[b, 3] x) => (float[b, 3] y) { a = Relu (x) y = Identity (a) }", IDENTITY)
    assert result.after == {"Relu": 1}
    assert result.proto.graph.node[0].output == ["y"]


def test_keeps_an_identity_from_input_to_output(optimized) -> None:
    result = optimized("g (float[b, 3] x) => (float[b, 3] y) { y = Identity (x) }", IDENTITY)
    assert result.rewrites == 0


def test_two_outputs_that_share_a_value_keep_their_names(optimized) -> None:
    # Defect elsewhere: the second output was renamed to the first.
    result = optimized("g (float[b, 3] x) => (float[b, 3] y, float[b, 3] z) { y = Relu (x) z = Identity (y) }")
    assert [o.name for o in result.proto.graph.output] == ["y", "z"]
    assert result.after == {"Relu": 1, "Identity": 1}


def test_removes_an_inference_dropout_but_not_one_with_a_used_mask(optimized) -> None:
    gone = optimized("g (float[b, 3] x) => (float[b, 3] y) { a = Dropout (x) y = Relu (a) }", IDENTITY)
    kept = optimized("g (float[b, 3] x) => (float[b, 3] y, bool[b, 3] m) { a, m = Dropout (x) y = Relu (a) }", IDENTITY)
    assert gone.after == {"Relu": 1}
    assert kept.after == {"Relu": 1, "Dropout": 1}


def test_keeps_a_training_dropout(optimized) -> None:
    result = optimized(
        "g (float[b, 3] x) => (float[b, 3] y) { a = Dropout (x, r, t) y = Relu (a) }",
        weights={"r": np.array(0.5, np.float32), "t": np.array(True)},
        compare=False,
    )
    assert result.after == {"Dropout": 1, "Relu": 1}


@pytest.mark.parametrize(
    "step",
    [
        "Cast <to = 1> (x)",
        "Transpose <perm = [0, 1, 2]> (x)",
        "Reshape (x, keep)",
        "Reshape (x, open)",
        "Slice (x, zero, huge, one)",
        "Pad (x, nopads)",
        "Expand (x, ones)",
        "Tile (x, ones)",
        "Concat <axis = 1> (x)",
        "Sum (x)",
    ],
)
def test_removes_what_changes_nothing(optimized, step: str) -> None:
    result = optimized(
        f"g (float[b, 3, 4] x) => (float[b, 3, 4] y) {{ a = {step} y = Relu (a) }}",
        weights={
            "keep": np.array([0, 3, 4]),
            "open": np.array([-1, 3, 4]),
            "zero": np.array([0]),
            "huge": np.array([2**62]),
            "one": np.array([1]),
            "nopads": np.zeros(6, np.int64),
            "ones": np.ones(3, np.int64),
        },
    )
    assert result.after == {"Relu": 1}


@pytest.mark.parametrize(
    "step",
    [
        "Cast <to = 11> (x)",
        "Transpose <perm = [0, 2, 1]> (x)",
        "Transpose (x)",
        "Reshape (x, swap)",
        "Slice (x, zero, two, two)",
        "Slice (x, zero, huge, two, two)",
        "Pad (x, pads)",
        "Tile (x, repeats)",
    ],
)
def test_keeps_what_changes_something(optimized, step: str) -> None:
    kind = "double" if "Cast" in step else "float"
    result = optimized(
        f"g (float[b, 4, 4] x) => ({kind}[p, q, r] y) {{ a = {step} y = Relu (a) }}",
        NO_OPS,
        weights={
            "swap": np.array([4, -1, 4]),
            "zero": np.array([0]),
            "two": np.array([2]),
            "huge": np.array([2**62]),
            "pads": np.array([0, 0, 1, 0, 0, 0]),
            "repeats": np.array([1, 2, 1]),
        },
    )
    assert result.rewrites == 0


def test_unsqueezing_a_scalar_is_no_no_op(optimized) -> None:
    result = optimized(
        "g (float[b, 3] x, int64 n) => (float[b, 3] y) { a = Unsqueeze (n, zero) y = ReduceSum <keepdims = 1> (x, a) }",
        NO_OPS,
        weights={"zero": np.array([0])},
        compare=False,
    )
    assert result.rewrites == 0


def test_an_expand_that_widens_a_dynamic_dim_stays(optimized) -> None:
    # Defect elsewhere: [n] beside [4] was taken for 4, and the dynamic dim was frozen.
    result = optimized(
        """g (float[n] x, float[4] z) => (float[m] y) { y = Add (x, z) }""",
        feeds=[{"x": np.ones(k, np.float32), "z": np.arange(4, dtype=np.float32)} for k in (1, 4)],
    )
    assert result.proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "n"
    assert result.after == {"Add": 1}


def test_a_captured_value_is_served_inside_the_subgraph(optimized) -> None:
    result = optimized(
        """g (bool c, float[b, 2] x) => (float[b, 2] y) {
            a = Identity (x)
            y = If (c) <
                then_branch = t () => (float[b, 2] t) { t = Exp (a) },
                else_branch = e () => (float[b, 2] e) { e = Identity (a) }
            >
        }""",
        feeds=[{"c": np.array(flag), "x": np.ones((2, 2), np.float32)} for flag in (True, False)],
    )
    assert result.after == {"If": 1, "Exp": 1, "Identity": 1}
