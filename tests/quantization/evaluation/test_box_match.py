"""Boxes that lie where they were, in both forms; other columns are no boxes."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtool.quantization.evaluation.box_match import boxes_kept


def corners() -> np.ndarray:
    """[5, 3]: x1, y1, x2, y2 and a score of three boxes."""
    return np.array([[0, 50, 100], [0, 20, 200], [10, 90, 140], [10, 60, 220], [0.9, 0.1, 0.5]], np.float32)


def middles() -> np.ndarray:
    x1, y1, x2, y2, score = corners() + np.array([[30], [30], [30], [30], [0]], np.float32)
    return np.stack([(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1, score])


@pytest.mark.parametrize("make", [corners, middles])
def test_a_box_counts_as_kept_by_its_overlap(make: object) -> None:
    right = make()  # type: ignore[operator]
    wrong = right.copy()
    wrong[0] += [1, 2, 15]  # of widths 10, 40 and 40: at least 0.82, 0.9, and at most 0.63 of both overlap
    kept = boxes_kept(right, wrong)
    assert kept is not None and list(kept) == [True, True, False]


def test_a_score_alone_moves_no_box() -> None:
    wrong = corners()
    wrong[4] = 0
    kept = boxes_kept(corners(), wrong)
    assert kept is not None and kept.all()


def test_other_columns_are_no_boxes() -> None:
    rng = np.random.default_rng(0)
    assert boxes_kept(rng.normal(size=(6, 50)), np.zeros((6, 50))) is None
    assert boxes_kept(rng.uniform(size=(6, 50)), np.zeros((6, 50))) is None, "scores lie anywhere between 0 and 1"
    assert boxes_kept(np.ones((6, 50)), np.ones((6, 50))) is None, "constant columns"
    assert boxes_kept(corners()[:3], corners()[:3]) is None
