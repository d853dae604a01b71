"""Outputs whose truth is known, for `judge_outputs.py`: how they are made, and what their users lose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

SAMPLES = 256
Loss = Callable[[np.ndarray, np.ndarray], float]


@dataclass(frozen=True)
class Output:
    """One output: how it is made, what the graph looks like before it, and what its user loses.

    Attributes:
        name: what it is.
        called: its name in the graph.
        made_by: the operator that makes it.
        make: values by the float model, [samples, ...].
        loss: of the values of the float model and of a candidate, what the task loses; 0.01 is a point.
        tamper: what goes wrong with such an output in particular, each under a name.
    """

    name: str
    called: str
    made_by: str
    make: Callable[[np.random.Generator], np.ndarray]
    loss: Loss
    tamper: Callable[[np.ndarray, np.random.Generator], list[tuple[str, np.ndarray]]] | None = None


def logits(classes: int, margin: float, rows: tuple[int, ...] = ()) -> Callable[[np.random.Generator], np.ndarray]:
    def make(rng: np.random.Generator) -> np.ndarray:
        shape = (SAMPLES, *rows)
        values = rng.normal(size=(*shape, classes))
        right = rng.integers(0, classes, shape)
        np.put_along_axis(values, right[..., None], margin + rng.normal(size=(*shape, 1)), -1)
        return values

    return make


def softmax(make: Callable[[np.random.Generator], np.ndarray]) -> Callable[[np.random.Generator], np.ndarray]:
    def made(rng: np.random.Generator) -> np.ndarray:
        e = np.exp(make(rng))
        return e / e.sum(-1, keepdims=True)

    return made


def flips_that_cost(expected: np.ndarray, actual: np.ndarray) -> float:
    """Expected loss of accuracy: classes drawn by the float model's own probabilities are the truth."""
    p = expected if (expected >= 0).all() else np.exp(expected - expected.max(-1, keepdims=True))
    p = p / p.sum(-1, keepdims=True)
    best, chosen = expected.argmax(-1)[..., None], actual.argmax(-1)[..., None]
    return float((np.take_along_axis(p, best, -1) - np.take_along_axis(p, chosen, -1)).mean())


def r2_of(columns: slice = slice(None)) -> Loss:
    """1 - R2 against the float values, of the worst column."""

    def loss(expected: np.ndarray, actual: np.ndarray) -> float:
        a, b = (v.reshape(-1, v.shape[-1])[:, columns] for v in (expected, actual))
        spread = a.var(0)
        live = spread > 1e-12 * max(float((a**2).mean()), 1e-30)
        return float((((a - b) ** 2).mean(0)[live] / spread[live]).max()) if live.any() else 0.0

    return loss


def columns(*scales: float) -> Callable[[np.random.Generator], np.ndarray]:
    """Targets of different units: [n, columns], each with a mean far from zero."""
    return lambda rng: rng.normal(5, 1, (SAMPLES, len(scales))) * np.asarray(scales)


def over(threshold: float) -> Loss:
    """1 - F1 of what exceeds a threshold."""

    def loss(expected: np.ndarray, actual: np.ndarray) -> float:
        a, b = expected > threshold, actual > threshold
        return 1 - 2 * float((a & b).sum()) / max(float(a.sum() + b.sum()), 1.0)

    return loss


def neighbours(expected: np.ndarray, actual: np.ndarray) -> float:
    """Retrieval: how often the nearest other row of the disturbed set is not among the true row's two nearest."""

    def order(v: np.ndarray) -> np.ndarray:
        v = v.reshape(len(v), -1)
        v = v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-12)
        near = v @ v.T
        np.fill_diagonal(near, -np.inf)
        return np.argsort(-near, 1)

    truth, found = order(expected)[:, :2], order(actual)[:, :1]
    return 1 - float((truth == found).any(1).mean())


