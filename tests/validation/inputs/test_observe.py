"""Which results of a reference prove something, and which sizes carry other values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from onnxtool.model.spec import TensorSpec
from onnxtool.validation.inputs.facts import Facts
from onnxtool.validation.inputs.observe import observe, telling
from onnxtool.validation.inputs.trial import Budget

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


def test_missing_values_come_in_large_batches_too() -> None:
    runner = Sum("b", 3)
    runs = [{"x": np.ones((rows, 3), np.float32)} for rows in (2, 1, 5)]
    found = observe(runner, runner.inputs, runs, Facts(), Budget("normal"))
    holed = {len(t.feeds["x"]) for t in found.trials if np.isnan(t.feeds["x"]).any()}
    assert holed == {5, 130}


def test_a_loop_that_values_end_is_given_nothing_missing() -> None:
    runner = Sum("b", 3)
    runs = [{"x": np.ones((rows, 3), np.float32)} for rows in (2, 1, 5)]
    found = observe(runner, runner.inputs, runs, Facts(endless=True), Budget("normal"))
    assert all(np.isfinite(t.feeds["x"]).all() for t in found.trials)


def test_the_first_step_has_no_past() -> None:
    class Steps(Sum):
        def __init__(self) -> None:
            super().__init__("b", "n")
            self.inputs = [TensorSpec("x", FLOAT, ("b", "n")), TensorSpec("past", FLOAT, ("b", "p"))]

    runner = Steps()
    runs = [{"x": np.ones((2, n), np.float32), "past": np.ones((2, n), np.float32)} for n in (4, 9)]
    found = observe(runner, runner.inputs, runs, Facts(), Budget("normal"))
    assert "no past" in [t.label for t in found.trials]
    assert any(t.feeds["past"].shape[1] == 0 < t.feeds["x"].shape[1] for t in found.trials)
