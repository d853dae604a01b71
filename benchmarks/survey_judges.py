"""How good outputs are, for `quantize_survey.py`: against labels where there are any, else against the float model's.

A judge takes what a model gives for each sample (a list of its outputs), what the float model gives, and labels; higher
is better, and 1 is perfect. It knows nothing of the judges that the product uses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Outputs = list[list[np.ndarray]]
Judge = Callable[[Outputs, Outputs, Sequence[Any]], float]


def accuracy(found: Outputs, _: Outputs, labels: Sequence[Any]) -> float:
    """Share of samples whose largest score is at the label."""
    return float(np.mean([int(o[0].reshape(-1).argmax()) == label for o, label in zip(found, labels, strict=True)]))


def same_class(found: Outputs, right: Outputs, _: Sequence[Any]) -> float:
    """Share of positions where float's class is found."""
    return float(np.mean(np.concatenate([_classes(a) == _classes(b) for a, b in zip(found, right, strict=True)])))


def _classes(outputs: list[np.ndarray]) -> np.ndarray:
    return np.asarray(outputs[0].argmax(axis=-1)).ravel()


def same_decisions(found: Outputs, right: Outputs, _: Sequence[Any]) -> float:
    """F1 of scores over one half, over the first output: the decision of a detector of events or of a mask."""
    a, b = (np.concatenate([o[0].ravel() for o in side]) > 0.5 for side in (found, right))
    return float(2 * (a & b).sum() / max(a.sum() + b.sum(), 1))


def same_mask(found: Outputs, right: Outputs, _: Sequence[Any]) -> float:
    """Overlap of what is over 0.3 (what text detectors use): intersection over union, of all pixels."""
    a, b = (np.concatenate([o[0].ravel() for o in side]) > 0.3 for side in (found, right))
    return float((a & b).sum() / max((a | b).sum(), 1))


def retrieval(found: Outputs, _: Outputs, labels: Sequence[Any]) -> float:
    """Share of queries whose own text is the nearest one by cosine; samples are queries, then texts, as many."""
    vectors = np.array([o[0].ravel() for o in found], np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    queries, texts = vectors[: len(labels)], vectors[len(labels) :]
    return float(((queries @ texts.T).argmax(axis=1) == np.asarray(labels)).mean())


def neighbours(found: Outputs, right: Outputs, _: Sequence[Any]) -> float:
    """Share of the five nearest, by float's vectors, that are among the five nearest still."""
    near = []
    for side in (found, right):
        vectors = np.array([o[0].ravel() for o in side], np.float64)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True) + 1e-30
        likeness = vectors @ vectors.T
        np.fill_diagonal(likeness, -2)
        near.append(np.argsort(-likeness, axis=1)[:, :5])
    return float(np.mean([len(set(a) & set(b)) / 5 for a, b in zip(*near, strict=True)]))


def same_voice(found: Outputs, _: Outputs, labels: Sequence[Any]) -> float:
    """Share of samples whose nearest other one, by cosine, is of the same label."""
    vectors = np.array([o[0].ravel() for o in found], np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True) + 1e-30
    likeness = vectors @ vectors.T
    np.fill_diagonal(likeness, -2)
    kinds = np.asarray(labels)
    return float((kinds[likeness.argmax(axis=1)] == kinds).mean())


def explained(found: Outputs, right: Outputs, labels: Sequence[Any]) -> float:
    """R2 of the weakest column of the first output, to labels where there are any, else to float; 1 at the most."""
    truth = np.array(labels, np.float64) if len(labels) else _rows(right)
    rows = _rows(found)
    spread = ((truth - truth.mean(axis=0)) ** 2).sum(axis=0)
    left = ((truth - rows) ** 2).sum(axis=0)
    return float((1 - left[spread > 0] / spread[spread > 0]).min())


