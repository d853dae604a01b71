"""Which results of a reference prove something, and which sizes carry other values."""

from __future__ import annotations

import resource
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from onnxtool.equality.trials.graph_hints import GraphHints
from onnxtool.equality.trials.observe import _Pace, breaks, observe, takes_doubles, telling
from onnxtool.equality.trials.trial import Budget, Trial
from onnxtool.errors import InputError, ResourceError, UnsupportedError
from onnxtool.model.spec import TensorSpec
from onnxtool.report.proof import TrialKind

FLOAT = np.dtype("float32")


@pytest.mark.parametrize(
    ("values", "doubles", "expected"),
    [
        ([1.0, 2.0], False, True),
        ([1.0, np.nan], False, False),
        ([1.0, np.inf], False, False),
        ([1.0, 1e31], False, False),
        ([1.0, 1e29], False, True),
        ([1.0, float(np.finfo(FLOAT).min)], False, True),
        ([1.0, 1e31], True, True),
    ],
)
def test_results_at_the_edge_of_what_floats_hold_prove_nothing(
    values: list[float], doubles: bool, expected: bool
) -> None:
    assert telling({"y": np.array(values, FLOAT)}, "values", doubles=doubles) is expected


def test_doubles_go_on_for_longer() -> None:
    assert telling({"y": np.array([1e289])}, "values", doubles=True)
    assert not telling({"y": np.array([5e290])}, "values", doubles=True)
    assert not telling({"y": np.array([1e289])}, "values")


def test_labels_alone_prove_nothing_of_missing_values() -> None:
    labels = {"y": np.array([1, 2])}
    assert telling(labels, "values")
    assert not telling(labels, "missing")


class Sum:
    """The sum of each row."""

    def __init__(self, *dims: str | int) -> None:
        self.inputs = [TensorSpec("x", FLOAT, dims)]
        self.outputs = [TensorSpec("y", FLOAT, dims[:1])]

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        rows = np.nan_to_num(feeds["x"], nan=0.0, posinf=0.0, neginf=0.0)
        return {"y": rows.reshape(len(rows), -1).sum(axis=1)}


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not tell what memory a process asked for")
def test_a_size_that_takes_too_much_memory_is_one_that_the_source_refuses() -> None:
    class Pairs(Sum):
        """Asks for far more than there is where it gets as many as 12 rows."""

        def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
            bounds.append(resource.getrlimit(resource.RLIMIT_DATA)[0])
            if len(feeds["x"]) >= 12:
                raise ResourceError("out of memory")
            return super().run(feeds)

    bounds: list[int] = []
    runner, before = Pairs("b", 3), resource.getrlimit(resource.RLIMIT_DATA)
    runs = [{"x": np.ones((rows, 3), np.float32)} for rows in (2, 1, 5)]
    found = observe(runner, runner.inputs, runs, GraphHints(), Budget("normal"))
    assert bounds and all(bound > 0 for bound in bounds)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert found.refused and {len(t.feeds["x"]) for t in found.trials} <= {*range(12)}


def test_missing_values_come_in_large_batches_too() -> None:
    runner = Sum("b", 3)
    runs = [{"x": np.ones((rows, 3), np.float32)} for rows in (2, 1, 5)]
    found = observe(runner, runner.inputs, runs, GraphHints(), Budget("normal"))
    holed = {len(t.feeds["x"]) for t in found.trials if np.isnan(t.feeds["x"]).any()}
    assert holed == {40, 130}


@pytest.mark.usefixtures("normal_effort")
def test_few_rows_become_many_where_the_model_takes_them() -> None:
    class Few(Sum):
        def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
            if len(feeds["x"]) > 9:
                raise InputError("too many rows")
            return super().run(feeds)

    runs = [{"x": np.ones((rows, 3), np.float32)} for rows in (2, 1, 5)]
    for runner, rows in ((Sum("b", 3), 40), (Few("b", 3), 5), (Sum(5, 3), 5), (Sum("b", "b"), 5)):
        found = observe(runner, runner.inputs, runs, GraphHints(), Budget("normal"))
        assert {len(t.feeds["x"]) for t in found.trials if t.label == "values that end on a half"} == {rows}


def test_a_loop_that_values_end_is_given_nothing_missing() -> None:
    runner = Sum("b", 3)
    runs = [{"x": np.ones((rows, 3), np.float32)} for rows in (2, 1, 5)]
    found = observe(runner, runner.inputs, runs, GraphHints(endless=True), Budget("normal"))
    assert all(np.isfinite(t.feeds["x"]).all() for t in found.trials)


