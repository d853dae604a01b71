"""Boxes of a detector: whether each still lies where it was, and the mean average precision of what is found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from onnxtool.errors import InputError
from onnxtool.quantization.evaluation.bounds import mean_bound

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
    return MatchedImages.of(outputs, labels).precision()


@dataclass(frozen=True)
class MatchedImages:
    """Which detections hit, image by image, so that any choice of images can be judged.

    Attributes:
        count: of images.
        classes: for each class and image: hits [10 overlaps, detections] (bool), their scores, and how many objects
            there are.
    """

    count: int
    classes: tuple[tuple[tuple[np.ndarray, np.ndarray, int], ...], ...]

    @classmethod
    def of(cls, outputs: Mapping[str, np.ndarray], labels: np.ndarray) -> MatchedImages:
        """Match what a model found with the labels; of both as `mean_average_precision` takes them.

        Raises:
            InputError: neither form, or other labels.
        """
        if labels.ndim != 2 or labels.shape[1] != 6:
            raise InputError("map takes labels of shape [objects, 6]: image, class, x1, y1, x2, y2.")
        boxes, scores, classes = _detections(outputs)
        found = []
        for kind in np.unique(labels[:, 1]):
            images = []
            for image in range(len(boxes)):
                own = labels[(labels[:, 0] == image) & (labels[:, 1] == kind), 2:]
                picked = np.flatnonzero((classes[image] == kind) & (scores[image] > 0))
                picked = picked[np.argsort(-scores[image][picked], kind="mergesort")][:_MOST]
                images.append((_matches(boxes[image][picked], own), scores[image][picked], len(own)))
            found.append(tuple(images))
        return cls(len(boxes), tuple(found))

    def precision(self, images: Sequence[int] | np.ndarray | None = None) -> float:
        """Mean average precision over some images, all unless given; of the classes that are among their objects."""
        chosen = range(self.count) if images is None else images
        found = []
        for every in self.classes:
            hits, confident, objects = zip(*(every[i] for i in chosen), strict=True)
            if sum(objects):
                order = np.argsort(-np.concatenate(confident), kind="mergesort")
                found.append([_average_precision(h, sum(objects)) for h in np.concatenate(hits, axis=1)[:, order]])
        return float(np.mean(found)) if found else float("nan")


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
    overlap = overlaps(boxes.T, truth.T, "corners")
    for row, threshold in enumerate(_THRESHOLDS):
        free = np.ones(len(truth), bool)
        for detection in range(len(boxes)):
            reach = np.where(free, overlap[detection], -1.0)
            # The last of equally good ones, as pycocotools takes it.
            best = len(reach) - 1 - int(np.argmax(reach[::-1]))
            if reach[best] >= min(threshold, 1 - 1e-10):
                hits[row, detection], free[best] = True, False
    return hits


def _average_precision(hits: np.ndarray, objects: int) -> float:
    """Precision at 101 recalls, each the best at that recall or beyond."""
    if not len(hits):
        return 0.0
    right = np.cumsum(hits)
    recall, precision = right / objects, right / np.arange(1, len(hits) + 1)
    precision = np.maximum.accumulate(precision[::-1])[::-1]
    places = np.searchsorted(recall, _RECALLS, side="left")
    return float(np.where(places < len(precision), precision[np.minimum(places, len(precision) - 1)], 0.0).mean())


OVERLAP = 0.75  # of both; in the middle of the 0.5 to 0.95 that COCO's mean average precision counts
_MOSTLY = 0.99
BOX = 4  # columns
_ACTED_ON = 0.3  # a score, from which on people look at a box
_DIRECTIONS = 10
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
    return None if form is None else overlap_of_each(expected[:BOX], actual[:BOX], form) >= OVERLAP


def overlap_of_each(expected: np.ndarray, actual: np.ndarray, form: str) -> np.ndarray:
    """Intersection over union of each box with the one in its place, [4, places] both: [places]."""
    a, b = (_corners(v.astype(np.float64), form) for v in (expected, actual))
    shared = np.clip(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0, None).prod(axis=0)
    areas = [np.clip(v[2:] - v[:2], 0, None).prod(axis=0) for v in (a, b)]
    return np.asarray(shared / np.maximum(areas[0] + areas[1] - shared, 1e-300))


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


@dataclass
class BoxOverlap:
    """How much boxes that are an output of their own overlap with where they were.

    A box that moves by a share of its size costs the more the better it lay: where float's overlaps with the truth are
    0.8 on the mean, 0.94 with float's cost half a point of that mean, 0.9 one and a half (measured on trained boxes).

    Attributes:
        form: of all boxes.
        missed: 1 - overlap of those that count.
    """

    form: str
    missed: list[np.ndarray] = field(default_factory=list)

    def add(self, expected: np.ndarray, actual: np.ndarray, counting: np.ndarray) -> np.ndarray:
        """Take in a batch, [..., 4] both, and which of the boxes count, [...]; which of these were found, [boxes]."""
        overlap = overlap_of_each(expected[counting].T, actual[counting].T, self.form)
        self.missed.append(1 - overlap)
        return overlap >= OVERLAP

    def decibels(self, confidence: float) -> tuple[float, float] | None:
        """What is missed on the mean, squared, in dB below one, and at most; None without boxes."""
        missed = np.concatenate([*self.missed, np.zeros(0)])
        if not missed.any():
            return None
        most = mean_bound(missed, confidence) if len(missed) > 1 else float(missed.mean())
        return -20 * float(np.log10(missed.mean())), -20 * float(np.log10(most))


def form_of_boxes(batches: Sequence[np.ndarray]) -> str | None:
    """The form of an output that is boxes and nothing else; None where it may be something else: columns in ascending
    order are quantiles, and a place, and a size, do not vary in one direction ten times as much as in the other.
    """
    if any(a.dtype.kind != "f" or a.ndim not in (2, 3) or a.shape[-1] != BOX for a in batches):
        return None
    rows = np.concatenate([a.reshape(-1, BOX) for a in batches])
    if len(rows) < _LEAST_BOXES or (np.diff(rows) >= 0).all():
        return None
    spread = np.sort(rows.std(axis=0, dtype=np.float64).reshape(2, 2))
    return form_of(rows.T) if (spread[:, 1] <= _DIRECTIONS * spread[:, 0]).all() else None


def boxes_looked_at(name: str, outputs: Mapping[str, np.ndarray], scores: Mapping[str, np.ndarray]) -> np.ndarray:
    """Which boxes of an output somebody looks at.

    Args:
        name: of the boxes.
        outputs: what the float model gave, by name.
        scores: which columns of each lie within [0, 1], or whether all do.

    Returns:
        [samples, boxes] or [boxes], bool: those of a score of at least 0.3 in an output beside them (in any of its
        columns), or of logits above 0; all where no output has as many rows.
    """
    rows = outputs[name].shape[:-1]
    for other, values in outputs.items():
        if other == name or values.dtype.kind != "f" or rows not in (values.shape, values.shape[:-1]):
            continue
        best = values if values.shape == rows else values.max(axis=-1)
        return np.asarray(best > (_ACTED_ON if scores[other].all() else 0.0))
    return np.ones(rows, bool)
