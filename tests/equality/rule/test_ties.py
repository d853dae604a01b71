"""Indices of the largest may differ where the reference's own scores tie within rounding, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxtool.equality.compare_runners import compare_runners
from onnxtool.equality.reference import reference_on
from onnxtool.equality.rule.ties import Choice, ConfirmedTies, TiedScores, choices, nudged, tied
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.errors import InputError
from onnxtool.model import io
from onnxtool.runtime.session.session import SessionOptions

LAST = Choice("s", -1, False)


def indices(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def test_scores_that_tie_within_a_rounding_step_may_change_places() -> None:
    scores = np.float32([[1.0, 1.0 + 1.2e-7, 0.0], [3.0, 1.0, 2.0]])
    assert tied(scores, scores, indices(0, 0), indices(1, 0), LAST) == 1
    assert tied(scores, scores, indices(0, 0), indices(2, 0), LAST) == 0
    assert tied(scores, scores, indices(0, 0), indices(1, 2), LAST) == 1


def test_scores_within_the_tolerance_but_not_within_rounding_are_no_tie() -> None:
    scores = np.float32([[1.0, 1.0005]])
    assert tied(scores, scores, indices(1), indices(0), LAST) == 0
    again = scores + np.float32([[0.0, -2e-4]])  # rounding alone moves them by as much
    assert tied(scores, again, indices(1), indices(0), LAST) == 1
    further = np.float32([[1.0, 1.0015]])  # more than twice three times that
    assert tied(further, further + np.float32([[0.0, -2e-4]]), indices(1), indices(0), LAST) == 0
    steps = np.float32([[1.0, 1.0 + 5 * 2.0**-23]])
    assert tied(steps, steps, indices(1), indices(0), LAST) == 0


def test_a_tie_is_relative_to_the_largest_score() -> None:
    large = np.float32([[1e4, 1e4 + 2e-3]])
    assert tied(large, large, indices(1), indices(0), LAST) == 1
    small = np.float32([[1e-4, 1.001e-4]])
    assert tied(small, small, indices(1), indices(0), LAST) == 0


def test_whole_numbers_tie_only_when_equal() -> None:
    scores = np.array([[5, 5, 4]])
    assert tied(scores, scores, indices(0), indices(1), LAST) == 1
    assert tied(scores, scores, indices(0), indices(2), LAST) == 0


def test_an_index_beyond_the_end_or_the_same_one_twice_is_no_tie() -> None:
    scores = np.float32([[1, 1, 1]])
    assert tied(scores, scores, indices(0), indices(3), LAST) == 0
    assert tied(scores, scores, indices(0), indices(-1), LAST) == 0
    both = Choice("s", -1, True)
    assert tied(scores, scores, np.array([[0, 1]]), np.array([[1, 0]]), both) == 2
    assert tied(scores, scores, np.array([[0, 1]]), np.array([[1, 1]]), both) == 0


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = ArgMax <axis = 1, keepdims = 0> (s)", Choice("s", 1, False)),
        ("a = ArgMin <axis = 0> (s)  y = Cast <to = 6> (a)", Choice("s", 0, True)),
        ("k = Constant <value_ints = [2]> ()  v, y = TopK (s, k)", Choice("s", -1, True)),
        ("k = Constant <value_ints = [2]> ()  y, i = TopK (s, k)", None),
        ("y = Abs (s)", None),
    ],
)
def test_finds_the_scores_behind_an_output(body: str, expected: Choice | None) -> None:
    text = f'<ir_version: 10, opset_import: ["" : 20]> g (float[n, 4] x) => (int64[n, m] y) {{ s = Neg (x)  {body} }}'
    assert choices(io.from_proto(onnx.parser.parse_model(text))).get("y") == expected


def chooser(path: Path, weight: np.ndarray, pick: str) -> Path:
    """The best of four scores."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["s"]), helper.make_node(pick, ["s"], ["y"], axis=1, keepdims=0)],
        "chooser",
        [helper.make_tensor_value_info("x", 1, ["n", 8])],
        [helper.make_tensor_value_info("y", 7, ["n"])],
        [numpy_helper.from_array(weight, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


def test_a_tie_of_the_reference_is_excused_and_another_choice_is_not(tmp_path: Path) -> None:
    from onnxtool.runtime.runner import OnnxRunner

    generator = np.random.default_rng(0)
    weight = generator.normal(size=(8, 4)).astype(np.float32)
    weight[:, 2] = weight[:, 1]  # two classes that always tie
    nudged = weight.copy()
    nudged[:, 2] *= np.float32(1 + 1.2e-7)
    wrong = weight.copy()
    wrong[:, 2] *= np.float32(1.1)
    a = chooser(tmp_path / "a.onnx", weight, "ArgMax")
    feeds = [{"x": generator.normal(size=(400, 8)).astype(np.float32)}]

    def verdict(b: np.ndarray) -> tuple[bool, str | None]:
        path = chooser(tmp_path / "b.onnx", b, "ArgMax")
        reference = reference_on(a, path, OnnxRunner.open(a), SessionOptions())
        report = compare_runners(reference, OnnxRunner.open(path), feeds, Tolerance())
        return report.ok, report.outputs[0].note

    assert verdict(weight) == (True, None)
    ok, note = verdict(nudged)
    assert ok and "indices differ where the reference's own scores tie" in (note or "")
    assert not verdict(wrong)[0]


class _Source:
    """Chooses the larger of x and x * x, a tie at 1 (and at 0)."""

    inputs = outputs = ()

    def __init__(self, tilt: float = 0.0) -> None:
        self.tilt = tilt

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        x = np.asarray(feeds["x"], np.float32)
        return {"best": np.stack([x, x * x + np.float32(self.tilt)], -1).argmax(-1)}


class _Scores:
    """The graph's own scores, as they may be: right, or all alike."""

    inputs = outputs = ()

    def __init__(self, same: bool) -> None:
        self.same = same

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        x = np.asarray(feeds["x"], np.float32)
        scores = np.stack([x, x * x], -1)
        return {"scores": np.full_like(scores, 0.3) if self.same else scores}


@pytest.mark.parametrize(
    ("x", "same", "tilt", "excused"),
    [
        (1.0, False, 0.0, 1),
        (0.0, False, 0.0, 1),  # both are zero there; zeros alone are moved by rounding steps of one
        (2.0, False, 0.0, 0),  # no tie
        (2.0, True, 0.0, 0),  # the graph's scores tie everywhere, the source's do not
        (1.0, False, 0.1, 0),  # the source has other scores: no rounding takes it to the graph's choice
    ],
)
def test_a_tie_in_the_graph_has_to_be_confirmed_by_the_source(x: float, same: bool, tilt: float, excused: int) -> None:
    source: Any = _Source(tilt)
    runners: Any = (_Scores(same), _Scores(same))
    ties = ConfirmedTies({"best": Choice("scores", -1, False)}, lambda _: runners, source=source)
    feeds = {"x": np.array([x], np.float32)}
    chosen = source.run(feeds)["best"]
    assert ties.excused(feeds, "best", chosen, 1 - chosen) == excused


def test_scores_of_another_shape_or_axis_tie_nothing() -> None:
    scores = np.float32([[1, 1, 1]])
    zero, one = indices(0), indices(1)
    assert tied(scores, scores, zero, one, LAST) == 1
    assert tied(scores, scores[:, :2], zero, one, LAST) == 0
    assert tied(scores, scores, zero, one, Choice("s", 2, False)) == 0
    assert tied(scores, scores, zero, one, Choice("s", -3, False)) == 0
    assert tied(scores, scores, np.array([0]), np.array([0]), LAST) == 0
    assert tied(np.float32(1), np.float32(1), np.array(0), np.array(0), Choice("s", 0, False)) == 0
    assert tied(scores, scores, zero[:, None, None], one[:, None, None], Choice("s", -1, True)) == 0
    # along the first of two dims, counted from the end
    assert tied(scores.T, scores.T, np.array([0]), np.array([1]), Choice("s", -2, False)) == 1


def test_every_index_lies_within_the_scores() -> None:
    scores = np.float32([[1, 1, 1]])
    assert tied(scores, scores, indices(3), indices(0), LAST) == 0
    assert tied(scores, scores, indices(-1), indices(0), LAST) == 0
    assert tied(scores, scores, indices(2), indices(0), LAST) == 1


class _Fails:
    inputs = outputs = ()

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        raise InputError("no")


def test_what_cannot_be_run_or_has_no_scores_is_no_tie() -> None:
    runners: Any = (_Scores(True), _Scores(True))
    failing: Any = (_Fails(), _Fails())
    feeds = {"x": np.float32([1])}
    a, b = np.array([0]), np.array([1])
    choice = {"best": Choice("scores", -1, False)}
    assert TiedScores(choice, lambda _: runners).excused(feeds, "best", a, b) == 1
    assert TiedScores(choice, lambda _: runners).excused(feeds, "other", a, b) == 0
    assert TiedScores(choice, lambda _: failing).excused(feeds, "best", a, b) == 0
    assert TiedScores({"best": Choice("else", -1, False)}, lambda _: runners).excused(feeds, "best", a, b) == 0
    source: Any = _Fails()
    assert ConfirmedTies(choice, lambda _: runners, source=source).excused(feeds, "best", a, b) == 0


def confirmed(chosen: Callable[[int], list[int]], *, same: bool = True) -> tuple[int, int]:
    """How many indices are excused where the source chooses so in its n-th run, and how often it was run.

    With `same` all scores of the graph are alike.
    """

    class Source:
        inputs = outputs = ()
        runs = 0

        def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            self.runs += 1
            return {"best": np.array(chosen(self.runs))}

    source: Any = Source()
    runners: Any = (_Scores(same), _Scores(same))
    ties = ConfirmedTies({"best": Choice("scores", -1, False)}, lambda _: runners, source=source)
    found = ties.excused({"x": np.float32([2, 2])}, "best", np.array([0, 0]), np.array([1, 1]))
    return found, source.runs


def test_each_index_that_differs_is_confirmed_by_some_run() -> None:
    assert confirmed(lambda run: [1, 1]) == (2, 1)
    assert confirmed(lambda run: [run % 2, 1 - run % 2]) == (2, 2)
    assert confirmed(lambda run: [int(run == 8), int(run == 20)]) == (2, 20)
    assert confirmed(lambda run: [1, 0]) == (0, 48)
    assert confirmed(lambda run: [run + 1, run + 3]) == (2, 3)  # so many elements tie that the graph's does not come up
    assert confirmed(lambda run: [run % 3 + 2, 1]) == (2, 3)
    assert confirmed(lambda run: [run % 2 + 2, 1]) == (0, 48)
    assert confirmed(lambda run: [0, 0]) == (0, 8)
    assert confirmed(lambda run: [1, 1, 1]) == (0, 8)


def test_a_source_that_chooses_at_random_confirms_nothing_where_scores_are_far_apart() -> None:
    assert confirmed(lambda run: [1, 1], same=False) == (0, 0)


def test_inputs_are_nudged_by_steps_of_their_own_size() -> None:
    feeds = {"x": np.float32([1000.0, 1.0, 0.0]), "ids": np.array([3]), "nan": np.float32([np.nan, np.inf, 2.0])}
    eps = float(np.finfo(np.float32).eps)
    moved = [nudged(feeds, seed) for seed in range(50)]
    most = np.max([np.abs(m["x"].astype(np.float64) - feeds["x"]) for m in moved], axis=0)
    assert 4 * eps * 1000 < most[0] <= 9 * eps * 1000
    assert 4 * eps < most[1] <= 9 * eps
    assert 4 * eps * 1000 < most[2] <= 9 * eps * 1000
    assert all(m["ids"] is feeds["ids"] for m in moved)
    assert all(np.isnan(m["nan"][0]) and np.isinf(m["nan"][1]) and abs(m["nan"][2] - 2) < 1e-5 for m in moved)
    zeros = nudged({"x": np.zeros(3, np.float32), "none": np.zeros(0, np.float32)}, 0)
    assert 0 < np.abs(zeros["x"]).max() <= 9 * eps
    small = max(abs(float(nudged({"x": np.float32([1e-3, 0.0])}, s)["x"][1])) for s in range(50))
    assert 0 < small <= 9 * eps * 1e-3


def test_an_input_ties_where_a_source_confirms_it_and_not_among_graphs() -> None:
    def never(_: list[str]) -> Any:
        raise AssertionError

    class Last:
        inputs = outputs = ()

        def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            return {"best": feeds["x"].shape[1] - 1 - np.argmax(feeds["x"][:, ::-1], axis=1)}

    choice, feeds = {"best": Choice("x", -1, False)}, {"x": np.float32([[1, 1, 0]])}
    source: Any = Last()
    assert ConfirmedTies(choice, never, source=source).excused(feeds, "best", indices(1), indices(0)) == 1
    assert ConfirmedTies(choice, never, source=source).excused(feeds, "best", indices(1), indices(2)) == 0
    assert TiedScores(choice, never).excused(feeds, "best", indices(1), indices(0)) == 0


def test_counts_do_not_tie_by_rounding() -> None:
    """Of equal counts ONNX says which is chosen: another one is another answer."""

    class Counts(_Scores):
        def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            return {"scores": np.float32([[1, 3, 3]])}

    runners: Any = (Counts(True), Counts(True))
    ties = TiedScores({"best": Choice("scores", -1, False)}, lambda _: runners)
    assert ties.excused({"x": np.float32([1])}, "best", np.array([1]), np.array([2])) == 0
