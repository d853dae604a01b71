"""Task metrics by name: of (outputs by name, labels), higher is better, on a scale where 0.01 is one point.

Each is held by a test against the implementation that people know (scikit-learn, pycocotools, jiwer).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from onnxtool.errors import InputError
from onnxtool.quantization.evaluation.box_match import mean_average_precision
from onnxtool.quantization.evaluation.class_agreement import collapse, edit_distance, probabilities
from onnxtool.runtime.feeds import Outputs

_PADDING = -1
_IGNORED = (255, -1)  # what segmentation data has where nobody labelled


def accuracy(outputs: Outputs, labels: np.ndarray) -> float:
    """Share of labels that the model hits.

    The first output that has one more dim than the labels counts, by argmax over its last axis; where there is none, an
    integer output of the labels' shape is compared as it is.

    Raises:
        InputError: no output fits the labels.
    """
    return float((chosen(outputs, labels) == labels).mean())


def f1(outputs: Outputs, labels: np.ndarray) -> float:
    """F1 of the second of two classes; of more classes the mean of each one's (macro), as scikit-learn has them."""
    found = chosen(outputs, labels)
    classes = np.union1d(labels, found)
    if set(classes.tolist()) <= {0, 1}:
        classes = np.array([1])
    scores = []
    for one in classes:
        hits = int(((found == one) & (labels == one)).sum())
        either = int((found == one).sum() + (labels == one).sum())
        scores.append(2 * hits / either if either else 0.0)
    return float(np.mean(scores))


def auc(outputs: Outputs, labels: np.ndarray) -> float:
    """Area under the ROC curve of two classes: the chance that a positive scores above a negative, ties half.

    The score is an output of the labels' shape, or the second of two columns.

    Raises:
        InputError: no such output, or labels of one class only.
    """
    scores = _scores(outputs, labels)
    positive = labels.astype(bool).reshape(-1)
    ranks = _ranks(scores.reshape(-1).astype(np.float64))
    count = int(positive.sum())
    rest = positive.size - count
    if not count or not rest:
        raise InputError("auc needs labels of both classes, 0 and 1.")
    return float((ranks[positive].sum() - count * (count + 1) / 2) / (count * rest))


def r2(outputs: Outputs, labels: np.ndarray) -> float:
    """R2 of a regression, the worst target's: 1 is perfect, 0 is no better than the mean.

    The worst and not the mean: a target that is lost does not hide behind others.
    """
    found = _of_shape(outputs, labels)
    truth = labels.reshape(len(labels), -1).astype(np.float64)
    residual = np.square(truth - found.reshape(truth.shape).astype(np.float64)).sum(0)
    spread = np.square(truth - truth.mean(0)).sum(0)
    varied = spread > 0
    if not varied.any():
        raise InputError("r2 needs labels that vary.")
    return float((1 - residual[varied] / spread[varied]).min())


def perplexity(outputs: Outputs, labels: np.ndarray) -> float:
    """Minus the mean negative log-likelihood in nats: 0.01 less is a perplexity that is 1 % higher.

    Labels are token ids, one for each step, -1 and -100 where none counts.
    """
    logits = _with_classes(outputs, labels)
    counted = ~np.isin(labels, (_PADDING, -100))
    likely = probabilities(logits[counted].astype(np.float64))
    picked = likely[np.arange(len(likely)), labels[counted]]
    return float(np.log(np.maximum(picked, 1e-300)).mean())


def cer(outputs: Outputs, labels: np.ndarray) -> float:
    """1 - character error rate, over all samples: of text outputs, or of what a CTC decoder reads off the classes.

    Labels are texts, or rows of ids padded with -1.
    """
    return _error_rate(outputs, labels, list)


def wer(outputs: Outputs, labels: np.ndarray) -> float:
    """1 - word error rate, over all samples; where there are ids and no texts, each id is a word."""
    return _error_rate(outputs, labels, str.split)


def miou(outputs: Outputs, labels: np.ndarray) -> float:
    """Mean intersection over union of the classes that occur, over all pixels; 255 and -1 are not counted."""
    classes = _segments(outputs, labels)
    counted = ~np.isin(labels, _IGNORED)
    truth, found = labels[counted].astype(np.int64), classes[counted].astype(np.int64)
    size = int(max(truth.max(initial=0), found.max(initial=0))) + 1
    table = np.bincount(truth * size + found, minlength=size * size).reshape(size, size)
    hits = np.diag(table)
    union = table.sum(0) + table.sum(1) - hits
    return float((hits[union > 0] / union[union > 0]).mean())


def retrieval(outputs: Outputs, labels: np.ndarray) -> float:
    """Share of samples whose nearest other sample, by the cosine of their vectors, has the same label.

    Samples with a label of their own have nothing to find and are not counted. Vectors of each step are averaged.
    """
    for array in outputs.values():
        if array.dtype.kind == "f" and array.ndim >= 2 and len(array) == len(labels):
            vectors = array.astype(np.float64)
            vectors = vectors.mean(tuple(range(1, vectors.ndim - 1))) if vectors.ndim > 2 else vectors
            break
    else:
        raise InputError("retrieval needs an output of vectors, one for each label.")
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-300)
    angles = unit @ unit.T
    np.fill_diagonal(angles, -np.inf)
    same = labels[:, None] == labels[None]
    np.fill_diagonal(same, False)
    counted = same.any(1)
    if not counted.any():
        raise InputError("retrieval needs labels that several samples share: the id of each one's group.")
    return float((labels[angles.argmax(1)] == labels)[counted].mean())


