"""Dead code goes; whatever a caller or a subgraph can see stays."""

from __future__ import annotations

import numpy as np

DEAD = "eliminate-dead-code"


def test_removes_nodes_and_initializers_that_nothing_reads(optimized) -> None:
    result = optimized(
        "g (float[b, 3] x) => (float[b, 3] y) { a = Exp (x) c = Add (a, w) y = Relu (x) }",
        DEAD,
        weights={"w": np.ones(3, np.float32)},
    )
    assert result.after == {"Relu": 1}
    assert not result.proto.graph.initializer


def test_keeps_unused_graph_inputs(optimized) -> None:
    # Defect elsewhere: callers that feed the input then fail.
    result = optimized("g (float[b, 3] x, float[b] unused) => (float[b, 3] y) { y = Relu (x) }")
    assert [i.name for i in result.proto.graph.input] == ["x", "unused"]


def test_keeps_what_a_subgraph_captures(optimized) -> None:
    result = optimized(
        """g (bool c, float[b, 2] x) => (float[b, 2] y) {
            a = Exp (x)
            y = If (c) <
                then_branch = t () => (float[b, 2] t) { t = Neg (a) },
                else_branch = e () => (float[b, 2] e) { dead = Exp (x) e = Neg (x) }
            >
        }""",
        DEAD,
        feeds=[{"c": np.array(flag), "x": np.ones((2, 2), np.float32)} for flag in (True, False)],
    )
    assert result.after == {"If": 1, "Exp": 1, "Neg": 2}


def test_what_only_a_dead_subgraph_captures_goes_with_it(optimized) -> None:
    result = optimized(
        """g (bool c, float[b, 2] x) => (float[b, 2] y) {
            a = Exp (x)
            z = If (c) <
                then_branch = t () => (float[b, 2] t) { t = Neg (a) },
                else_branch = e () => (float[b, 2] e) { e = Neg (x) }
            >
            y = Abs (x)
        }""",
        DEAD,
        feeds=[{"c": np.array(True), "x": np.ones((2, 2), np.float32)}],
    )
    assert result.after == {"Abs": 1}


def test_sequences_and_optionals_keep_their_types(optimized) -> None:
    # Defect elsewhere: the element type of a sequence was lost, and the file no longer passed the checker.
    result = optimized(
        """g (float[b, 3] x) => (float[c, 3] y, seq(float[b, 3]) z) {
            s = SequenceConstruct (x, x) y = ConcatFromSequence <axis = 0> (s) z = SequenceInsert (s, x)
        }""",
    )
    assert result.after == result.before
    assert result.proto.graph.output[1].type.sequence_type.elem_type.tensor_type.elem_type == 1
