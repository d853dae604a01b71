"""A difference is put down to rounding only where both models show as much beside the inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxtool.equality.rule.noise import _step, _tied, perturbed, rounding_explains
from onnxtool.equality.trials.trial import Trial
from onnxtool.errors import InputError
from onnxtool.report.proof import TrialKind

ROWS = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
EXACT = np.array([[1.0, 2.0, 5.0], [3.0, 4.0, 6.0]], np.float32)
Function = Callable[[np.ndarray], np.ndarray]


def explained(
    function: Function,
    other: Function,
    x: np.ndarray = ROWS,
    kind: TrialKind = TrialKind.VALUES,
    *,
    certified: bool = False,
) -> bool:
    """Whether rounding explains how two functions differ on an input."""

    def run(one: Function) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
        return lambda feeds: {"y": one(feeds["x"])}

    trial = Trial("one", kind, {"x": x}, run(function)({"x": x}))
    return rounding_explains(run(function), run(other), trial, certified=certified)


def off(function: Function, by: Any) -> Function:
    """The function, so much beside itself."""
    return lambda x: function(x) + np.asarray(by, np.float32)


def steep(x: np.ndarray) -> np.ndarray:
    return np.sin(x.astype(np.float64) * 1e3).astype(np.float32)


def twice(x: np.ndarray) -> np.ndarray:
    return x * 2


def label(x: np.ndarray) -> np.ndarray:
    return np.where(x[:, 0] > x[:, 1], "a", "b")


def only_at_five(x: np.ndarray) -> np.ndarray:
    return np.where(x == 5, -x, x)


def parted(x: np.ndarray, at: float) -> np.ndarray:
    """A decision on the first column."""
    return np.where(x[:, :1].astype(np.float64) > at, np.float32(1), np.float32(0)) * np.ones_like(x)


def test_what_rounding_does_is_explained() -> None:
    assert explained(steep, lambda x: steep(np.nextafter(x, np.float32(np.inf))))


def test_a_difference_beyond_it_is_not() -> None:
    assert not explained(twice, off(twice, 0.01))
    assert not explained(steep, off(steep, 1.5))


def test_the_elements_own_tolerance_is_added() -> None:
    assert explained(twice, lambda x: x * 2 * np.float32(1.0005))
    assert not explained(twice, lambda x: x * 2 * np.float32(1.01))


def test_small_outputs_are_held_to_their_own_size() -> None:
    tiny = np.full((4, 3), 1e-4, np.float32)
    assert explained(lambda _: tiny, lambda _: tiny + np.float32(5e-7))
    assert not explained(lambda _: tiny, lambda _: tiny + np.float32(5e-6))


def test_zero_is_exact() -> None:
    zeros = np.zeros((4, 3), np.float32)
    zeros[0] = 1
    assert not explained(lambda x: (x == 0).astype(np.float32), lambda x: (x != 0).astype(np.float32), zeros)


def test_a_search_is_given_more_room() -> None:
    def most(kind: TrialKind) -> float:
        """The largest of many differences that is explained."""
        return max(by for by in np.geomspace(1e-5, 1e-2, 60) if explained(steep, off(steep, by), kind=kind))

    assert 2 < most(TrialKind.SEARCH) / most(TrialKind.VALUES) < 6


def test_nothing_beyond_a_share_of_the_columns_scale_is_put_down_to_how_far_both_move() -> None:
    def steeper(x: np.ndarray) -> np.ndarray:
        return np.sin(x.astype(np.float64) * 1e7).astype(np.float32)

    assert not explained(steeper, off(steeper, 2.5))  # which neither gives anywhere
    assert explained(steeper, off(steeper, 2.5), certified=True)


def test_of_equal_functions_what_moves_beyond_the_tolerance_in_both_says_nothing() -> None:
    """The logarithm of what rounding decides may be anything; where one of the two stands still it may not."""

    def tiny(x: np.ndarray, scale: float = 1.0) -> np.ndarray:
        first = x[:, :1].astype(np.float64)
        return np.append(np.sin(first * 1e5) * 0.02 * scale, x[:, 1:], axis=1).astype(np.float32)

    def still(x: np.ndarray) -> np.ndarray:
        return np.append(np.full_like(x[:, :1], 0.9), x[:, 1:], axis=1)

    other = off(lambda x: tiny(x, 2.0), np.float32([0.9, 0, 0]))
    assert explained(tiny, other, certified=True)
    assert not explained(tiny, other)
    assert not explained(tiny, still, certified=True)
    assert not explained(tiny, off(tiny, np.float32([0.9, 0.1, 0])), certified=True)

    def holed(x: np.ndarray) -> np.ndarray:
        return np.append(np.where(x == ROWS, np.float32(np.nan), other(x))[:, :1], x[:, 1:], axis=1)

    assert not explained(tiny, holed, certified=True)  # NaN at one point is nothing that rounding gives


def test_scores_that_tie_excuse_their_labels() -> None:
    scores = np.array([[0.5, 0.5], [0.9, 0.1]], np.float32)

    def classifier(labels: list[int]) -> Callable[[Any], dict[str, Any]]:
        return lambda _: {"label": np.array(labels), "scores": scores}

    trial = Trial("one", TrialKind.VALUES, {"x": ROWS}, classifier([0, 0])({}))
    assert rounding_explains(classifier([0, 0]), classifier([1, 0]), trial)
    assert not rounding_explains(classifier([0, 0]), classifier([0, 1]), trial)


def test_half_precision_moves_by_its_own_steps() -> None:
    rows, by = ROWS.astype(np.float16), 1 + 4 * 2.0**-11

    def plain(x: np.ndarray) -> np.ndarray:
        return x.astype(np.float32) * 100

    assert explained(plain, lambda x: plain(x) * np.float32(by), rows)
    assert not explained(plain, lambda x: plain(x) * np.float32(by), rows.astype(np.float32))


def test_without_floats_nothing_can_be_moved() -> None:
    assert not explained(lambda x: x.astype(np.float32), lambda x: x + np.float32(1), np.zeros((4, 3), np.int64))


def test_other_shapes_and_kinds_never_are() -> None:
    assert not explained(steep, lambda x: steep(x)[:2])
    assert not explained(steep, lambda x: np.full(x.shape, "a"))


def test_labels_may_flip_where_both_flip() -> None:
    x = np.array([[1.0, 1.0, 0.0], [5.0, 1.0, 0.0]], np.float32)
    assert explained(label, lambda v: np.where(v[:, 0] >= v[:, 1], "a", "b"), x)
    assert not explained(label, lambda v: np.where(v[:, 0] >= v[:, 1] + 4.5, "a", "b"), x)
    assert not explained(label, lambda v: np.where(v[:, 0] > v[:, 1], "a", "c"), x)


def test_what_one_alone_decides_is_no_rounding() -> None:
    assert not explained(only_at_five, lambda x: x, EXACT)
    assert not explained(lambda x: x, only_at_five, EXACT)
    assert not explained(lambda x: (x == 5).astype(np.int64), lambda x: np.zeros(x.shape, np.int64), EXACT)
    assert not explained(lambda x: parted(x, 2.9999999), np.zeros_like, EXACT + 2)
    small = off(lambda x: 100 + 0 * x, 0.0)
    assert not explained(lambda x: small(x) + np.where(x == 5, np.float32(0.9), 0), small, EXACT)


def test_what_both_decide_a_little_apart_is_rounding() -> None:
    assert explained(np.floor, lambda x: np.floor(x * np.float32(1 - 2**-24)), EXACT)
    rows = np.repeat(np.array([[3.0, 50.0, 200.0]], np.float32), 4, axis=0)
    for below in (1e-7, 4e-6, 1.4e-5):  # of a spread of 84, whose roundings are 2e-5
        assert explained(lambda x: parted(x, 3.0), lambda x, b=below: parted(x, 3.0 - b), rows), below  # type: ignore[misc]


def test_a_step_of_another_height_is_a_difference() -> None:
    def step(by: float) -> Function:
        return lambda x: np.where(x[:, :1] >= 1, np.float32(by), np.float32(-5))

    at_step = np.ones((1, 3), np.float32)
    assert explained(lambda x: np.where(x[:, :1] > 1, np.float32(5), np.float32(-5)), step(5), at_step)
    assert not explained(lambda x: np.where(x[:, :1] > 1, np.float32(5), np.float32(-5)), step(4), at_step)


def test_a_reference_that_is_worse_by_its_method_is_excused() -> None:
    """A variance by squares loses digits that one by differences keeps."""
    x = 300 + np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32)

    def by_squares(x: np.ndarray) -> np.ndarray:
        return np.mean(x * x, axis=1, keepdims=True) - np.mean(x, axis=1, keepdims=True) ** 2

    def by_differences(x: np.ndarray) -> np.ndarray:
        return np.mean((x - x.mean(axis=1, keepdims=True)) ** 2, axis=1, keepdims=True)

    assert explained(by_squares, by_differences, x, certified=True)


def test_inputs_that_are_equal_stay_equal() -> None:
    def one(feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        return {"y": feeds["x"] * (10 if np.array_equal(feeds["x"], feeds["z"]) else 2)}

    feeds = {"x": ROWS, "z": ROWS.copy()}
    trial = Trial("one", TrialKind.VALUES, feeds, one(feeds))
    assert not rounding_explains(one, lambda f: {"y": f["x"] * 2}, trial)

    def turned(feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        return {"y": feeds["x"] * (2 if np.array_equal(feeds["x"], feeds["z"]) else 10)}

    assert not rounding_explains(one, turned, trial)


def test_a_whole_number_may_be_off_by_one_however_far_rounding_moves_it() -> None:
    def even(x: np.ndarray) -> np.ndarray:
        return 2 * np.floor(x.astype(np.float64) * 1e7).astype(np.int64)

    assert explained(even, lambda x: even(x) + 1)
    assert not explained(even, lambda x: even(x) + 5)


def test_noise_of_a_column_is_no_other_columns() -> None:
    """A column that moves a lot excuses nothing in the one beside it."""

    def two(x: np.ndarray) -> np.ndarray:
        return np.stack([np.sin(x[:, 0] * np.float32(3e3)), x[:, 1]], axis=1)

    assert explained(two, off(two, [2e-3, 0]))
    assert not explained(two, off(two, [0, 2e-2]))


def test_of_two_outputs_the_one_that_differs_counts() -> None:
    def two(function: Function) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
        return lambda feeds: {"a": feeds["x"], "b": function(feeds["x"])}

    trial = Trial("one", TrialKind.VALUES, {"x": EXACT}, two(only_at_five)({"x": EXACT}))
    assert not rounding_explains(two(only_at_five), two(lambda x: x), trial)
    assert rounding_explains(two(only_at_five), two(only_at_five), trial)


def test_an_output_without_elements_needs_no_explanation() -> None:
    def both(k: Function) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
        return lambda feeds: {"none": feeds["x"][:0, 0].astype(np.int64), "y": k(feeds["x"])}

    trial = Trial("one", TrialKind.EMPTY, {"x": ROWS}, both(steep)({"x": ROWS}))
    assert rounding_explains(both(steep), both(off(steep, 1e-5)), trial)
    assert not rounding_explains(both(steep), both(off(steep, 9.0)), trial)


def test_a_model_that_fails_beside_the_input_explains_nothing() -> None:
    def picky(feeds: Mapping[str, Any]) -> dict[str, Any]:
        if not np.array_equal(feeds["x"], EXACT):
            raise InputError("no")
        return {"y": feeds["x"] * 2}

    trial = Trial("one", TrialKind.VALUES, {"x": EXACT}, {"y": EXACT})
    assert not rounding_explains(lambda feeds: {"y": feeds["x"]}, picky, trial)


@pytest.mark.parametrize("moved", [np.nan, np.inf])
def test_nan_and_infinity_explain_nothing(moved: float) -> None:
    def breaks(x: np.ndarray) -> np.ndarray:
        return np.where(x == np.round(x), x, np.float32(moved))

    assert not explained(breaks, off(breaks, 0.5), EXACT)
    assert not explained(lambda x: x, lambda x: np.full_like(x, moved), EXACT)
    assert not explained(lambda x: np.full_like(x, moved), lambda x: x, EXACT)


def test_a_complex_number_differs_in_its_imaginary_part_too() -> None:
    assert not explained(lambda x: x.astype(np.complex64), lambda x: x + np.complex64(0.1j))


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


def test_where_everything_cancels_the_usual_scale_bounds_what_is_rounding() -> None:
    """The imaginary parts of a constant signal's spectrum: zeros in one implementation, a last bit in another."""
    x, factors = np.ones((1, 256), np.float32), np.sin(np.outer(np.arange(256), np.arange(129)) * np.pi / 128)

    def exact(feeds: Mapping[str, Any]) -> dict[str, Any]:
        return {"y": (feeds["x"].astype(np.float64) @ factors).round(9).astype(np.float32)}

    def other(by: float) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
        return lambda feeds: {"y": exact(feeds)["y"] + np.float32(by)}

    trial = Trial("ones", TrialKind.VALUES, {"x": x}, exact({"x": x}))
    assert not trial.outputs["y"].any()
    assert rounding_explains(exact, other(4e-6), trial, usual={"y": 16.0})
    assert not rounding_explains(exact, other(4e-6), trial, usual={"y": 1e-3})
    assert not rounding_explains(exact, other(4e-6), trial)
    assert not rounding_explains(exact, other(1e-4), trial, usual={"y": 16.0})
    assert not rounding_explains(
        exact, lambda feeds: {"y": np.full((1, 129), 4e-6, np.float32)}, trial, usual={"y": 16.0}
    )