def _rows(outputs: Outputs) -> np.ndarray:
    return np.concatenate([o[0].reshape(-1, o[0].shape[-1] if o[0].ndim > 1 else 1) for o in outputs]).astype("f8")


def pitch(found: Outputs, right: Outputs, _: Sequence[Any]) -> float:
    """Share of float's sure pitches (a salience over one half) that are found within 40 cents."""
    a, b = (np.concatenate([o[0].reshape(-1, o[0].shape[-1]) for o in side]) for side in (found, right))
    sure = b.max(axis=1) > 0.5
    return float((np.abs(a.argmax(axis=1) - b.argmax(axis=1))[sure] <= 2).mean()) if sure.any() else float("nan")


def texts(alphabet: Sequence[str]) -> Judge:
    """1 - character error rate of a CTC output whose class 0 is the blank, against labels."""

    def judge(found: Outputs, _: Outputs, labels: Sequence[Any]) -> float:
        wrong = sum(_edits(read(o[0][0], alphabet), label) for o, label in zip(found, labels, strict=True))
        return 1 - wrong / sum(len(label) for label in labels)

    return judge


def read(scores: np.ndarray, alphabet: Sequence[str]) -> str:
    """Greedy reading of a CTC output [T, C], without spaces, which these readers often leave out."""
    best = scores.argmax(axis=-1)
    kept = [int(c) for i, c in enumerate(best) if c and (i == 0 or c != best[i - 1])]
    return "".join(alphabet[c - 1] for c in kept if c - 1 < len(alphabet)).replace(" ", "")


def same_text(found: Outputs, right: Outputs, _: Sequence[Any]) -> float:
    """1 - character error rate to float's reading, of a CTC output with the blank 0."""
    pairs = [(_collapsed(a[0]), _collapsed(b[0])) for a, b in zip(found, right, strict=True)]
    return 1 - sum(_edits(a, b) for a, b in pairs) / max(sum(len(b) for _, b in pairs), 1)


def _collapsed(scores: np.ndarray) -> list[int]:
    best = scores.argmax(axis=-1).ravel().tolist()
    return [c for i, c in enumerate(best) if c and (i == 0 or c != best[i - 1])]


def _edits(a: Sequence[Any], b: Sequence[Any]) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (x != y))
    return row[-1]


def detections(boxes_of: Callable[[list[np.ndarray]], tuple[np.ndarray, np.ndarray]], least: float = 0.25) -> Judge:
    """F1 of boxes over a score, after suppression, against those of float: overlap over 0.5 and the same class.

    Args:
        boxes_of: outputs of one sample -> boxes [N, 4] (left, top, right, bottom) and scores [N, classes].
        least: the score from which on a box counts.
    """

    def judge(found: Outputs, right: Outputs, _: Sequence[Any]) -> float:
        matched = total = 0
        for a, b in zip(found, right, strict=True):
            ours, theirs = (_suppressed(*boxes_of(o), least) for o in (a, b))
            total += len(ours) + len(theirs)
            free = list(theirs)
            for kind, box in ours:
                fits = [k for k, (c, other) in enumerate(free) if c == kind and _overlap(box, other) > 0.5]
                if fits:
                    free.pop(fits[0])
                    matched += 2
        return matched / max(total, 1)

    return judge


def _suppressed(boxes: np.ndarray, scores: np.ndarray, least: float) -> list[tuple[int, np.ndarray]]:
    best, kind = scores.max(axis=1), scores.argmax(axis=1)
    kept: list[tuple[int, np.ndarray]] = []
    for index in np.argsort(-best):
        if best[index] < least:
            break
        if all(c != kind[index] or _overlap(boxes[index], box) < 0.45 for c, box in kept):
            kept.append((int(kind[index]), boxes[index]))
    return kept


def _overlap(a: np.ndarray, b: np.ndarray) -> float:
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    inner = float(np.prod(np.maximum(high - low, 0)))
    return inner / max(float(np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2])) - inner, 1e-9)
