"""The rule of docs/equality.md, number by number."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtool.equality.rule import tolerance as tolerance_policy
from onnxtool.equality.rule.difference import Difference
from onnxtool.equality.rule.tolerance import (
    ATOL,
    BITS,
    CHANCE,
    HALF_STEPS,
    LEAST_SCALE,
    NUMBERS,
    RTOL,
    ColumnScales,
    Scales,
    Tolerance,
    allowed_error,
    column_sums,
    distinct_numbers,
    groupings,
    rule_text,
)


def ok(a: np.ndarray, b: np.ndarray, tolerance: Tolerance = Tolerance(), precision: str | None = None) -> bool:  # noqa: B008
    entry = Difference("y", tolerance, precision=precision)
    entry.add(a, b)
    return entry.result().ok


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_the_usual_tolerances() -> None:
    assert (Tolerance().rtol, Tolerance().atol) == (RTOL, ATOL) == (1e-3, 1e-5)


def test_a_rate_beside_a_column_of_a_million_may_not_be_off_by_half() -> None:
    a = normal(8, 2) * np.float32([1, 1e6])
    b = a.copy()
    b[:, 0] *= 1.5
    assert not ok(a, b)
    c = a + np.float32([0, 1.0])  # 1e-6 of the large column
    assert ok(a, c)
    assert not ok(a, a + np.float32([1e-2, 0]))


@pytest.mark.parametrize("axis", [1, 3], ids=["channels-first", "channels-last"])
def test_a_small_channel_of_a_picture_is_judged_on_its_own_scale(axis: int) -> None:
    scale = np.ones(4, int)
    scale[axis] = 3
    factors = np.float32([1, 1e6, 1e6]).reshape(scale)
    shape = [2, 5, 6, 7]
    shape[axis] = 3
    a = normal(*shape) * factors
    wrong = np.float32([1e-2, 0, 0]).reshape(scale)
    right = np.float32([0, 1, 0]).reshape(scale)
    assert ok(a, a + right)
    assert not ok(a, a + wrong)


def test_a_column_of_a_millionth_beside_ones_still_counts() -> None:
    a = normal(50, 2) * np.float32([1e-6, 1])
    assert not ok(a, a * np.float32([1.5, 1]))
    assert not ok(a, a * np.float32([0, 1]))
    # ... but less than a rounding step of 1.0 in float32 is not asked for beside ones.
    assert ok(a, a + np.float32([1.1e-7, 0]))


def test_an_output_that_is_small_as_a_whole_has_its_own_scale() -> None:
    a = normal(50, 2) * np.float32(1e-6)
    assert not ok(a, a + np.float32(1e-8))
    assert ok(a, a + np.float32(5e-12))


def test_the_least_scale_is_a_rounding_step_of_one() -> None:
    assert pytest.approx(np.finfo(np.float32).eps) == LEAST_SCALE * ATOL


@pytest.mark.parametrize(("shape", "expected"), [
    ((), [(1, 1, 1)]),
    ((7,), [(7, 1, 1)]),
    ((5, 3), [(5, 3, 1)]),
    ((1, 3), [(1, 3, 1)]),
    ((4, 5, 6), [(20, 6, 1), (4, 5, 6)]),
    ((2, 3, 8, 8), [(48, 8, 1), (2, 3, 64)]),
    ((1, 1000, 1), [(1000, 1, 1)]),
    ((1, 3, 1, 1), [(3, 1, 1)]),
    ((1, 2, 3), [(1, 2, 3)]),
])  # fmt: skip
def test_columns_of_a_shape(shape: tuple[int, ...], expected: list[tuple[int, int, int]]) -> None:
    assert groupings(shape) == expected


def test_column_sums_are_numpys() -> None:
    a = normal(3, 4, 5)
    np.testing.assert_allclose(column_sums(a, (12, 5, 1)), np.sqrt((a.astype("f8") ** 2).mean(axis=(0, 1))))
    np.testing.assert_allclose(column_sums(a, (3, 4, 5)), np.sqrt((a.astype("f8") ** 2).mean(axis=(0, 2))))
    np.testing.assert_allclose(column_sums(a, (3, 4, 5), largest=True), np.abs(a).max(axis=(0, 2)))
    a[0, 0, 0], a[1, 0, 0] = np.nan, np.inf
    assert np.isfinite(column_sums(a, (12, 5, 1))).all()


def test_column_sums_do_not_depend_on_the_size_of_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    a = normal(7, 5, 11)
    for grouping in ((35, 11, 1), (7, 5, 11), (385, 1, 1)):
        for largest in (False, True):
            monkeypatch.setattr(tolerance_policy, "_CHUNK", 1 << 18)
            whole = column_sums(a, grouping, largest=largest)
            for chunk in (1, 6, 30):
                monkeypatch.setattr(tolerance_policy, "_CHUNK", chunk)
                np.testing.assert_allclose(column_sums(a, grouping, largest=largest), whole, rtol=1e-12)


def test_a_column_without_a_finite_number_has_no_scale() -> None:
    a = normal(20, 2)
    a[:, 0] = np.nan
    assert column_sums(a, (20, 2, 1))[0] == 0
    assert ColumnScales().add(a).at(0, 2)[0] == pytest.approx(LEAST_SCALE * column_sums(a, (20, 2, 1))[1], rel=0.2)


def test_a_run_of_zeros_keeps_the_usual_size_of_the_output() -> None:
    scales = ColumnScales()
    for seed in range(3):
        scales.add(normal(20, 2, seed=seed))
    assert scales.add(np.zeros((20, 3), np.float32)).at(0, 3).min() == pytest.approx(LEAST_SCALE, rel=0.4)


def test_the_benefit_of_chance_is_bounded() -> None:
    one = ColumnScales().add(np.float32([[1e-3, 1.0]])).at(0, 2)[0]
    assert one == pytest.approx(1e-3 * CHANCE * 2, rel=0.01)
    rows = np.float32([[1e-3, 1.0]]) * np.linspace(0.9, 1.1, 24, dtype=np.float32)[:, None]
    many = ColumnScales().add(rows).at(0, 2)[0]
    assert LEAST_SCALE * 0.9 < many < LEAST_SCALE * 1.1


def test_copies_of_a_row_tell_no_more_than_one() -> None:
    one = ColumnScales().add(np.float32([[1e-3, 1.0]])).at(0, 2)[0]
    copies = np.float32([[1e-3, 1.0]] * 24)
    assert ColumnScales().add(copies).at(0, 2)[0] == pytest.approx(one, rel=1e-6)
    copies[::2] *= np.float32(1 + 1e-7)  # but for rounding
    assert ColumnScales().add(copies).at(0, 2)[0] == pytest.approx(one, rel=1e-3)


@pytest.mark.parametrize(
    ("values", "grouping", "expected"),
    [
        (np.arange(24.0).reshape(6, 4), (6, 4, 1), 6),
        (np.tile(np.arange(4.0), (6, 1)), (6, 4, 1), 1),
        (np.repeat(np.arange(6.0).reshape(2, 3)[:, :, None], 5, axis=2), (2, 3, 5), 2),
        (1e-9 * np.arange(24.0).reshape(6, 4), (6, 4, 1), 6),
        (np.zeros((3, 2)), (3, 2, 1), 1),
        (np.zeros((600, 2)), (600, 2, 1), 600),
        (np.zeros((512, 2)), (512, 2, 1), 1),
        (np.array([[1.0], [np.nan], [np.inf]]), (3, 1, 1), 2),
        (np.zeros((2, 3, 1000)), (2, 3, 1000), 2000),
    ],
)
def test_distinct_numbers(values: np.ndarray, grouping: tuple[int, int, int], expected: int) -> None:
    assert distinct_numbers(values, grouping) == expected


def test_the_least_scale_is_that_of_the_largest_column_of_earlier_runs() -> None:
    scales = ColumnScales()
    scales.add(normal(20, 2) * np.float32([1.0, 1e-7]))
    later = scales.add(normal(20, 2) * np.float32(1e-12)).at(0, 2)
    assert later[1] == pytest.approx(LEAST_SCALE / 2, rel=0.3)  # half of what it was in two runs


def test_one_number_near_zero_among_its_neighbours_is_not_held_to_itself() -> None:
    a = normal(1, 1000)
    a[0, 3] = 1e-4
    b = a.copy()
    b[0, 3] += 3e-6  # as float32 sums of ones are off
    assert ok(a, b)
    b[0, 3] += 1e-4
    assert not ok(a, b)


def test_each_element_has_the_scale_of_its_channel() -> None:
    scales = Scales(((3, 4, np.array([1.0, 2.0, 3.0])),))
    assert scales.at(0, 24).tolist() == ([1.0] * 4 + [2.0] * 4 + [3.0] * 4) * 2
    assert scales.at(3, 5).tolist() == [1.0, 2.0]
    both = Scales(((3, 4, np.array([1.0, 2.0, 3.0])), (2, 1, np.array([1.5, 9.0]))))
    assert both.at(4, 8).tolist() == [1.5, 2.0, 1.5, 2.0]


def test_a_column_known_from_earlier_runs_keeps_its_scale() -> None:
    scales = ColumnScales()
    scales.add(normal(20, 1) * 100)
    later = scales.add(np.float32([[1e-3]]))
    assert 30 < later.at(0, 1)[0] < 200
    # One huge run does not widen the others.
    scales = ColumnScales()
    for seed in range(4):
        scales.add(normal(20, 1, seed=seed))
    scales.add(normal(20, 1) * np.float32(1e9))
    assert scales.add(normal(20, 1, seed=9)).at(0, 1)[0] < 3


@pytest.mark.parametrize(("dtype", "step"), [("float16", 2**-10), ("bfloat16", 2**-7)])
def test_half_precision_is_a_few_of_its_rounding_steps(dtype: str, step: float) -> None:
    wide = Tolerance().widened(dtype)
    assert (wide.rtol, wide.atol) == (HALF_STEPS * step, HALF_STEPS * step) and HALF_STEPS == 8
    assert Tolerance(0.5, 0.5).widened(dtype) == Tolerance(0.5, 0.5)
    assert Tolerance().widened("float32", None) == Tolerance()
    assert BITS.widened(dtype) == BITS and (BITS.rtol, BITS.atol) == (0.0, 0.0)
    assert Tolerance().widened() == Tolerance()
    a = normal(40, 3)
    assert ok(a, a * np.float32(1 + 7 * step), precision=dtype)
    assert not ok(a, a * np.float32(1 + 20 * step), precision=dtype)
    assert not ok(a, a * np.float32(1 + 7 * step))


def test_float16_outputs_are_judged_by_their_own_step() -> None:
    a = normal(40, 3).astype(np.float16)
    assert ok(a, (a * np.float16(1.004)).astype(np.float16))
    assert not ok(a, (a * np.float16(1.03)).astype(np.float16))


def test_absolute_and_steps_are_in_the_outputs_own_units() -> None:
    a = normal(9, 2) * 1000
    assert not ok(a, a + np.float32(0.05), Tolerance(0.0, 0.01, absolute=True))
    assert ok(a, a + np.float32(0.005), Tolerance(0.0, 0.01, absolute=True))
    integers = np.int32([[1, 2], [3, 4]])
    assert ok(integers, integers + 2, Tolerance(integer_steps=2)) and not ok(
        integers, integers + 3, Tolerance(integer_steps=2)
    )
    assert not ok(integers, integers + 1, Tolerance(9.0, 9.0))


def test_nothing_asked_is_nothing_allowed() -> None:
    assert allowed_error(np.float64([1.0, np.inf, np.nan]), Tolerance(0.0, 0.0), 1.0).tolist() == [0, 0, 0]
    assert allowed_error(np.float64([2.0]), Tolerance(0.1, 0.01), 3.0)[0] == pytest.approx(0.23)


def test_numbers_below_the_smallest_normal_one_may_be_flushed() -> None:
    assert allowed_error(np.zeros(1), Tolerance(), 0.0)[0] == 2.0**-126
    assert ok(np.zeros(3, np.float32), np.full(3, 1e-40, np.float32))
    assert not ok(np.zeros(3, np.float32), np.full(3, 1e-37, np.float32))


def test_the_rule_is_told_as_applied() -> None:
    assert rule_text(Tolerance()).startswith("floats |a - b| <= 0.001 |a| + 1e-05 x root mean square of a's column;")
    assert "8 rounding steps of float16" in rule_text(Tolerance(), "float16")
    assert rule_text(BITS).startswith("floats equal to the last bit;")


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_same_numbers_are_asked_for_in_half_precision_too(dtype: str) -> None:
    numbers = np.array([[1, 2], [3, 4]], dtype)
    assert ok(numbers, numbers.copy(), NUMBERS)
    assert not ok(numbers, np.nextafter(numbers, np.array(9, dtype)), NUMBERS)
