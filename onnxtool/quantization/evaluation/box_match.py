"""Boxes of a detector before non-maximum suppression: whether each still lies where it was."""

from __future__ import annotations

import numpy as np

_OVERLAP = 0.75  # of both; in the middle of the 0.5 to 0.95 that COCO's mean average precision counts
_MOSTLY = 0.99


def boxes_kept(expected: np.ndarray, actual: np.ndarray) -> np.ndarray | None:
    """For each place, whether the box that it gives overlaps well enough with the float model's.

    Args:
        expected: columns of the float model's output, [columns, places]; the first four may be boxes.
        actual: the candidate's, of the same shape.

    Returns:
        [places], bool; None where the first four columns are no boxes: neither corners (x1, y1, x2, y2) nor a middle
        with a width and a height.
    """
    form = _form(expected)
    if form is None:
        return None
    a, b = (_corners(v[:4].astype(np.float64), form) for v in (expected, actual))
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    shared = np.clip(high - low, 0, None).prod(axis=0)
    areas = [np.clip(v[2:] - v[:2], 0, None).prod(axis=0) for v in (a, b)]
    union = areas[0] + areas[1] - shared
    return np.asarray(shared >= _OVERLAP * union)


def _form(columns: np.ndarray) -> str | None:
    if len(columns) < 4 or not (columns[:4].std(axis=1) > 0).all():
        return None
    x, y, third, fourth = columns[:4]
    if ((third > x) & (fourth > y)).mean() > _MOSTLY:
        return "corners"
    sizes = (third > 0).mean() > _MOSTLY and (fourth > 0).mean() > _MOSTLY
    # Middles lie all over the picture, and boxes within it, or not far out of it.
    inside = ((x - third / 2 > -0.1 * x.max()) & (y - fourth / 2 > -0.1 * y.max())).mean()
    return "middle" if sizes and inside > 0.9 and x.min() >= 0 and y.min() >= 0 else None


def _corners(boxes: np.ndarray, form: str) -> np.ndarray:
    if form == "corners":
        return boxes
    return np.concatenate([boxes[:2] - boxes[2:] / 2, boxes[:2] + boxes[2:] / 2])
