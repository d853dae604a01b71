"""A difference is put down to rounding only where the reference shows as much beside its own inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from onnxtool.model.spec import TensorSpec
from onnxtool.validation.inputs.noise import rounding_explains
from onnxtool.validation.inputs.trial import Trial

ROWS = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)


class Reference:
    """A function as a Runner."""

    def __init__(self, function: Callable[[np.ndarray], np.ndarray]) -> None:
        self.inputs = self.outputs = [TensorSpec("x", np.dtype("float32"), ("b", 3))]
        self._function = function

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        return {"y": self._function(feeds["x"])}


def explained(
    function: Callable[[np.ndarray], np.ndarray], actual: np.ndarray, x: np.ndarray = ROWS, kind: str = "values"
) -> bool:
    reference = Reference(function)
    trial = Trial("one", kind, {"x": x}, reference.run({"x": x}))
    return rounding_explains(reference, trial, {"y": actual})


def steep(x: np.ndarray) -> np.ndarray:
    return np.sin(x.astype(np.float64) * 1e5).astype(np.float32)


def test_what_rounding_does_is_explained() -> None:
    moved = steep(np.nextafter(ROWS, np.float32(np.inf)))
    assert explained(steep, moved)


def test_a_difference_beyond_it_is_not() -> None:
    assert not explained(lambda x: x * 2, ROWS * 2 + 0.01)
    assert not explained(steep, steep(ROWS) + 1.5)


def test_the_elements_own_tolerance_is_added() -> None:
    assert explained(lambda x: x * 2, ROWS * 2 * np.float32(1.0005))
    assert not explained(lambda x: x * 2, ROWS * 2 * np.float32(1.01))


def test_small_outputs_are_held_to_their_own_size() -> None:
    tiny = np.full((4, 3), 1e-4, np.float32)
    assert explained(lambda _: tiny, tiny + np.float32(5e-7))
    assert not explained(lambda _: tiny, tiny + np.float32(5e-6))


def test_zero_is_exact() -> None:
    zeros = np.zeros((4, 3), np.float32)
    zeros[0] = 1

    def step(x: np.ndarray) -> np.ndarray:
        return (x == 0).astype(np.float32)

    assert not explained(step, 1 - step(zeros), zeros)


def test_a_search_is_given_more_room() -> None:
    function = steep
    moved = np.max([np.abs(function(np.nextafter(ROWS, np.float32(s * np.inf))) - function(ROWS)) for s in (1, -1)])
    far = function(ROWS) + np.float32(10 * moved)
    assert explained(function, far, kind="search")
    assert not explained(function, function(ROWS) + np.float32(100 * moved), kind="search")


def test_scores_that_tie_excuse_their_labels() -> None:
    class Classifier(Reference):
        def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
            return {"label": np.zeros(2, np.int64), "scores": np.array([[0.5, 0.5], [0.9, 0.1]], np.float32)}

    reference = Classifier(steep)
    trial = Trial("one", "values", {"x": ROWS}, reference.run({"x": ROWS}))
    scores = trial.outputs["scores"]
    assert rounding_explains(reference, trial, {"label": np.array([1, 0]), "scores": scores})
    assert not rounding_explains(reference, trial, {"label": np.array([0, 1]), "scores": scores})


def test_half_precision_moves_by_its_own_steps() -> None:
    rows = ROWS.astype(np.float16)

    def plain(x: np.ndarray) -> np.ndarray:
        return x.astype(np.float32) * 100

    off = plain(rows) * np.float32(1 + 4 * 2.0**-11)
    assert explained(plain, off, rows)
    assert not explained(plain, off.astype(np.float32), rows.astype(np.float32))


def test_without_floats_nothing_can_be_moved() -> None:
    assert not explained(lambda x: x.astype(np.float32), np.ones((4, 3), np.float32), np.zeros((4, 3), np.int64))


def test_other_shapes_and_kinds_never_are() -> None:
    assert not explained(steep, steep(ROWS)[:2])
    assert not explained(steep, np.full((4, 3), "a"))


def test_labels_may_flip_where_the_reference_flips() -> None:
    x = np.array([[1.0, 1.0, 0.0], [5.0, 1.0, 0.0]], np.float32)

    def label(v: np.ndarray) -> np.ndarray:
        return np.where(v[:, 0] > v[:, 1], "a", "b")

    expected = label(x)
    flipped = expected.copy()
    flipped[0] = "a" if expected[0] == "b" else "b"
    assert explained(label, flipped, x)
    flipped = expected.copy()
    flipped[1] = "b"
    assert not explained(label, flipped, x)


def between(reference: Callable[[np.ndarray], np.ndarray], other: Callable[[np.ndarray], np.ndarray], x: Any) -> bool:
    """Whether rounding explains how two functions differ."""
    own, given = Reference(reference), Reference(other)
    array = np.asarray(x, np.float32)
    trial = Trial("one", "values", {"x": array}, own.run({"x": array}))
    return rounding_explains(own, trial, given.run({"x": array}), None, given.run)


def only_at_five(x: np.ndarray) -> np.ndarray:
    return np.where(x == 5, -x, x)


EXACT = [[1.0, 2.0, 5.0], [3.0, 4.0, 6.0]]


def test_what_the_reference_alone_decides_is_no_rounding() -> None:
    assert not between(only_at_five, lambda x: x, EXACT)


def test_what_both_decide_a_little_apart_is_rounding() -> None:
    assert between(np.floor, lambda x: np.floor(x * np.float32(1 - 2**-24)), EXACT)


def test_labels_that_the_reference_alone_decides_are_no_rounding() -> None:
    assert not between(lambda x: (x == 5).astype(np.int64), lambda x: np.zeros(x.shape, np.int64), EXACT)


def test_a_reference_that_is_worse_by_its_method_is_excused() -> None:
    """A variance by squares loses digits that one by differences keeps."""
    x = 300 + np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32)

    def by_squares(x: np.ndarray) -> np.ndarray:
        return np.mean(x * x, axis=1, keepdims=True) - np.mean(x, axis=1, keepdims=True) ** 2

    def by_differences(x: np.ndarray) -> np.ndarray:
        return np.mean((x - x.mean(axis=1, keepdims=True)) ** 2, axis=1, keepdims=True)

    assert between(by_squares, by_differences, x)


def test_one_that_gives_nan_beside_its_input_is_not_steady() -> None:
    def broken(x: np.ndarray) -> np.ndarray:
        return np.where(x == np.round(x), x, np.float32("nan"))

    assert between(only_at_five, broken, EXACT)


def test_inputs_that_are_equal_stay_equal() -> None:
    class Two(Reference):
        def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
            alike = np.array_equal(feeds["x"], feeds["z"])
            return {"y": feeds["x"] * (10 if alike else 2)}

    reference = Two(lambda x: x)
    feeds = {"x": ROWS, "z": ROWS.copy()}
    trial = Trial("one", "values", feeds, reference.run(feeds))
    assert not rounding_explains(reference, trial, {"y": ROWS * 2})


def test_one_steady_label_is_not_enough_where_another_moves() -> None:
    """Two labels differ, and the other model moves one of them: what rounding does there is not known to be nothing."""
    rows = np.array([[1.0, 5.0, 5.0]], np.float32)

    def labels(x: np.ndarray) -> np.ndarray:
        return (x == 5).astype(np.int64)

    def moves_one(x: np.ndarray) -> np.ndarray:
        return np.array([[0, 0, 0 if x[0, 2] == 5 else 1]])

    assert not between(labels, lambda x: np.zeros(x.shape, np.int64), rows)
    assert between(labels, moves_one, rows)


def test_noise_of_a_column_is_no_other_columns() -> None:
    """A column that moves a lot excuses nothing in the one beside it."""
    function = Reference(lambda x: np.stack([np.sin(x[:, 0] * np.float32(1e6)), x[:, 1]], axis=1))
    trial = Trial("one", "values", {"x": ROWS}, function.run({"x": ROWS}))
    expected = trial.outputs["y"]
    moved = np.array([[0.5, 0.0]], np.float32)
    assert rounding_explains(function, trial, {"y": expected + moved})
    assert not rounding_explains(function, trial, {"y": expected + moved[:, ::-1]})


def test_small_numbers_beside_large_ones_are_moved_by_their_spread() -> None:
    """An input of 1e-6 beside ones is known to 1e-7 only, as the others are."""
    rows = np.array([[1e-6, 1.0, -1.0]], np.float32)

    def steep(x: np.ndarray) -> np.ndarray:
        return x[:, :1] * np.float32(1e6)

    assert explained(steep, steep(rows) + np.float32(0.05), rows)


def test_inputs_that_differ_are_moved_each_by_itself() -> None:
    class Two(Reference):
        def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
            return {"y": feeds["x"] + feeds["z"]}

    feeds = {"x": ROWS, "z": ROWS * 3}
    reference = Two(lambda x: x)
    trial = Trial("one", "values", feeds, reference.run(feeds))
    assert not rounding_explains(reference, trial, {"y": trial.outputs["y"] + 0.5})
    assert rounding_explains(reference, trial, {"y": trial.outputs["y"]})


def test_of_two_outputs_the_one_that_differs_counts() -> None:
    class Two(Reference):
        def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
            return {"a": feeds["x"], "b": self._function(feeds["x"])}

    reference, other = Two(only_at_five), Two(lambda x: x)
    x = np.asarray(EXACT, np.float32)
    trial = Trial("one", "values", {"x": x}, reference.run({"x": x}))
    assert not rounding_explains(reference, trial, other.run({"x": x}), None, other.run)
    names = {"a": "first", "b": "second"}

    def renamed(feeds: Any) -> dict[str, Any]:
        return {names[name]: value for name, value in other.run(feeds).items()}

    assert not rounding_explains(reference, trial, renamed({"x": x}), names, renamed)


def test_a_model_that_fails_beside_the_input_is_judged_as_before() -> None:
    from onnxtool.errors import InputError

    def fails(feeds: Any) -> dict[str, Any]:
        raise InputError("no")

    x = np.asarray(EXACT, np.float32)
    reference = Reference(only_at_five)
    trial = Trial("one", "values", {"x": x}, reference.run({"x": x}))
    assert rounding_explains(reference, trial, {"y": x}, None, fails)


def parted(x: np.ndarray, at: float) -> np.ndarray:
    """A decision on the first column."""
    return np.where(x[:, :1].astype(np.float64) > at, np.float32(1), np.float32(0)) * np.ones_like(x)


def beside_each_other(function: Callable[[np.ndarray], np.ndarray], other: Callable[[np.ndarray], np.ndarray]) -> bool:
    """Whether rounding explains that two functions differ on rows whose first number is 3."""
    x = np.repeat(np.array([[3.0, 50.0, 200.0]], np.float32), 4, axis=0)
    reference = Reference(function)
    trial = Trial("one", "values", {"x": x}, reference.run({"x": x}))
    actual = {"y": other(x)}
    assert not np.array_equal(actual["y"], trial.outputs["y"])
    return rounding_explains(reference, trial, actual, candidate=lambda feeds: {"y": other(feeds["x"])})


def test_thresholds_that_are_apart_by_rounding_are_explained_wherever_between_them_the_input_lies() -> None:
    for below in (1e-7, 4e-6, 1.4e-5):  # of a spread of 84, whose roundings are 2e-5
        assert beside_each_other(lambda x: parted(x, 3.0), lambda x, b=below: parted(x, 3.0 - b)), below


def test_a_decision_that_only_one_of_two_makes_is_not_explained() -> None:
    special = 3.0
    assert not beside_each_other(lambda x: np.where(x == special, np.float32(9), x), lambda x: x)
    assert not beside_each_other(lambda x: parted(x, 2.9999999), np.zeros_like)
