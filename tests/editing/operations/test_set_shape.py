"""Fixed dims to dynamic ones, and back. The numbers are held against NumPy, not against our own proof."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxtool.editing.operations.set_shape import SetShape
from onnxtool.errors import OnnxToolError, UnsupportedError, UsageError, VerdictError
from tests.editing.conftest import Editor

RNG = np.random.default_rng(0)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


X4 = floats(5, 4)

# name -> (graph with a batch of 1, weights, what it does to a batch x of shape [n, 4] in NumPy)
CASES: dict[str, tuple[str, dict[str, np.ndarray], Any]] = {
    "reshape": ("y = Reshape(x, s)", {"s": ints(1, 2, 2)}, lambda x: x.reshape(-1, 2, 2)),
    "reshape that swallows the batch": ("a = Reshape(x, s) y = Neg(a)", {"s": ints(1, -1)}, lambda x: -x),
    "reshape with the batch inside a dim": (
        "a = Reshape(x, s) b = Neg(a) y = Reshape(b, t)",
        {"s": ints(2, 2), "t": ints(1, 4)},
        lambda x: -x,
    ),
    "reshape with a zero": ("y = Reshape(x, s)", {"s": ints(0, 2, 2)}, lambda x: x.reshape(-1, 2, 2)),
    "flatten from the front": ("y = Flatten<axis=0>(x)", {}, lambda x: x),
    "a learned row joined to each": (
        "a = Unsqueeze(x, one) b = Concat<axis=1>(c, a) y = Identity(b)",
        {"one": ints(1), "c": np.float32([[[1, 2, 3, 4]]])},
        lambda x: np.concatenate([np.tile(np.float32([[[1, 2, 3, 4]]]), (len(x), 1, 1)), x[:, None]], 1),
    ),
    "expand to the old size": (
        "a = Unsqueeze(x, one) y = Expand(a, s)",
        {"one": ints(1), "s": ints(1, 3, 4)},
        lambda x: np.repeat(x[:, None], 3, 1),
    ),
    "zeros of the old size": (
        "z = ConstantOfShape(s) y = Concat<axis=1>(x, z)",
        {"s": ints(1, 2)},
        lambda x: np.concatenate([x, np.zeros((len(x), 2), np.float32)], 1),
    ),
    "slice to the old end": (
        "y = Slice(x, b, e, a)",
        {"b": ints(0, 1), "e": ints(1, 3), "a": ints(0, 1)},
        lambda x: x[:, 1:3],
    ),
    "indices of the batch": (
        "y = GatherND(x, i)",
        {"i": ints(0, 3).reshape(1, 2)},
        lambda x: x[:, 3],
    ),
    "gather of the whole batch": ("y = Gather<axis=0>(x, i)", {"i": ints(0)}, lambda x: x),
    "squeeze of another dim": (
        "a = Unsqueeze(x, one) y = Squeeze(a, one)",
        {"one": ints(1)},
        lambda x: x,
    ),
    "resize to sizes": (
        'a = Reshape(x, s) b = Resize<mode="nearest">(a, , , z) y = Identity(b)',
        {"s": ints(1, 1, 2, 2), "z": ints(1, 1, 4, 4)},
        lambda x: x.reshape(-1, 1, 2, 2).repeat(2, 2).repeat(2, 3),
    ),
    "a transpose written as a reshape": (
        "a = Unsqueeze(x, two) b = Reshape(a, s) c = Neg(b) y = Transpose<perm=[1, 0, 2]>(c)",
        {"two": ints(2), "s": ints(4, 1, 1)},
        lambda x: -x[:, :, None],
    ),
    "rows that are the same for each": (
        "a = Reshape(x, s) b = Add(a, c) y = Reshape(b, t)",
        {"s": ints(2, 2), "c": np.float32([[1, 2], [3, 4]]), "t": ints(1, 4)},
        lambda x: x + np.float32([1, 2, 3, 4]),
    ),
    "inside a branch": (
        """c = ReduceSum<keepdims=0>(flag)
           t = Cast<to=9>(c)
           y = If(t) <
             then_branch = then () => (float[1, 2, 2] p) { p = Reshape(x, s) },
             else_branch = other () => (float[1, 2, 2] q) { r = Neg(x) q = Reshape(r, s) }
           >""",
        {"s": ints(1, 2, 2), "flag": np.float32([1.0])},
        lambda x: x.reshape(-1, 2, 2),
    ),
}


def text_of(body: str, rank: int, shape: str = "1, 4") -> str:
    dims = ", ".join(f"d{i}" for i in range(rank))
    return f"g (float[{shape}] x) => (float[{dims}] y) {{ {body} }}"


@pytest.mark.parametrize("name", CASES)
def test_a_batch_of_one_becomes_dynamic(edited: Editor, name: str) -> None:
    body, weights, expected = CASES[name]
    made = edited(text_of(body, np.ndim(expected(X4))), "set-shape=x:batch,4", weights=weights)
    for size in (1, 2, 5):
        assert np.allclose(made.run(x=X4[:size])["y"], expected(X4[:size]), 1e-5), size
    proof = made.report.steps[0].proof
    assert proof is not None
    assert "N = 1, 2, 3, 5" in proof.claim
    assert str(made.report.inputs[0]) == "x: float32[batch, 4]"
    assert made.report.outputs[0].shape is not None
    assert "batch" in str(made.report.outputs[0].shape[0])


def test_a_batch_of_three_becomes_dynamic(edited: Editor) -> None:
    body = "a = Reshape(x, s) b = Add(a, c) d = Concat<axis=2>(b, e) y = Slice(d, i, j)"
    row = floats(1, 2, 2)
    weights = {
        "s": ints(3, 2, 2), "c": np.repeat(row, 3, 0), "e": np.ones((3, 2, 1), np.float32), "i": ints(0), "j": ints(3),
    }  # fmt: skip
    made = edited(text_of(body, 3, "3, 4"), "set-shape=x:batch,4", weights=weights)
    wanted = np.concatenate([X4.reshape(5, 2, 2) + row, np.ones((5, 2, 1), np.float32)], 2)
    assert np.allclose(made.run(x=X4)["y"], wanted)


def test_initial_states_follow_the_batch(edited: Editor) -> None:
    weights = {"w": floats(1, 12, 4), "r": floats(1, 12, 3), "h": floats(1, 1, 3), "c": np.zeros((1, 1, 3), np.float32)}
    text = """g (float[6, 1, 4] x) => (float[6, 1, 1, 3] y) {
        y = LSTM<hidden_size=3>(x, w, r, , , h, c)
    }"""
    made = edited(text, "set-shape=x:6,batch,4", weights=weights)
    x = floats(6, 4, 4)
    rows = [made.before(x=np.ascontiguousarray(x[:, i : i + 1]))["y"] for i in range(4)]
    assert np.allclose(made.run(x=x)["y"], np.concatenate(rows, 2), 1e-5, 1e-6)


def test_several_inputs_change_together(edited: Editor) -> None:
    text = "g (float[1, 4] x, float[1, 4] y) => (float[1, 4] z) { z = Add(x, y) }"
    made = edited(text, "set-shape=x:n,4", "set-shape=y:n,4")
    assert len(made.report.steps) == 1
    assert np.allclose(made.run(x=X4, y=X4)["z"], 2 * X4)


def test_what_depends_on_no_size_is_left_as_it_is(edited: Editor) -> None:
    made = edited(
        text_of("a = Reshape(x, s) y = Reshape(a, t)", 2),
        "set-shape=x:n,4",
        weights={"s": ints(-1, 2), "t": ints(-1, 4)},
    )
    assert {t.name for t in made.proto.graph.initializer} == {"s", "t"}
    assert "nothing else had to change" in made.report.steps[0].done


# What cannot be dynamic: (graph, weights, what the message names)
BAKED = {
    "one element of the batch": ("y = Gather<axis=0>(x, i)", {"i": np.array(0)}, "Gather 'node_0' takes element 0"),
    "a mean over the batch": ("a = ReduceMean(x, z) y = Sub(x, a)", {"z": ints(0)}, "ReduceMean 'node_0' reduces over"),
    "the batch removed": ("a = Squeeze(x, z) y = Softmax(a)", {"z": ints(0)}, "Squeeze 'node_0' removes the dim"),
    "a softmax over the batch": ("y = Softmax<axis=0>(x)", {}, "Softmax 'node_0' normalizes along"),
    "one scale for the tensor": (
        "a, b, c = DynamicQuantizeLinear(x) y = DequantizeLinear(a, b, c)", {}, "DynamicQuantizeLinear 'node_0'"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAKED)
def test_what_mixes_the_batch_is_refused_by_name(edited: Editor, tmp_path: Path, name: str) -> None:
    body, weights, told = BAKED[name]
    rank = 1 if "Gather" in told or "Squeeze" in told else 2
    with pytest.raises(UnsupportedError, match=told):
        edited(text_of(body, rank), "set-shape=x:batch,4", weights=weights)
    assert not (tmp_path / "output.onnx").exists()


def test_a_weight_with_a_row_for_each_of_the_batch_is_refused_by_name(edited: Editor) -> None:
    with pytest.raises(UnsupportedError, match=r"Add 'node_0' reads the weight 'c', which is made for the size 3"):
        edited(text_of("y = Add(x, c)", 2, "3, 4"), "set-shape=x:batch,4", weights={"c": floats(3, 4)})


def test_a_table_of_positions_is_refused_by_name(edited: Editor) -> None:
    text = "g (float[1, 6, 4] x) => (float[1, 6, 4] y) { y = Add(x, table) }"
    with pytest.raises(UnsupportedError, match="'table', which is made for the size 6"):
        edited(text, "set-shape=x:1,length,4", weights={"table": floats(1, 6, 4)})


def test_positions_that_are_counted_go_on_counting(edited: Editor) -> None:
    text = "g (int64[1, 6] x) => (int64[1, 6] y) { y = Add(x, p) }"
    made = edited(text, "set-shape=x:1,length", weights={"p": np.arange(6).reshape(1, 6)})
    x = np.ones((1, 9), np.int64)
    assert np.array_equal(made.run(x=x)["y"], 1 + np.arange(9)[None])
    proof = made.report.steps[0].proof
    assert proof is not None
    assert "values at other sizes of length" in proof.unproven


def test_other_sizes_are_proven_against_a_named_source(edited: Editor, tmp_path: Path) -> None:
    from tests.editing.conftest import write

    right = write(tmp_path / "right.onnx", "g (float[b, s, 2] x) => (float[b, t] y) { y = Flatten(x) }")
    wrong = write(tmp_path / "wrong.onnx", "g (float[b, s, 2] x) => (float[b, t] y) { a = Neg(x) y = Flatten(a) }")
    text = "g (float[1, 3, 2] x) => (float[1, 6] y) { y = Reshape(x, s) }"
    made = edited(text, "set-shape=x:1,s,2", weights={"s": ints(1, 6)}, reference=right)
    proof = made.report.steps[0].proof
    assert proof is not None
    assert "what the named source gives" in proof.claim
    assert not proof.unproven
    with pytest.raises(VerdictError, match="output 'y' differs"):
        edited(text, "set-shape=x:1,s,2", weights={"s": ints(1, 6)}, reference=wrong)


def test_a_wrong_rewrite_is_never_written(edited: Editor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from onnxtool.editing.resizing import targets

    monkeypatch.setattr(targets, "placements", lambda *_: [])
    with pytest.raises(OnnxToolError, match="Reshape 'node_0'"):
        edited(text_of("y = Reshape(x, s)", 3), "set-shape=x:batch,4", weights={"s": ints(1, 2, 2)})
    assert not (tmp_path / "output.onnx").exists()


def test_dynamic_to_fixed_is_equal_to_the_last_bit(edited: Editor) -> None:
    text = "g (float[n, 4] x) => (float[n, 2] y) { y = MatMul(x, w) }"
    made = edited(text, "set-shape=x:3,4", weights={"w": floats(4, 2)})
    assert str(made.report.inputs[0]) == "x: float32[3, 4]"
    assert str(made.report.outputs[0]) == "y: float32[3, 2]"
    assert np.array_equal(made.run(x=X4[:3])["y"], made.before(x=X4[:3])["y"])


def test_there_and_back(edited: Editor) -> None:
    text = "g (float[n, 4] x) => (float[n, 2] y) { y = MatMul(x, w) }"
    made = edited(text, "set-shape=x:3,4", "doc=fixed", "set-shape=x:m,4", weights={"w": floats(4, 2)})
    assert str(made.report.outputs[0]) == "y: float32[m, 2]"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("x:batch,4,4", "has 2 dims, 3 given"),
        ("z:batch,4", "did you mean 'x'|the model has x"),
        ("x:?,4", "write a word"),
        ("x:-1,4", "no dim|not a dim"),
        ("", "has 2 dims, 0 given"),
        ("x:s,s", "would stand for 1 and for 4"),
    ],
)
def test_nonsense_is_refused(edited: Editor, value: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        edited(text_of("y = Neg(x)", 2), f"set-shape={value}")


def test_a_number_replaces_another_one(edited: Editor) -> None:
    """A batch of 1 with 4 columns becomes 3 rows with 6."""
    made = edited(text_of("s = Softmax(x) y = Reshape(s, t)", 2), "set-shape=x:3,6", weights={"t": ints(1, 4)})
    x = floats(3, 6)
    given = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    assert np.allclose(made.run(x=x)["y"], given, 1e-5)
    assert [i.shape for i in (*made.report.inputs, *made.report.outputs)] == [(3, 6), (3, 6)]


def test_a_number_that_a_weight_does_not_take_is_refused(edited: Editor) -> None:
    with pytest.raises(UnsupportedError, match="MatMul"):
        edited(text_of("y = MatMul(x, w)", 2), "set-shape=x:3,6", weights={"w": floats(4, 2)})


def test_a_length_is_as_large_as_a_table_at_most(edited: Editor) -> None:
    """As many rows as positions: only shorter inputs can show anything."""
    table = floats(8, 3)
    text = "g (float[1, 8, 3] x) => (float[a, b, c] y) { e = Gather(t, i) y = Add(x, e) }"
    made = edited(text, "set-shape=x:1,length,3", weights={"t": table, "i": np.arange(8)[None]})
    x = floats(1, 5, 3)
    assert np.allclose(made.run(x=x)["y"], x + table[:5])
    with pytest.raises(OnnxToolError):
        made.run(x=floats(1, 9, 3))


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3)])
def test_dims_of_one_size_are_taken_apart_as_they_were_joined(edited: Editor, order: tuple[int, ...]) -> None:
    """Nothing but the order in which a Reshape has joined them tells 4 rows from 4 columns."""
    body = f"t = Transpose<perm={list(order)}>(x) r = Reshape(t, s) n = Neg(r) y = Reshape(n, o)"
    text = f"g (float[1, 4, 4, 2] x) => (float[a, b, c, d] y) {{ {body} }}"
    made = edited(text, "set-shape=x:1,rows,columns,2", weights={"s": ints(1, 16, 2), "o": ints(1, 4, 4, 2)})
    x = floats(1, 3, 5, 2)
    assert np.array_equal(made.run(x=x)["y"], -x.transpose(order))


def test_rows_are_independent_where_the_length_becomes_dynamic_too(edited: Editor) -> None:
    body = "h = Reshape(x, s) t = Transpose<perm=[0, 2, 1]>(h) m = MatMul(h, t) p = Softmax(m) y = MatMul(p, h)"
    text = f"g (float[1, 6, 2] x) => (float[a, b, c] y) {{ {body} }}"
    made = edited(text, "set-shape=x:batch,length,2", weights={"s": ints(1, 6, 2)})
    x = floats(3, 9, 2)
    scores = np.exp(x @ x.transpose(0, 2, 1))
    assert np.allclose(made.run(x=x)["y"], scores / scores.sum(2, keepdims=True) @ x, 1e-4, 1e-5)


def test_an_input_is_named_once() -> None:
    with pytest.raises(UsageError, match="twice"):
        SetShape("x:a,4").merge("x:b,4")


def test_an_empty_dim_proves_nothing(edited: Editor) -> None:
    with pytest.raises(UnsupportedError, match="dim 0 of 'x' is 0"):
        edited(text_of("y = Neg(x)", 2, "0, 4"), "set-shape=x:batch,4")