METRICS: Mapping[str, Callable[[Outputs, np.ndarray], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "auc": auc,
    "r2": r2,
    "perplexity": perplexity,
    "cer": cer,
    "wer": wer,
    "miou": miou,
    "map": mean_average_precision,
    "retrieval": retrieval,
}


def _with_classes(outputs: Outputs, labels: np.ndarray) -> np.ndarray:
    for array in outputs.values():
        if array.dtype.kind == "f" and array.shape[:-1] == labels.shape and array.ndim == labels.ndim + 1:
            return np.asarray(array)
    raise InputError(_no_fit(outputs, labels))


def chosen(outputs: Outputs, labels: np.ndarray) -> np.ndarray:
    """The classes that an output names, of the labels' shape."""
    for name, array in outputs.items():
        if array.shape[:-1] == labels.shape and array.ndim == labels.ndim + 1:
            _check_classes(name, array.shape[-1], labels)
            return np.asarray(array.argmax(axis=-1))
    for array in outputs.values():
        if array.shape == labels.shape and array.dtype.kind in "iuOUS":
            return np.asarray(array)
    if any(a.shape == labels.shape for a in outputs.values()) and _is_one_hot(labels):
        raise InputError("the labels are one-hot; give class numbers instead: labels.argmax(axis=-1).")
    raise InputError(_no_fit(outputs, labels))


def _check_classes(name: str, classes: int, labels: np.ndarray) -> None:
    """Raises InputError for a label that no class has: its accuracy would be zero whatever the model does.

    Negative ones mark what does not count, as in PyTorch and scikit-learn.
    """
    if labels.dtype.kind in "iuf" and labels.size and labels.max() >= classes:
        worst = int(labels.reshape(-1).argmax())
        raise InputError(
            f"label {labels.reshape(-1)[worst]:g} (at {worst}) is beyond the {classes} classes of output {name!r}, "
            "which count from 0."
        )


def _is_one_hot(labels: np.ndarray) -> bool:
    return labels.ndim > 1 and bool(np.isin(labels, (0, 1)).all() and (labels.sum(axis=-1) == 1).all())


def _of_shape(outputs: Outputs, labels: np.ndarray) -> np.ndarray:
    for array in outputs.values():
        if array.dtype.kind == "f" and array.size == labels.size and len(array) == len(labels):
            return np.asarray(array)
    raise InputError(_no_fit(outputs, labels))


def _scores(outputs: Outputs, labels: np.ndarray) -> np.ndarray:
    for array in outputs.values():
        if array.dtype.kind == "f" and array.shape == (*labels.shape, 2):
            return probabilities(array.astype(np.float64))[..., 1]
    return _of_shape(outputs, labels)


def _segments(outputs: Outputs, labels: np.ndarray) -> np.ndarray:
    for array in outputs.values():
        if array.ndim == labels.ndim + 1 and array.shape[0] == labels.shape[0]:
            if array.shape[2:] == labels.shape[1:]:
                return np.asarray(array.argmax(1))
            if array.shape[1:-1] == labels.shape[1:]:
                return np.asarray(array.argmax(-1))
    for array in outputs.values():
        if array.shape == labels.shape and array.dtype.kind in "iu":
            return np.asarray(array)
    raise InputError(_no_fit(outputs, labels))


def _no_fit(outputs: Outputs, labels: np.ndarray) -> str:
    shapes = ", ".join(f"{n}{list(a.shape)}" for n, a in outputs.items())
    return f"labels of shape {list(labels.shape)} fit none of the outputs {shapes}; give --metric."


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[inverse])


def _error_rate(outputs: Outputs, labels: np.ndarray, split: Callable[[str], list[str]]) -> float:
    edits = length = 0
    for truth, found in zip(_texts(labels, split), _read(outputs, labels, split), strict=True):
        edits += edit_distance(truth, found)
        length += len(truth)
    return 1 - edits / max(length, 1)


def _texts(labels: np.ndarray, split: Callable[[str], list[str]]) -> list[Sequence[Any]]:
    if labels.dtype.kind in "OUS":
        return [split(str(text)) for text in labels.reshape(-1)]
    return [[int(i) for i in row if i != _PADDING] for row in labels.reshape(len(labels), -1)]


def _read(outputs: Outputs, labels: np.ndarray, split: Callable[[str], list[str]]) -> list[Sequence[Any]]:
    for array in outputs.values():
        if array.dtype.kind in "OUS" and array.size == len(labels):
            return [split(str(text)) for text in array.reshape(-1)]
    for array in outputs.values():
        if array.dtype.kind == "f" and array.ndim == 3 and len(labels) in array.shape[:2]:
            best = array.argmax(-1) if len(array) == len(labels) else array.argmax(-1).T  # steps first
            last = array.shape[-1] - 1
            blank = 0 if (best == 0).sum() >= (best == last).sum() else last
            return [[int(i) for i in collapse(row, blank)] for row in best]
    raise InputError(_no_fit(outputs, labels))
