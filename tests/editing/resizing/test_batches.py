"""A batch is held against single rows by the bounded excuse of rounding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from onnxtool.editing.context import EditContext
from onnxtool.editing.resizing.batches import BatchProof, BatchRun, Case, _silence, _varied, batch_axis
from onnxtool.equality.rule.rounding import RoundingNoise
from onnxtool.errors import OnnxToolError
from onnxtool.model.domains import Domain
from onnxtool.runtime.session.session import EXACT
from tests.editing.conftest import Editor


def graph(batch: str, off: float) -> ir.Model:
    made = ir.from_onnx_text(
        f'<ir_version: 10, opset_import: ["" : 20]> g (float[{batch},40] x) => (float[{batch},40] y) '
        f"{{ c = Constant <value_float = {off}> ()  y = Add(x, c) }}"
    )
    assert isinstance(made, ir.Model)
    return made


@pytest.mark.parametrize(("off", "wrong"), [(0.0, False), (0.004, False), (0.4, True)])
def test_however_far_rounding_moves_the_model_it_excuses_a_hundredth_at_most(
    monkeypatch: pytest.MonkeyPatch, off: float, wrong: bool
) -> None:
    proof = BatchProof(graph("1", 0.0), {"x": 0}, 1, EditContext(EXACT))
    monkeypatch.setattr(RoundingNoise, "outputs", lambda _, feeds: {"y": feeds["x"] + np.float32(0.5)})
    assert (proof.fault(graph("n", off), (3,)) is not None) is wrong


def test_without_other_roundings_nothing_is_excused(monkeypatch: pytest.MonkeyPatch) -> None:
    proof = BatchProof(graph("1", 0.0), {"x": 0}, 1, EditContext(EXACT))
    monkeypatch.setattr(RoundingNoise, "outputs", lambda *_: {})
    assert proof.fault(graph("n", 0.004), (3,)) is not None


@pytest.mark.parametrize(
    ("batch", "row", "old", "found"),
    [
        ((3, 5), (2, 5), 2, (0, True)),  # three rows, of which the model of batch 2 was given each twice
        ((6, 5), (4, 5), 2, (0, True)),  # two numbers for each row
        ((6, 5), (2, 5), 2, (0, False)),
        ((3, 5), (1, 5), 2, (0, False)),  # no number of rows of it
        ((5, 6), (5, 4), 2, (1, True)),
        ((3, 10), (2, 5), 2, (0, False)),  # two dims that differ
        ((2, 5), (2, 5), 2, (None, True)),
        ((6, 5), (2, 5, 1), 2, (None, False)),
    ],
)
def test_rows_lie_along_the_one_dim_that_grew(
    batch: tuple[int, ...], row: tuple[int, ...], old: int, found: tuple[int | None, bool]
) -> None:
    assert batch_axis(np.zeros(batch), [np.zeros(row)] * 3, old) == found


def test_rows_of_several_lengths_have_no_axis() -> None:
    assert batch_axis(np.zeros((5, 2)), [np.zeros((1, 2)), np.zeros((2, 2)), np.zeros((2, 2))], 1) == (None, False)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([[1.0], [2.0], [1.0]], ""),
        ([[1.0], [1.0], [1.0]], "alike in every row"),
        ([[1.0], [1.0, 1.0], [1.0]], ""),
        ([[], [], []], "empty"),
        ([[], [1.0], []], ""),
        ([[np.nan], [np.inf], [np.nan]], "not a number"),
        ([[np.nan], [1.0], [np.nan]], ""),
        ([[1], [1], [1]], "alike in every row"),
        ([[1], [1], [2]], ""),
    ],
)
def test_what_says_nothing_of_the_rows_of_a_batch(rows: list[list[float]], why: str) -> None:
    kind = np.int64 if all(isinstance(v, int) for r in rows for v in r) and any(rows) else np.float32
    assert _silence(Case({}, [{"y": np.array(r, kind)} for r in rows]), "y") == why


def test_rows_are_made_of_very_different_size() -> None:
    found = _varied(np.full((2, 5), 3.0, np.float32), 1, None)
    np.testing.assert_array_equal(found, [[0, 1, 30, np.float32(3) * np.float32(0.01), 3]] * 2)
    ids = np.full((5, 2), 3)
    assert _varied(ids, 0, None) is ids
    bounded = np.full((5, 2), 3.0, np.float32)
    assert _varied(bounded, 0, Domain(0, 4)) is bounded


# What is silent on short or random inputs takes the first row for all: (graph, weights, what the message names)
FIRST_ROW = {
    "a pitch that needs sound": (
        """g (float[1, n] x) => (float[1, 1] y, float[1, 1] c) {
            one = Gather<axis=0>(x, first) row = Unsqueeze(one, zero)
            m = ReduceMax(row, last) s = Shape<start=1>(x) long = Greater(s, least)
            y = Where(long, m, nan) f = Cast<to=1>(long) c = Mul(m, f)
        }""",
        {"first": np.int64(0), "zero": np.int64([0]), "last": np.int64([1]), "least": np.int64([1000])},
        "Gather 'node_0'",
    ),
    "boxes of one picture": (
        """g (float[1, 6, 4] boxes, float[1, 1, 6] scores) => (float[k, 4] y) {
            i = NonMaxSuppression(boxes, scores, most, iou, least) r = Gather<axis=1>(i, two)
            b = Gather<axis=0>(boxes, first) y = Gather<axis=0>(b, r)
        }""",
        {
            "first": np.int64(0), "two": np.int64(2), "most": np.int64([3]), "iou": np.float32([0.5]),
            "least": np.float32([1e6]),
        },
        "Gather 'node_2'.*takes element 0",
    ),
    "a label": (
        """g (float[1, 4] x) => (float[1, 4] p, int64 y) {
            p = Softmax(x) far = Add(p, offset) a = ArgMax<axis=1, keepdims=0>(far) y = Gather<axis=0>(a, first)
        }""",
        {"first": np.int64(0), "offset": np.float32([0, 9, 0, 0])},
        "Gather 'node_3'.*takes element 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FIRST_ROW)
def test_the_first_row_for_all_is_refused_where_no_usual_run_shows_it(
    edited: Editor, tmp_path: Path, name: str
) -> None:
    text, weights, told = FIRST_ROW[name]
    shapes = {"a pitch that needs sound": ["x:batch,n"], "a label": ["x:batch,4"]}
    operations = [f"set-shape={s}" for s in shapes.get(name, ["boxes:batch,6,4", "scores:batch,1,6"])]
    weights = {**weights, "nan": np.float32(np.nan)}
    with pytest.raises(OnnxToolError, match=told):
        edited(text, *operations, weights=weights)
    assert not (tmp_path / "output.onnx").exists()
    if name != "a pitch that needs sound":  # there a longer input shows that it is wrong
        made = edited(text, *operations, weights=weights, allow_unproven=True)
        assert not made.report.ok
        assert "Gather" in str(made.report.unproven)


def test_an_output_that_needs_longer_inputs_is_proven_on_these(edited: Editor) -> None:
    text = """g (float[1, n] x) => (float[1, 1] y) {
        m = ReduceMax(x, last) s = Shape<start=1>(x) long = Greater(s, least) y = Where(long, m, nan)
    }"""
    weights = {"last": np.int64([1]), "least": np.int64([1000]), "nan": np.float32(np.nan)}
    made = edited(text, "set-shape=x:batch,n", weights=weights)
    assert made.report.ok
    x = np.random.default_rng(0).standard_normal((3, 1500)).astype(np.float32)
    np.testing.assert_array_equal(made.run(x=x)["y"], x.max(1, keepdims=True))


def test_an_output_that_no_input_moves_is_the_same_for_every_row(edited: Editor) -> None:
    text = """g (float[1, 4] x) => (float[1, 4] y, float[3] t) {
        y = Neg(x) t = Identity(w)
    }"""
    made = edited(text, "set-shape=x:batch,4", weights={"w": np.ones(3, np.float32)})
    assert made.report.ok


# Rows that meet only where usual inputs do not go; exact arithmetic shows it.
SELDOM_MIXED = {
    "a gate of row 0": "g = Gather<axis=0>(x, first) s = Sub(g, far) r = Relu(s) y = Add(x, r)",
    "a gate of the largest": "g = ReduceMax(x, rows) s = Sub(g, far) r = Relu(s) y = Add(x, r)",
    "NaN beyond a bound": "g = ReduceMax(x, rows) s = Sub(far, g) r = Sqrt(s) z = Mul(r, none) y = Add(x, z)",
    "another branch": """g = ReduceMax<keepdims=0>(x) c = Greater(g, far)
        y = If(c)<then_branch = a () => (float[n, 4] p) { p = Neg(x) },
                  else_branch = b () => (float[n, 4] q) { q = Identity(x) }>""",
}
CONSTANTS = {"first": np.int64(0), "rows": np.int64([0]), "far": np.float32(100), "none": np.float32(0)}


@pytest.mark.parametrize("name", SELDOM_MIXED)
def test_rows_that_meet_at_values_which_no_run_has_are_refused(edited: Editor, tmp_path: Path, name: str) -> None:
    text = f"g (float[1, 4] x) => (float[1, 4] y) {{ {SELDOM_MIXED[name]} }}"
    with pytest.raises(OnnxToolError, match=r"assumed, and not proven: .* depends on its own row of the input alone"):
        edited(text, "set-shape=x:batch,4", weights=CONSTANTS)
    assert not (tmp_path / "output.onnx").exists()


def test_a_row_is_repeated_for_the_batch_and_for_the_length(edited: Editor) -> None:
    text = "g (float[1, 5, 2] x) => (float[1, 5, 3] y) { q = Tile(c, r) y = Concat<axis=2>(x, q) }"
    weights = {"c": np.float32([[[7]]]), "r": np.int64([1, 5, 1])}
    made = edited(text, "set-shape=x:batch,length,2", weights=weights)
    x = np.ones((3, 4, 2), np.float32)
    assert np.array_equal(made.run(x=x)["y"], np.concatenate([x, np.full((3, 4, 1), 7, np.float32)], 2))


def test_each_of_a_batch_is_reversed_as_the_one_was(edited: Editor) -> None:
    text = """g (float[1, 4, 2] x) => (float[1, 4, 2] y) {
        y = ReverseSequence<batch_axis=0, time_axis=1>(x, lengths)
    }"""
    made = edited(text, "set-shape=x:batch,4,2", weights={"lengths": np.int64([3])})
    x = np.random.default_rng(0).standard_normal((3, 4, 2)).astype(np.float32)
    np.testing.assert_array_equal(made.run(x=x)["y"], x[:, [2, 1, 0, 3]])


@pytest.mark.parametrize(("dims", "length"), [("batch,20,3", 20), ("batch,length,3", 7)])
def test_a_mask_that_is_looked_up_in_all_rows_at_once_is_that_of_each(edited: Editor, dims: str, length: int) -> None:
    """As transformers writes masks of attention: indices into what all rows make, one after the other."""
    text = """g (float[1, 20, 3] x) => (float[1, 20, 20] y) {
        t = Transpose<perm=[0, 2, 1]>(x) q = MatMul(x, t) h = ReduceMax<keepdims=0>(x, two) g = Greater(h, zero)
        s = Shape(g) n = Gather(s, one) b = Mul(none, n) i = Add(places, b) f = Flatten<axis=2>(g) k = Gather(f, i)
        j = Reshape(k, flat) z = Shape(i) u = Reshape(j, z) e = Expand(u, square) w = Where(e, zero, low) y = Add(q, w)
    }"""
    weights = {"two": np.int64([2]), "one": np.int64([1]), "zero": np.float32(0), "low": np.float32(-9)}
    weights |= {"none": np.int64([[[0]]]), "places": np.arange(20)[None, None], "flat": np.int64([-1])}
    made = edited(text, f"set-shape=x:{dims}", weights={**weights, "square": np.int64([1, 20, 20])})
    x = np.random.default_rng(0).standard_normal((3, length, 3)).astype(np.float32)
    expected = x @ x.transpose(0, 2, 1) + np.where(x.max(2) > 0, 0, -9)[:, None]
    np.testing.assert_allclose(made.run(x=x)["y"], expected, atol=1e-5)


def test_random_numbers_are_named_where_runs_differ_by_them(edited: Editor) -> None:
    text = "g (float[1, 4] x) => (float[1, 4] y) { r = RandomNormalLike(x) y = Add(x, r) }"
    with pytest.raises(OnnxToolError, match=r"RandomNormalLike 'node_0' draws random numbers"):
        edited(text, "set-shape=x:batch,4")


def test_a_run_counts_what_was_compared() -> None:
    proof = BatchProof(graph("1", 0.0), {"x": 0}, 1, EditContext(EXACT))
    run = BatchRun((1, 4, 2))
    assert proof.final_fault(graph("n", 1e-6), run) is None
    assert run.runs == 3 + 1 + 4 + 2  # one of each batch, and one of each row
    assert 5e-7 < run.largest < 2e-6
    assert run.axes == {"y": 0}


def test_the_axis_of_rows_is_seen_at_sizes_that_are_neither_one_nor_the_old_one() -> None:
    proof = BatchProof(graph("2", 0.0), {"x": 0}, 2, EditContext(EXACT))
    run = BatchRun((1, 2, 3))
    assert proof.final_fault(graph("n", 0.0), run) is None
    assert run.axes == {"y": 0}


@pytest.mark.parametrize("rerounded", [0.0, 0.5])
def test_rows_of_very_different_size_are_used_where_rounding_does_not_decide(
    monkeypatch: pytest.MonkeyPatch, rerounded: float
) -> None:
    context = EditContext(EXACT)
    proof = BatchProof(graph("1", 0.0), {"x": 0}, 1, context)
    monkeypatch.setattr(proof, "_rerounded", lambda: context.runner(graph("1", rerounded)))
    assert bool((proof.case(4).feeds["x"][0] == 0).all()) is (rerounded == 0)
    assert np.abs(proof.case(3).feeds["x"][0]).max() > 0
