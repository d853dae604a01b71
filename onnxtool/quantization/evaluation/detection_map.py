"""Mean average precision of detections, as COCO has it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from onnxtool.errors import InputError

_THRESHOLDS = np.linspace(0.5, 0.95, 10)
_RECALLS = np.linspace(0, 1, 101)
_MOST = 100  # detections of an image that count


def mean_average_precision(outputs: Mapping[str, np.ndarray], labels: np.ndarray) -> float:
    """MAP at overlaps of 0.5 to 0.95, 101 recall points, at most 100 detections an image.

    Args:
        outputs: one of [images, detections, 6] (x1, y1, x2, y2, score, class), or three: boxes [images, detections, 4],
            scores and classes [images, detections], told apart by their names and types. What a model gives before
            non-maximum suppression has to be decoded by a metric of one's own.
        labels: [objects, 6]: index of the image, class, x1, y1, x2, y2.

    Raises:
        InputError: neither form, or other labels.

    Source: Lin et al. 2014, "Microsoft COCO"; the evaluation of pycocotools (cocoeval.py, area "all").
    """
    if labels.ndim != 2 or labels.shape[1] != 6:
        raise InputError("map takes labels of shape [objects, 6]: image, class, x1, y1, x2, y2.")
    boxes, scores, classes = _detections(outputs)
    found = []
    for kind in np.unique(labels[:, 1]):
        matched, confident, objects = [], [], 0
        for image in range(len(boxes)):
            own = labels[(labels[:, 0] == image) & (labels[:, 1] == kind), 2:]
            objects += len(own)
            picked = np.flatnonzero((classes[image] == kind) & (scores[image] > 0))
            picked = picked[np.argsort(-scores[image][picked], kind="mergesort")][:_MOST]
            matched.append(_matches(boxes[image][picked], own))
            confident.append(scores[image][picked])
        order = np.argsort(-np.concatenate(confident), kind="mergesort")
        hits = np.concatenate(matched, axis=1)[:, order]
        found.append([_average_precision(h, objects) for h in hits])
    return float(np.mean(found))


def _detections(outputs: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    for array in outputs.values():
        if array.ndim == 3 and array.shape[-1] == 6:
            return array[..., :4], array[..., 4], array[..., 5]
    boxes = next((a for a in outputs.values() if a.ndim == 3 and a.shape[-1] == 4), None)
    if boxes is not None:
        flat = {n: a for n, a in outputs.items() if a.shape == boxes.shape[:2]}
        scores = next((n for n, a in flat.items() if "score" in n.lower() or "conf" in n.lower()), None)
        scores = scores or next((n for n, a in flat.items() if a.dtype.kind == "f"), None)
        classes = next((n for n in flat if n != scores), None)
        if scores is not None and classes is not None:
            return boxes, flat[scores], flat[classes]
    shapes = ", ".join(f"{n}{list(a.shape)}" for n, a in outputs.items())
    raise InputError(f"map finds no boxes, scores and classes in {shapes}; decode them with a --metric of your own.")


def _matches(boxes: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """For each threshold, which detections (the surest first) hit an object that no surer one hit."""
    hits = np.zeros((len(_THRESHOLDS), len(boxes)), bool)
    if not len(truth) or not len(boxes):
        return hits
    overlap = _overlaps(boxes.astype(np.float64), truth.astype(np.float64))
    for row, threshold in enumerate(_THRESHOLDS):
        free = np.ones(len(truth), bool)
        for detection in range(len(boxes)):
            reach = np.where(free, overlap[detection], -1.0)
            # The last of equally good ones, as pycocotools takes it.
            best = len(reach) - 1 - int(np.argmax(reach[::-1]))
            if reach[best] >= min(threshold, 1 - 1e-10):
                hits[row, detection], free[best] = True, False
    return hits


def _overlaps(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    low, high = np.maximum(a[:, None, :2], b[None, :, :2]), np.minimum(a[:, None, 2:], b[None, :, 2:])
    shared = np.prod(np.maximum(high - low, 0), axis=-1)
    areas = [np.prod(np.maximum(x[:, 2:] - x[:, :2], 0), axis=-1) for x in (a, b)]
    union = areas[0][:, None] + areas[1][None] - shared
    return np.asarray(np.where(union > 0, shared / np.maximum(union, 1e-300), 0.0))


def _average_precision(hits: np.ndarray, objects: int) -> float:
    """Precision at 101 recalls, each the best at that recall or beyond."""
    if not len(hits):
        return 0.0
    right = np.cumsum(hits)
    recall, precision = right / objects, right / np.arange(1, len(hits) + 1)
    precision = np.maximum.accumulate(precision[::-1])[::-1]
    places = np.searchsorted(recall, _RECALLS, side="left")
    return float(np.where(places < len(precision), precision[np.minimum(places, len(precision) - 1)], 0.0).mean())