def test_the_first_step_has_no_past() -> None:
    class Steps(Sum):
        def __init__(self) -> None:
            super().__init__("b", "n")
            self.inputs = [TensorSpec("x", FLOAT, ("b", "n")), TensorSpec("past", FLOAT, ("b", "p"))]

    runner = Steps()
    runs = [{"x": np.ones((2, n), np.float32), "past": np.ones((2, n), np.float32)} for n in (4, 9)]
    found = observe(runner, runner.inputs, runs, GraphHints(), Budget("normal"))
    assert "no past" in [t.label for t in found.trials]
    assert any(t.feeds["past"].shape[1] == 0 < t.feeds["x"].shape[1] for t in found.trials)


def observed(*dims: str, effort: str = "normal", **chosen: Any) -> list[Trial]:
    runner = Sum(*dims)
    sizes = [{name: at + place for place, name in enumerate(dict.fromkeys(dims))} for at in (2, 5)]
    runs = [{"x": np.ones([found[name] for name in dims], np.float32)} for found in sizes]
    return observe(runner, runner.inputs, runs, GraphHints(), Budget(effort), **chosen).trials  # type: ignore[arg-type]


def test_sizes_and_values_are_tried_in_turns() -> None:
    kinds = [t.kind for t in observed("b", "n")][:12]
    assert kinds.count("size") == 4
    assert {t.feeds["x"].shape for t in observed("b", "n")} >= {(9, 3), (2, 300), (1, 1)}


def test_both_sides_of_a_switch_are_tried_with_each_value() -> None:
    class Switched(Sum):
        def __init__(self) -> None:
            super().__init__("b", 3)
            self.inputs = [TensorSpec("x", FLOAT, ("b", 3)), TensorSpec("flag", np.dtype(bool), (1,))]

    runner = Switched()
    runs = [{"x": np.ones((rows, 3), np.float32), "flag": np.array([True])} for rows in (2, 5)]
    found = observe(runner, runner.inputs, runs, GraphHints(), Budget("normal")).trials[:8]
    assert len(found) == 8
    for one, other in zip(found[::2], found[1::2], strict=True):
        assert one.label == other.label
        np.testing.assert_array_equal(one.feeds["x"], other.feeds["x"])
        assert one.feeds["flag"] != other.feeds["flag"]


def test_sizes_or_values_are_left_out_where_they_are_not_asked_for() -> None:
    assert {t.kind for t in observed("b", "n", values=False)} == {"size"}
    of_values = observed("b", "n", sizes=False)
    assert of_values and {t.feeds["x"].shape for t in of_values} == {(5, 6)}
    only = observed("b", "n", only={"missing", "size"})
    assert {t.kind for t in only} == {"missing", "size"}


@pytest.mark.usefixtures("normal_effort")
def test_further_values_are_tried_at_two_further_sizes() -> None:
    def shapes(*dims: str) -> dict[str, list[tuple[int, ...]]]:
        found: dict[str, list[tuple[int, ...]]] = {}
        for trial in observed(*dims):
            if trial.label.startswith("batch") and trial.label.count(",") > 1 - (len(dims) == 1):
                found.setdefault(trial.label.rpartition(",")[0], []).append(trial.feeds["x"].shape)
        return found

    assert shapes("b", "n") == {"batch 3, length 40": [(3, 40)] * 8, "batch 2, length 130": [(2, 130)] * 8}
    assert shapes("b", "n", "m") == {
        "batch 3, length 40": [(3, 40, 41)] * 8,
        "batch 2, length 130": [(2, 130, 131)] * 8,
    }
    assert shapes("b") == {"batch 130": [(130,)] * 8}


def test_an_input_that_is_too_large_is_not_tried() -> None:
    runner = Sum("b", 5000)
    runs = [{"x": np.ones((rows, 5000), np.float32)} for rows in (2, 3)]
    rows = {len(t.feeds["x"]) for t in observe(runner, runner.inputs, runs, GraphHints(), Budget("normal")).trials}
    assert {9, 33} <= rows
    assert max(rows) * 5000 <= 1 << 18
    wide = Sum("b", 20_000)
    runs = [{"x": np.ones((rows, 20_000), np.float32)} for rows in (5, 3)]
    rows = {len(t.feeds["x"]) for t in observe(wide, wide.inputs, runs, GraphHints(), Budget("normal")).trials}
    assert 33 in rows
    assert max(rows) == 33  # eight times as large as the usual one is taken


def test_what_there_was_no_room_for_is_said() -> None:
    runner = Sum("b", "n")
    runs = [{"x": np.ones((2, 5), np.float32)}, {"x": np.ones((3, 9), np.float32)}]
    quick = observe(runner, runner.inputs, runs, GraphHints(), Budget("quick"))
    assert len(quick.trials) == 40
    assert quick.untried
    fixed = Sum(1)
    assert not observe(fixed, fixed.inputs, [{"x": np.ones(1, np.float32)}], GraphHints(), Budget("normal")).untried


