"""Columns in ascending order, and maps that are summed."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtool.quantization.evaluation.column_noise import OrderedColumns, TotalShift


def noise_of(right: np.ndarray, noise: np.ndarray) -> float | None:
    found = OrderedColumns()
    half = len(right) // 2
    found.add(right[:half], noise[:half])
    found.add(right[half:], noise[half:])
    return found.decibels


@pytest.mark.parametrize("axis", [1, 2])
def test_noise_of_quantiles_is_measured_by_what_is_between_them(axis: int) -> None:
    random = np.random.default_rng(0)
    level = random.normal(1000, 300, (200, 40, 1))
    right = np.moveaxis(level + np.array([-10.0, 0, 10]), 2, axis)
    noise = np.moveaxis(random.normal(size=(200, 40, 3)), 2, axis)
    assert noise_of(right, noise) == pytest.approx(10 * np.log10(400 / 2), abs=0.1), (
        "noise of a difference is twice one's"
    )
    shared = np.moveaxis(np.broadcast_to(random.normal(size=(200, 40, 1)), (200, 40, 3)), 2, axis)
    assert noise_of(right, shared) is None, "all quantiles shift alike"


def test_columns_in_no_order_have_no_differences_that_count() -> None:
    random = np.random.default_rng(1)
    right = np.sort(random.normal(size=(200, 5)), axis=1)
    noise = np.ones((200, 5)) * np.arange(5)
    assert noise_of(right, noise) is not None
    mixed = right.copy()
    mixed[:3, 0] = 9.0  # three rows of 200 are more than one in a hundred
    assert noise_of(mixed, noise) is None
    mixed = right.copy()
    mixed[:2, 0] = 9.0
    assert noise_of(mixed, noise) is not None
    assert noise_of(np.ones((200, 5)), noise) is None, "equal columns are in no order"


@pytest.mark.parametrize(
    ("rows", "columns", "counts"), [(16, 3, True), (14, 3, False), (16, 1, False), (16, 2, True), (16, 300, True)]
)
def test_order_takes_some_rows_and_two_columns(rows: int, columns: int, counts: bool) -> None:
    right = np.broadcast_to(np.arange(columns), (rows, columns)).astype(float)
    noise = np.zeros((rows, columns))
    noise[0, 0] = 1
    assert (noise_of(right, noise) is not None) == counts


def shift_of(right: np.ndarray, wrong: np.ndarray) -> float | None:
    found = TotalShift()
    found.add(right, wrong - right)
    return found.value()


@pytest.mark.parametrize("shape", [(8, 1, 10, 10), (8, 10, 10, 1)])
def test_the_sum_of_a_map_of_amounts_is_held(shape: tuple[int, ...]) -> None:
    right = np.where(np.random.default_rng(2).random(shape) < 0.05, 1.0, 0.0)
    assert shift_of(right, right + 0.001) == pytest.approx(0.8 / right.sum())
    assert shift_of(right, right - 0.001) == pytest.approx(0.8 / right.sum())
    assert shift_of(right - 0.01, right) is None, "below zero: no amounts"
    assert shift_of(right + 1, right) is None, "as high everywhere: a picture"
    assert shift_of(right.reshape(8, 100), right.reshape(8, 100)) is None
    assert shift_of(np.zeros(shape), np.ones(shape)) is None
    assert shift_of(np.repeat(np.repeat(right, 2, 1), 2, 3), np.zeros((1,))) is None, "two channels"


def test_amounts_are_told_by_how_they_scatter() -> None:
    random = np.random.default_rng(3)
    few = np.where(random.random((8, 1, 20, 20)) < 0.3, 0.001, 0.0)  # squares: 3.3 times the mean's
    many = np.where(random.random((8, 1, 20, 20)) < 0.6, 0.001, 0.0)  # 1.7 times
    assert shift_of(few, few * 1.01) == pytest.approx(0.01)
    assert shift_of(many, many * 1.01) is None


def test_the_sum_of_few_maps_may_be_further_off() -> None:
    random = np.random.default_rng(4)
    right = np.where(random.random((8, 1, 20, 20)) < 0.1, 1.0, 0.0)
    found = TotalShift()
    found.add(right, 0.01 * random.normal(size=(8, 1, 1, 1)) * np.ones_like(right))
    assert (found.value() or 1) < (found.value(0.8) or 0) < (found.value(0.95) or 0)


def test_steps_that_change_their_sign_count() -> None:
    right = np.array([0.0, 0.001, 1.0]) + np.arange(40)[:, None]
    crossed = np.zeros((40, 3))
    crossed[:2, 0] = 0.002
    assert noise_of(right, crossed) == pytest.approx(-10 * np.log10(2 / 80 + 2 * 0.002**2 / 40), abs=0.01)


def test_quantiles_may_be_equal() -> None:
    right = np.array([0.0, 0.0, 1.0]) + np.arange(40)[:, None]
    assert noise_of(right, np.ones((40, 3)) * [0.0, 0.0, 0.1]) == pytest.approx(20)