def clustered(width: int, rows: tuple[int, ...] = ()) -> Callable[[np.random.Generator], np.ndarray]:
    """Vectors in pairs that belong together: [n, width] or [n, rows, width]."""

    def make(rng: np.random.Generator) -> np.ndarray:
        base = np.repeat(rng.normal(size=(SAMPLES // 2, *rows, width)), 2, 0)
        return base + 0.4 * rng.normal(size=base.shape)

    return make


def boxes(rng: np.random.Generator) -> np.ndarray:
    """[n, 20, 5]: corners in pixels of 640, and a score."""
    low = rng.uniform(0, 500, (SAMPLES, 20, 2))
    high = low + rng.uniform(20, 120, low.shape)
    score = rng.beta(0.4, 2, (SAMPLES, 20, 1))
    return np.concatenate([low, high, score], -1)


def box_loss(expected: np.ndarray, actual: np.ndarray) -> float:
    """Share of detections (score above 0.3) that go, come, or overlap by less than 0.75 with what they were."""
    low, high = np.maximum(expected[..., :2], actual[..., :2]), np.minimum(expected[..., 2:4], actual[..., 2:4])
    inner = np.clip(high - low, 0, None).prod(-1)
    area = [np.clip(v[..., 2:4] - v[..., :2], 0, None).prod(-1) for v in (expected, actual)]
    overlap = inner / np.maximum(area[0] + area[1] - inner, 1e-9)
    a, b = expected[..., 4] > 0.3, actual[..., 4] > 0.3
    right = a & b & (overlap > 0.75)
    return 1 - 2 * float(right.sum()) / max(float(a.sum() + b.sum()), 1.0)


def anchors(rng: np.random.Generator) -> np.ndarray:
    """As many detectors give it, [n, 6, 40]: middle, width and height in pixels, and two scores, by columns."""
    v = boxes(rng).repeat(2, 1)
    low, high, score = v[..., :2], v[..., 2:4], v[..., 4:]
    other = rng.beta(0.4, 2, score.shape)
    return np.concatenate([(low + high) / 2, high - low, score, other], -1).swapaxes(1, 2)


def anchor_loss(expected: np.ndarray, actual: np.ndarray) -> float:
    corners = []
    for columns_first in (expected, actual):
        v = columns_first.swapaxes(1, 2)
        middle, half = v[..., :2], v[..., 2:4] / 2
        corners.append(np.concatenate([middle - half, middle + half, v[..., 4:5]], -1))
    return box_loss(corners[0], corners[1])


def peaks(rng: np.random.Generator) -> np.ndarray:
    """Heat maps of key points: [n, 4, 16, 16]."""
    y, x = np.mgrid[0:16, 0:16]
    at = rng.uniform(2, 14, (SAMPLES, 4, 2, 1, 1))
    return np.exp(-((y - at[:, :, 0]) ** 2 + (x - at[:, :, 1]) ** 2) / 6) + 0.02 * rng.normal(size=(SAMPLES, 4, 16, 16))


def peak_loss(expected: np.ndarray, actual: np.ndarray) -> float:
    """Share of peaks that move by more than one pixel."""
    a, b = (
        np.stack(np.unravel_index(v.reshape(*v.shape[:2], -1).argmax(-1), (16, 16)), -1) for v in (expected, actual)
    )
    return float((np.abs(a - b).max(-1) > 1).mean())


def ranks(expected: np.ndarray, actual: np.ndarray) -> float:
    """Share of pairs of samples whose order changes, of those that are a tenth of the spread apart; a tie is half."""
    a, b = expected.ravel(), actual.ravel()
    apart = np.abs(a[:, None] - a[None]) > 0.1 * a.std()
    return float(np.abs(np.sign(a[:, None] - a[None]) - np.sign(b[:, None] - b[None]))[apart].mean() / 2)


OUTPUTS = (
    Output("ten classes, sure", "logits", "Gemm", logits(10, 8), flips_that_cost),
    Output("ten classes, unsure", "logits", "Gemm", logits(10, 3), flips_that_cost),
    Output("1,000 classes", "logits", "Gemm", logits(1000, 9), flips_that_cost),
    Output("probabilities of five classes", "probabilities", "Softmax", softmax(logits(5, 5)), flips_that_cost),
    Output("two classes", "label_probability", "Softmax", softmax(logits(2, 3)), flips_that_cost),
    Output("a class for each token", "logits", "Gemm", logits(12, 7, (16,)), flips_that_cost),
    Output("a class for each pixel", "class_scores", "Softmax", softmax(logits(4, 5, (8, 8))), flips_that_cost),
    Output("one target", "y", "Gemm", columns(1), r2_of()),
    Output("four targets of different units", "y", "Gemm", columns(1, 1e-3, 1e3, 30), r2_of()),
    Output("forty targets", "y", "Gemm", columns(*np.geomspace(1e-2, 1e2, 40)), r2_of()),
    Output("a rate beside an amount", "y", "Identity", columns(1e6, 0.05), r2_of()),
    Output("landmarks and a score", "y", "Identity", lambda rng: np.concatenate(
        [rng.uniform(0, 200, (SAMPLES, 10)), rng.beta(0.5, 0.5, (SAMPLES, 1))], 1), r2_of()),
    Output("boxes and scores in one", "detections", "Concat", boxes, box_loss),
    Output("middles, sizes and scores by columns", "output0", "Concat", anchors, anchor_loss),
    Output("scores of many labels", "scores", "Sigmoid",
           lambda rng: 1 / (1 + np.exp(-rng.normal(-2, 3, (SAMPLES, 20)))),
           over(0.5)),
    Output("a mask", "mask", "Sigmoid",
           lambda rng: 1 / (1 + np.exp(-rng.normal(-1, 4, (SAMPLES, 1, 16, 16)))), over(0.5)),
    Output("gains of frequencies, frame by frame", "gains", "Sigmoid",
           lambda rng: 1 / (1 + np.exp(-rng.normal(0, 3, (SAMPLES, 20, 33)))), over(0.5)),
    Output("key points", "heatmaps", "Conv", peaks, peak_loss),
    Output("sentence vectors", "sentence_embedding", "ReduceMean", clustered(64), neighbours),
    Output("normalised vectors", "embedding", "LpNormalization", lambda rng: (
        lambda v: v / np.linalg.norm(v, axis=1, keepdims=True))(clustered(128)(rng)), neighbours),
    Output("last hidden states", "last_hidden_state", "LayerNormalization", clustered(32, (8,)), neighbours),
    Output("an anomaly score", "y", "Identity", lambda rng: 100 + rng.gamma(2, 0.5, (SAMPLES, 1)), ranks),
    Output("a forecast of 24 hours", "forecast", "Gemm", lambda rng: np.cumsum(rng.normal(size=(SAMPLES, 24)), 1) + 50,
           r2_of()),
    Output("sound in, sound out", "waveform", "Tanh", lambda rng: np.sin(
        np.cumsum(rng.uniform(0.02, 0.5, (SAMPLES, 1, 256)), 2)) * rng.uniform(0.1, 1, (SAMPLES, 1, 1)),
        lambda a, b: float(((a - b) ** 2).mean() / a.var())),
)  # fmt: skip
