"""Boxes of a detector before non-maximum suppression: whether each still lies where it was."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

OVERLAP = 0.75  # of both; in the middle of the 0.5 to 0.95 that COCO's mean average precision counts
_MOSTLY = 0.99
BOX = 4  # columns
_ACTED_ON = 0.3  # a score, from which on people look at a box
_LEAST_BOXES = 8  # that tell by their numbers that they are corners


def boxes_kept(expected: np.ndarray, actual: np.ndarray) -> np.ndarray | None:
    """For each place, whether the box that it gives overlaps well enough with the float model's.

    Args:
        expected: columns of the float model's output, [columns, places]; the first four may be boxes.
        actual: the candidate's, of the same shape.

    Returns:
        [places], bool; None where the first four columns are no boxes: neither corners (x1, y1, x2, y2) nor a middle
        with a width and a height.
    """
    form = form_of(expected)
    if form is None:
        return None
    a, b = (_corners(v[:4].astype(np.float64), form) for v in (expected, actual))
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    shared = np.clip(high - low, 0, None).prod(axis=0)
    areas = [np.clip(v[2:] - v[:2], 0, None).prod(axis=0) for v in (a, b)]
    union = areas[0] + areas[1] - shared
    return np.asarray(shared >= OVERLAP * union)


def form_of(columns: np.ndarray) -> str | None:
    """ "corners" or "middle" (with width and height) of what the first four of some columns are; None for neither."""
    if len(columns) < 4 or not (columns[:4].std(axis=1) > 0).all():
        return None
    x, y, third, fourth = columns[:4]
    if ((third > x) & (fourth > y)).mean() > _MOSTLY:
        return "corners"
    sizes = (third > 0).mean() > _MOSTLY and (fourth > 0).mean() > _MOSTLY
    # Middles lie all over the picture, and boxes within it, or not far out of it.
    inside = ((x - third / 2 > -0.1 * x.max()) & (y - fourth / 2 > -0.1 * y.max())).mean()
    return "middle" if sizes and inside > 0.9 and x.min() >= 0 and y.min() >= 0 else None


def overlaps(some: np.ndarray, others: np.ndarray, form: str) -> np.ndarray:
    """Intersection over union of each of some boxes with each of others, [4, places] both: [some, others]."""
    a, b = (_corners(v.astype(np.float64), form) for v in (some, others))
    low, high = np.maximum(a[:2, :, None], b[:2, None]), np.minimum(a[2:, :, None], b[2:, None])
    shared = np.clip(high - low, 0, None).prod(axis=0)
    areas = [np.clip(v[2:] - v[:2], 0, None).prod(axis=0) for v in (a, b)]
    return np.asarray(shared / np.maximum(areas[0][:, None] + areas[1] - shared, 1e-300))


def _corners(boxes: np.ndarray, form: str) -> np.ndarray:
    if form == "corners":
        return boxes
    return np.concatenate([boxes[:2] - boxes[2:] / 2, boxes[:2] + boxes[2:] / 2])


def counting_boxes(outputs: Mapping[str, np.ndarray], scores: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs that are boxes and nothing else, and which of the boxes somebody looks at.

    Args:
        outputs: what the float model gave, by name.
        scores: which columns of each lie within [0, 1], or whether all do.

    Returns:
        name -> [samples, boxes] or [boxes], bool: those of a score of at least 0.3 in an output beside them (in any of
        its columns), or of logits above 0; all where no output has as many rows. What are no corners (x1, y1, x2, y2)
        is not among them: three or four sizes cannot be told from a middle with a width and a height.
    """
    found = {}
    for name, values in outputs.items():
        if values.dtype.kind != "f" or values.ndim not in (2, 3) or values.shape[-1] != BOX:
            continue
        if values.size < _LEAST_BOXES * BOX:
            continue
        if form_of(_as_columns(values)) == "corners" and not (np.diff(values, axis=-1) >= 0).all():
            found[name] = _looked_at(name, outputs, scores)
    return found


def boxes_found(expected: np.ndarray, actual: np.ndarray) -> np.ndarray | None:
    """`boxes_kept` of outputs that are boxes and nothing else, [..., 4]: [...], bool."""
    kept = boxes_kept(_as_columns(expected), _as_columns(actual))
    return None if kept is None else kept.reshape(expected.shape[:-1])


def _as_columns(boxes: np.ndarray) -> np.ndarray:
    return np.moveaxis(boxes, -1, 0).reshape(BOX, -1)


def _looked_at(name: str, outputs: Mapping[str, np.ndarray], scores: Mapping[str, np.ndarray]) -> np.ndarray:
    rows = outputs[name].shape[:-1]
    for other, values in outputs.items():
        if other == name or values.dtype.kind != "f" or rows not in (values.shape, values.shape[:-1]):
            continue
        best = values if values.shape == rows else values.max(axis=-1)
        return np.asarray(best > (_ACTED_ON if scores[other].all() else 0.0))
    return np.ones(rows, bool)