def test_a_larger_input_costs_more_than_in_proportion() -> None:
    pace = _Pace(Sum("b"), {"x": np.ones(100)})
    assert pace.elements == 100
    assert pace.cost({"x": np.ones(400)}) == 0.0
    pace._seconds += [(100.0, 2.0), (10.0, 5.0)]
    assert pace.cost({"x": np.ones(400)}) == pytest.approx(16.0)
    assert pace.cost({"x": np.ones(50)}) == pytest.approx(2.0)


def test_models_of_doubles_take_one_somewhere() -> None:
    single, double = TensorSpec("x", FLOAT, ("b",)), TensorSpec("z", np.dtype("float64"), ("b",))
    assert takes_doubles([single, double])
    assert takes_doubles([double])
    assert not takes_doubles([single])


@pytest.mark.parametrize(
    ("x", "y", "missing", "expected"),
    [
        ([1.0, 2.0], [1.0, np.nan], False, True),
        ([1.0, 2.0], [1.0, np.inf], False, True),
        ([1.0, 2.0], [1.0, 1e31], False, False),
        ([1.0, 2e4], [1.0, np.nan], False, False),  # large numbers overflow
        ([1.0, -1e4], [1.0, np.nan], False, True),
        ([1.0, np.nan], [1.0, np.nan], False, False),
        ([1.0, np.nan], [1.0, np.nan], True, True),
        ([1.0, np.inf], [1.0, np.nan], True, False),
    ],
)
def test_which_numbers_a_model_breaks_on(x: list[float], y: list[float], missing: bool, expected: bool) -> None:
    feeds = {"ids": np.array([10**9]), "x": np.float32(x)}
    assert breaks(feeds, {"n": np.array([3]), "y": np.float32(y)}, missing=missing) is expected


def test_what_a_model_breaks_on_is_kept_beside_what_proves_something() -> None:
    class Logarithm(Sum):
        def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
            return {"y": np.log(feeds["x"])}

    runner = Logarithm("b", 3)
    runs = [{"x": np.ones((rows, 3), np.float32)} for rows in (2, 5)]
    found = observe(runner, runner.inputs, runs, GraphHints(), Budget("normal"))
    assert found.broken and {t.kind for t in found.broken} == {"not finite", "missing, not finite"}
    assert all(np.isnan(t.outputs["y"]).any() or np.isinf(t.outputs["y"]).any() for t in found.broken)
    large = [t for t in found.broken if "1e+20" in t.label or "100,000" in t.label]
    assert large and {t.kind for t in large} == {"missing, not finite"}
    assert {t.label for t in found.broken} <= set(found.unusable)


RUNS = [{"x": np.ones((rows, 3), np.float32)} for rows in (2, 1, 5)]


def test_what_a_source_does_not_support_is_said_at_once() -> None:
    class Unable(Sum):
        def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
            if np.nanmax(np.abs(feeds["x"])) > 100:
                raise UnsupportedError("no such operator")
            return super().run(feeds)

    with pytest.raises(UnsupportedError):
        observe(Unable("b", 3), Sum("b", 3).inputs, RUNS, GraphHints(), Budget("quick"))


def test_after_a_crash_no_other_sizes_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def kinds() -> set[str]:
        return {t.kind for t in observe(Sum("b", 3), Sum("b", 3).inputs, RUNS, GraphHints(), Budget("quick")).trials}

    assert TrialKind.SIZE in kinds()
    monkeypatch.setattr("onnxtool.equality.trials.observe.crashed_before", lambda: True)
    assert TrialKind.SIZE not in kinds()


def test_outputs_in_a_buffer_of_the_models_own_are_kept_as_they_were() -> None:
    class Buffered(Sum):
        buffer = np.zeros(600, np.float32)

        def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
            found = super().run(feeds)["y"]
            self.buffer[: len(found)] = found
            return {"y": self.buffer[: len(found)]}

    trials = observe(Buffered("b", 3), Sum("b", 3).inputs, RUNS, GraphHints(), Budget("quick")).trials
    assert all(np.array_equal(t.outputs["y"], Sum("b", 3).run(t.feeds)["y"], equal_nan=True) for t in trials)


def test_inputs_that_were_refused_are_known() -> None:
    class Few(Sum):
        def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
            if len(feeds["x"]) > 5:
                raise InputError("too many rows")
            return super().run(feeds)

    seen = observe(Few("b", 3), Sum("b", 3).inputs, RUNS, GraphHints(), Budget("quick"))
    assert seen.refused and any(len(feeds["x"]) > 5 for feeds in seen.attempted)
