"""Whether inputs move an output."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtool.equality.rule.movement import Movement, movements

ROW = np.array([[1.0, np.nan, 3.0]], np.float32)


@pytest.mark.parametrize(
    ("runs", "constant"),
    [
        ([ROW.repeat(2, axis=0)], True),
        ([ROW, ROW], True),
        ([ROW], False),  # one row tells nothing
        ([ROW, ROW + np.float32(1)], False),
        ([np.zeros((2, 3)), np.zeros((1, 5))], True),  # another length, the same number
        ([ROW, np.ones((1, 5))], False),
        ([np.full((7, 1), 3)], False),  # a label may well be the same a few times
        ([np.full((8, 1), 3)], True),
        ([np.array(["a"] * 8)], True),
        ([np.array(["a"] * 8 + ["b"])], False),
        ([np.zeros((0, 3))], False),
    ],
)
def test_an_output_is_constant_when_enough_rows_are_alike(runs: list[np.ndarray], constant: bool) -> None:
    movement = Movement()
    for run in runs:
        movement.add(run)
    assert movement.is_constant == constant


def test_each_output_moves_by_itself() -> None:
    found = movements([{"y": ROW, "z": ROW}, {"y": ROW, "z": -ROW}])
    assert found["y"].is_constant and found["z"].found
