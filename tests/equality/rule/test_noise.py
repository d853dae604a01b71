"""A difference is put down to rounding only where the reference shows as much beside its own inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxtool.equality.rule.noise import (
    _explained,
    _step,
    _tied,
    _unequal_rows,
    differs_there_alone,
    only_reference_jumps,
    perturbed,
    rounding_explains,
    same_threshold,
)
from onnxtool.equality.trials.trial import Trial
from onnxtool.errors import InputError
from onnxtool.model.spec import TensorSpec

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
    def sloping(x: np.ndarray) -> np.ndarray:
        return np.sin(x.astype(np.float64) * 1e3).astype(np.float32)

    def most(kind: str) -> float:
        """The largest of many differences that is explained."""
        return max(
            off for off in np.geomspace(1e-4, 1, 60) if explained(sloping, sloping(ROWS) + np.float32(off), kind=kind)
        )

    assert 3 < most("search") / most("values") < 6


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
    beside = function.run({"x": np.nextafter(ROWS, np.float32(9))})["y"]
    moved = (beside - expected) * np.float32([1, 0])
    assert np.abs(moved).max() > 0.01
    assert rounding_explains(function, trial, {"y": expected + moved})
    assert not rounding_explains(function, trial, {"y": expected + moved[:, ::-1]})


def test_what_the_reference_gives_nowhere_beside_the_input_is_a_difference() -> None:
    """However far the reference moves: a value that it does not take there is not its own."""

    def step(x: np.ndarray) -> np.ndarray:
        return np.where(x[:, :1] > 1, np.float32(5), np.float32(-5))

    at_step = np.ones((1, 3), np.float32)
    assert explained(step, np.full((1, 1), 5, np.float32), at_step)
    assert not explained(step, np.full((1, 1), 4, np.float32), at_step)
    assert not explained(step, np.full((1, 1), -5, np.float32) + np.float32(0.2), at_step)
    assert explained(step, np.full((1, 1), 5, np.float32) + np.float32(0.02), at_step)


def test_of_the_same_real_function_only_rounding_differs_as_far_as_the_reference_moves() -> None:
    def amplified(x: np.ndarray) -> np.ndarray:
        return np.where(x > 1, np.float32(5), np.float32(-5))

    reference, at_step = Reference(amplified), {"x": np.ones((1, 3), np.float32)}
    trial = Trial("one", "values", at_step, reference.run(at_step))
    for given, explained_so in ((4, True), (100, False)):
        actual = {"y": np.full((1, 3), given, np.float32)}
        assert not rounding_explains(reference, trial, actual)
        assert rounding_explains(reference, trial, actual, certified=True) == explained_so
    calm = Reference(lambda x: 2 * x)
    trial = Trial("one", "values", at_step, calm.run(at_step))
    assert not rounding_explains(calm, trial, {"y": np.full((1, 3), 2.1, np.float32)}, certified=True)


def test_a_label_that_the_reference_gives_nowhere_beside_is_a_difference() -> None:
    def label(v: np.ndarray) -> np.ndarray:
        return np.where(v[:, 0] > v[:, 1], "a", "b")

    tied = np.array([[1.0, 1.0, 0.0]], np.float32)
    assert not explained(label, np.array(["c"]), tied)


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


@pytest.mark.parametrize(
    ("scores", "tied"),
    [
        ([[0.1, 0.45, 0.45]], True),
        ([[0.05, 0.05, 0.9]], False),  # the best is what counts
        ([[0.5, 0.500008]], True),
        ([[0.5, 0.50005]], False),
        ([[1000.0, 1000.005]], True),  # of the size of the scores, where they are large
        ([[1.0]], False),
    ],
)
def test_which_scores_tie(scores: list[list[float]], tied: bool) -> None:
    found = _tied(np.array([0]), np.array([1]), {"label": np.array([0]), "scores": np.array(scores)})
    assert found is tied


def test_every_row_that_differs_must_tie() -> None:
    scores = np.array([[0.5, 0.5], [0.9, 0.1]])
    assert _tied(np.array([0, 0]), np.array([1, 0]), {"scores": scores})
    assert not _tied(np.array([0, 0]), np.array([1, 1]), {"scores": scores})
    # of two labels a row, one differs
    assert not _tied(np.array([[0, 0], [0, 0]]), np.array([[0, 0], [0, 1]]), {"scores": scores})
    assert not _tied(np.array(0), np.array(1), {"scores": scores[:1]})
    assert not _tied(np.array([0.5]), np.array([0.6]), {"scores": scores[:1]})


@pytest.mark.parametrize(
    ("own", "other", "rows"),
    [
        (np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0005, 2.0], [3.0, 4.02]]), [False, True]),
        (np.array([0.0, 0.0]), np.array([5e-7, 5e-6]), [False, True]),
        (np.array([1.0, np.nan]), np.array([np.nan, np.nan]), [True, False]),
        (np.array([1, 2]), np.array([1, 3]), [False, True]),
        (np.array(["a", "b"]), np.array(["a", "c"]), [False, True]),
        (np.array([[[1, 1]], [[1, 1]]]), np.array([[[1, 2]], [[1, 1]]]), [True, False]),
        (np.array(1.0), np.array(2.0), [True]),
        (np.array(1), np.array(1), [False]),
        (np.array([1.0, 2.0]), np.array([1, 2]), [True, True]),  # another type
        (np.array([1.0, 2.0]), np.array([1.0]), [True]),
    ],
)
def test_rows_that_are_not_equal(own: np.ndarray, other: np.ndarray, rows: list[bool]) -> None:
    assert _unequal_rows(own, other).tolist() == rows


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_a_rounding_step_is_half_of_the_way_to_the_next_number(dtype: Any) -> None:
    assert _step(np.dtype(dtype)) == float(ml_dtypes.finfo(dtype).eps) / 2


def test_what_lies_beside_an_input() -> None:
    assert perturbed({"ids": np.arange(3)}, 0) is None
    small = perturbed({"x": np.full(1000, 1e-5, np.float32)}, 0)
    assert small is not None
    shift = np.abs(small["x"].astype(np.float64) - np.float32(1e-5)).max()
    assert 1e-10 < shift < 4 * 2.0**-24 * 2e-3
    mixed = perturbed({"x": np.ones(3, np.float32), "ids": np.arange(3)}, 0)
    assert mixed is not None and mixed["ids"].tolist() == [0, 1, 2]


def test_differences_of_single_numbers_of_a_vector() -> None:
    own = np.zeros(5, np.float32)
    draws = [own + np.float32(0.1), own - np.float32(0.2)]
    assert _explained(own, own + np.float32(0.5), draws)
    assert not _explained(own, own + np.float32(1.0), draws)


def test_a_complex_number_differs_in_its_imaginary_part_too() -> None:
    own = np.array([1 + 1j], np.complex64)
    assert not _explained(own, np.array([1 + 2j], np.complex64), [own])
    assert _explained(own, np.array([1 + 1.0005j], np.complex64), [own])


def test_small_numbers_beside_large_ones_may_be_off_by_what_these_round_to() -> None:
    own = np.array([0.0, 1000.0])
    assert _explained(own, np.array([0.005, 1000.0]), [own])
    assert not _explained(own, np.array([0.05, 1000.0]), [own])


@pytest.mark.parametrize("moved", [np.nan, np.inf])
def test_a_reference_that_gives_nan_beside_its_input_excuses_nothing(moved: float) -> None:
    own = np.ones((2, 2))
    assert not _explained(own, own + 0.5, [np.full((2, 2), moved)])


def test_an_infinity_against_a_number_is_never_explained() -> None:
    own = np.array([np.inf, 1.0])
    assert not _explained(own, np.array([0.0, 1.0]), [own])
    assert _explained(own, own, [own])


ONES, ZEROS = np.array([1, 1]), np.array([0, 0])


def alone(moved: list[np.ndarray], theirs: list[np.ndarray], own: np.ndarray = ONES, other: np.ndarray = ZEROS) -> bool:
    """Whether the reference alone decides: it gives `own` and, beside the input, `moved`; the other model the rest."""
    return only_reference_jumps({"y": own}, {"y": other}, [{"y": m} for m in moved], [{"y": t} for t in theirs])


def test_labels_on_which_the_two_agree_beside_the_input_are_decided_by_the_reference_alone() -> None:
    assert alone([ZEROS] * 3 + [ONES], [ZEROS] * 4)
    assert not alone([ZEROS] * 2 + [ONES] * 2, [ZEROS] * 4)
    assert not alone([ZEROS] + [ONES] * 3, [ZEROS] * 4)
    assert not alone([np.array([0, 1])] * 4, [ZEROS] * 4)
    assert not alone([ZEROS] * 4, [ZEROS] * 3 + [ONES])
    assert not alone([ZEROS] * 4, [ZEROS] * 3 + [np.array([0, 1])])


def test_of_outputs_of_another_shape_nothing_is_known() -> None:
    assert not alone([ZEROS] * 4, [ZEROS] * 4, other=np.array([0]))
    assert not alone([ZEROS] * 3 + [np.array([0])], [ZEROS] * 4)
    assert not alone([ZEROS] * 4, [ZEROS] * 3 + [np.array([0])])


def test_one_may_be_some_hundred_times_as_steady_as_the_other() -> None:
    own, other = np.ones(3), np.zeros(3)
    assert alone([other] * 4, [other + 2e-4] * 4, own, other)
    assert not alone([other] * 4, [other + 2e-3] * 4, own, other)


def both_decide(
    function: Callable[[np.ndarray], np.ndarray], other: Callable[[np.ndarray], np.ndarray], x: Any
) -> bool:
    feeds = {"x": np.asarray(x)}
    expected, given = function(feeds["x"]), other(feeds["x"])
    return same_threshold(
        Reference(function), lambda made: {"y": other(made["x"])}, feeds, {"y": expected}, {"y": given}, None
    )


def test_both_decide_where_each_gives_beside_the_input_what_the_other_gives_at_it() -> None:
    x = np.array([[3.0, 50.0], [5.0, 60.0]], np.float32)

    def second_row(x: np.ndarray, at: float, special: bool) -> np.ndarray:
        """Whether the first number is above a bound; and, if asked for, whether that of the second row is 5."""
        found = (x[:, 0].astype(np.float64) > at).astype(np.float32)
        found[1] = float(special and x[1, 0] == 5)
        return found

    assert both_decide(lambda x: second_row(x, 3.0, False), lambda x: second_row(x, 3 - 1e-6, False), x)
    assert not both_decide(lambda x: second_row(x, 3.0, True), lambda x: second_row(x, 3 - 1e-6, False), x)
    assert not both_decide(lambda x: x[:, 0], lambda x: x[:, 0] + 1, x)


def test_what_cannot_be_moved_or_fails_when_moved_is_not_known_to_be_decided_by_both() -> None:
    x = np.array([[3.0, 50.0]], np.float32)

    def fails(moved: np.ndarray) -> np.ndarray:
        if not np.array_equal(moved, x):
            raise InputError("no")
        return moved[:, 0]

    assert not both_decide(lambda ids: ids.astype(np.float32), lambda ids: ids + np.float32(1), np.array([[3, 4]]))
    assert not both_decide(fails, lambda x: x[:, 0] + 1, x)
    assert not both_decide(lambda x: x[:, 0] + 1, fails, x)


def test_a_step_that_two_models_take_to_either_side_of_one_number() -> None:
    def above(x: np.ndarray) -> np.ndarray:
        return (x > np.float32(0.3)).astype(np.float32)

    def least(at: np.ndarray) -> Callable[[Mapping[str, np.ndarray]], dict[str, Any]]:
        return lambda feeds: {"y": (feeds["x"] >= at).astype(np.float32)}

    here = {"x": np.full((2, 3), 0.3, np.float32)}
    assert differs_there_alone(Reference(above), least(np.float32(0.3)), here, None)
    lower = np.nextafter(np.nextafter(np.float32(0.3), np.float32(0)), np.float32(0))
    assert not differs_there_alone(Reference(above), least(lower), here, None)  # two steps apart: by rounding
    zero = {"x": np.zeros((2, 3), np.float32)}
    assert differs_there_alone(
        Reference(lambda x: (x > 0).astype(np.float32)), lambda f: {"y": (f["x"] >= 0).astype(np.float32)}, zero, None
    )


@pytest.mark.parametrize("by", [5e-7, 0.5])
def test_where_the_reference_takes_no_step_nothing_is_decided(by: float) -> None:
    here = {"x": np.full((2, 3), 0.3, np.float32)}

    def off(feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        return {"y": np.where(feeds["x"] == np.float32(0.3), np.float32(by), np.float32(0))}

    assert not differs_there_alone(Reference(np.zeros_like), off, here, None)


@pytest.mark.parametrize(("by", "taken"), [(2e-6, False), (2e-3, True)])
def test_a_step_is_larger_than_rounding(by: float, taken: bool) -> None:
    here = {"x": np.full((2, 3), 0.3, np.float32)}
    above = Reference(lambda x: np.float32(by) * (x > np.float32(0.3)))
    found = differs_there_alone(above, lambda f: {"y": np.float32(by) * (f["x"] >= np.float32(0.3))}, here, None)
    assert found is taken


def test_labels_take_a_step_too() -> None:
    here = {"x": np.full((2, 3), 0.3, np.float32)}
    texts = np.array(["low", "high"], dtype=object)

    def over(feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        return {"y": texts[(feeds["x"] >= np.float32(0.3)).astype(int)]}

    assert differs_there_alone(Reference(lambda x: texts[(x > np.float32(0.3)).astype(int)]), over, here, None)
    assert not differs_there_alone(Reference(lambda x: texts[0 * x.astype(int)]), over, here, None)


def test_a_model_that_fails_beside_a_number_is_not_known_to_agree_there() -> None:
    def fails(feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        raise InputError("no")

    assert not differs_there_alone(Reference(np.abs), fails, {"x": ROWS}, None)
