"""Boxes that lie where they were, in both forms; other columns are no boxes."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtool.quantization.evaluation.box_match import (
    BoxOverlap,
    boxes_kept,
    boxes_looked_at,
    form_of,
    form_of_boxes,
    overlaps,
)


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


def boxes_of(rows: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    low = random.uniform(0, 500, (4, rows, 2))
    return np.concatenate([low, low + random.uniform(20, 60, low.shape)], -1).astype(np.float32)


def test_boxes_that_are_an_output_of_their_own_count_by_the_scores_beside_them() -> None:
    random = np.random.default_rng(1)
    scores = random.random((4, 10, 3)).astype(np.float32)
    outputs = {"boxes": boxes_of(10), "scores": scores, "other": random.random((4, 7)).astype(np.float32)}
    within = {name: np.ones(1, bool) for name in outputs}
    assert (boxes_looked_at("boxes", outputs, within) == (scores.max(-1) > 0.3)).all()
    one = {"boxes": boxes_of(10), "scores": scores[..., 0]}
    assert (boxes_looked_at("boxes", one, within) == (scores[..., 0] > 0.3)).all()
    logits = {"boxes": boxes_of(10), "logits": scores - 0.9}
    logits_within = {"logits": np.zeros(1, bool)}
    assert (boxes_looked_at("boxes", logits, logits_within) == (scores.max(-1) > 0.9)).all()
    assert boxes_looked_at("boxes", {"boxes": boxes_of(10), "other": outputs["other"]}, within).all(), "no scores"


def test_what_may_be_something_else_is_no_box() -> None:
    random = np.random.default_rng(2)
    quantiles = np.sort(random.random((4, 10, 4)), axis=-1)
    for values in (random.normal(size=(4, 10, 4)), quantiles, boxes_of(10)[..., :3], boxes_of(1)):
        assert form_of_boxes([values.astype(np.float32)]) is None
    assert form_of_boxes([boxes_of(10).astype(np.int64)]) is None
    assert (
        form_of_boxes([boxes_of(2)])
        == form_of_boxes([boxes_of(10)[0]])
        == form_of_boxes([boxes_of(1)] * 2)
        == "corners"
    )
    assert form_of_boxes([middles()[:4].T] * 3) == "middle"


@pytest.mark.parametrize("scale", [1.0, 640.0])
@pytest.mark.parametrize("form", ["corners", "middle"])
def test_overlaps_of_each_with_each(scale: float, form: str) -> None:
    some = np.array([[0.1, 0.1, 0.3, 0.3], [0.5, 0.5, 0.6, 0.7]]) * scale
    others = np.array([[0.2, 0.1, 0.4, 0.3], [0.5, 0.5, 0.6, 0.7], [0.8, 0.8, 0.9, 0.9]]) * scale
    if form == "middle":
        some, others = (np.concatenate([(v[:, :2] + v[:, 2:]) / 2, v[:, 2:] - v[:, :2]], 1) for v in (some, others))
    assert overlaps(some.T, others.T, form) == pytest.approx(np.array([[1 / 3, 0, 0], [0, 1, 0]]), abs=1e-9)


def test_boxes_of_their_own_are_held_by_their_mean_overlap() -> None:
    boxes = boxes_of(10)
    moved = boxes.copy()
    width = boxes[..., 2] - boxes[..., 0]
    moved[..., 0] += 0.1 * width  # a tenth narrower
    moved[3] += 1000  # nobody looks at these
    counting = np.ones((4, 10), bool)
    counting[3] = False
    overlap = BoxOverlap("corners")
    assert overlap.add(boxes, moved, counting).all()
    assert overlap.decibels(0.95) == pytest.approx((20, 20), abs=1e-3)
    assert not BoxOverlap("corners").add(boxes, moved, ~counting).any()
    overlap.add(boxes[:1], boxes[:1], counting[:1])
    found = overlap.decibels(0.95)
    assert found is not None and found[0] == pytest.approx(-20 * np.log10(0.075), abs=1e-3) and found[1] < found[0]
    overlap = BoxOverlap("corners")
    overlap.add(boxes, boxes, counting)
    assert overlap.decibels(0.95) is None


@pytest.mark.parametrize(
    ("columns", "form"),
    [
        ([[5.0, 9.0], [5.0, 9.0], [4.0, 6.0], [4.0, 6.0]], "middle"),
        ([[5.0, 9.0], [5.0, 9.0], [4.0, 40.0], [4.0, 6.0]], None),  # far out of the picture
        ([[5.0, 9.0], [5.0, 9.0], [4.0, 6.0], [4.0, 40.0]], None),
        ([[5.0, 9.0], [5.0, 9.0], [4.0, 0.0], [4.0, 6.0]], None),  # no width
        ([[-0.1, 9.0], [5.0, 9.0], [0.1, 6.0], [4.0, 6.0]], None),  # a middle beside the picture
        ([[5.0, 9.0], [-0.1, 9.0], [4.0, 6.0], [0.1, 6.0]], None),
        ([[0.5, 9.0], [0.5, 9.0], [1.5, 6.0], [1.5, 6.0]], "corners"),
    ],
)
def test_a_middle_with_sizes_lies_in_the_picture(columns: list[list[float]], form: str | None) -> None:
    values = np.array(columns)
    if form == "corners":
        values[2:] = values[:2] + values[2:]
    assert form_of(values) == form
