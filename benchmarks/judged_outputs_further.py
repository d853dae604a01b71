"""More outputs for `judge_outputs.py`: what a mean over all values hides (rare classes, small objects, counts, bands of
quantiles, boxes that are small beside the picture)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from judged_outputs import SAMPLES, Output, neighbours, over, ranks, softmax


def macro_f1(expected: np.ndarray, actual: np.ndarray) -> float:
    """1 - the mean F1 of the classes, against the float model's, of classes that it gives 20 times."""
    a, b = expected.argmax(-1).ravel(), actual.argmax(-1).ravel()
    common = [c for c in range(expected.shape[-1]) if (a == c).sum() >= 20]
    return 1 - float(np.mean([2 * ((a == c) & (b == c)).sum() / ((a == c).sum() + (b == c).sum()) for c in common]))


def tagged(share: float, rows: tuple[int, ...], classes: int) -> Callable[[np.random.Generator], np.ndarray]:
    """Logits of classes of which the first is nearly everywhere: the others have `share` of the places."""

    def make(rng: np.random.Generator) -> np.ndarray:
        shape = (SAMPLES, *rows)
        values = rng.normal(size=(*shape, classes))
        right = np.where(rng.random(shape) < share, rng.integers(1, classes, shape), 0)
        np.put_along_axis(values, right[..., None], 7 + rng.normal(size=(*shape, 1)), -1)
        return values

    return make


def rare_shrinks(right: np.ndarray, _rng: np.random.Generator) -> list[tuple[str, np.ndarray]]:
    """The last class's logit or probability comes out lower."""
    found = []
    for by in (0.1, 0.5, 1.0):
        wrong = right.copy()
        wrong[..., -1] -= by * (np.quantile(right[..., -1], 0.999) - np.median(right[..., -1]))
        found.append((f"the last class lower by {by:g} of its range", wrong))
    return found


def perplexity_loss(expected: np.ndarray, actual: np.ndarray) -> float:
    """By how much the perplexity grows where the float model's own probabilities are the truth."""
    a, b = (v - np.log(np.exp(v - v.max(-1, keepdims=True)).sum(-1, keepdims=True)) for v in (expected, actual))
    a, b = a - expected.max(-1, keepdims=True), b - actual.max(-1, keepdims=True)
    return float(np.exp((np.exp(a) * (a - b)).sum(-1).mean()) - 1)


def peaked(tokens: int, rows: int) -> Callable[[np.random.Generator], np.ndarray]:
    """Logits as a language model gives them: some tokens likely, a long tail."""
    return lambda rng: 2.2 * rng.gumbel(size=(SAMPLES, rows, tokens)) + rng.normal(0, 1.5, tokens)


def log_softmax(make: Callable[[np.random.Generator], np.ndarray]) -> Callable[[np.random.Generator], np.ndarray]:
    return lambda rng: np.log(softmax(make)(rng))


def rare_labels(rng: np.random.Generator) -> np.ndarray:
    """Probabilities of 20 labels, two of which hold for one sample in ten, the others for nearly one in two."""
    shift = np.full(20, -0.5)
    shift[-2:] = -6
    spread = np.full(20, 3.0)
    spread[-2:] = 4.7
    return 1 / (1 + np.exp(-(shift + spread * rng.normal(size=(SAMPLES, 20)))))


def macro_labels(expected: np.ndarray, actual: np.ndarray) -> float:
    a, b = expected > 0.5, actual > 0.5
    return 1 - float(np.mean(2 * (a & b).sum(0) / np.maximum(a.sum(0) + b.sum(0), 1)))


def discs(rng: np.random.Generator) -> np.ndarray:
    """Masks [n, 1, 32, 32] of one object each: three in four are large, one in four has a dozen pixels."""
    y, x = np.mgrid[0:32, 0:32]
    at = rng.uniform(10, 22, (SAMPLES, 2, 1, 1))
    size = np.where(np.arange(SAMPLES) % 4 == 0, 2.2, 9.0)[:, None, None]
    inside = size - np.hypot(y - at[:, 0], x - at[:, 1])
    return (1 / (1 + np.exp(-6 * inside + 0.2 * rng.normal(size=inside.shape))))[:, None]


def object_loss(expected: np.ndarray, actual: np.ndarray) -> float:
    """1 - the mean over pictures of the intersection over union."""
    a, b = (v.reshape(len(v), -1) > 0.5 for v in (expected, actual))
    return 1 - float(np.mean((a & b).sum(1) / np.maximum((a | b).sum(1), 1)))


def small_fade(right: np.ndarray, _rng: np.random.Generator) -> list[tuple[str, np.ndarray]]:
    """What is small comes out weaker, as blurred features make it."""
    weak = right.reshape(len(right), -1).mean(1) < 0.1
    return [
        (f"small objects by {by:g}", np.where(weak[:, None, None, None], right * by, right)) for by in (0.9, 0.55, 0.4)
    ]


def density(rng: np.random.Generator) -> np.ndarray:
    """Density maps [n, 1, 24, 24], whose sum is a number of people."""
    y, x = np.mgrid[0:24, 0:24]
    total = np.zeros((SAMPLES, 24, 24))
    for k in range(SAMPLES):
        for cy, cx in rng.uniform(0, 24, (int(rng.integers(1, 30)), 2)):
            total[k] += np.exp(-((y - cy) ** 2 + (x - cx) ** 2) / 2) / 6.28
    return total[:, None]


def count_loss(expected: np.ndarray, actual: np.ndarray) -> float:
    a, b = expected.sum((1, 2, 3)), actual.sum((1, 2, 3))
    return float(np.abs(a - b).mean() / a.mean())


def shifted(right: np.ndarray, _rng: np.random.Generator) -> list[tuple[str, np.ndarray]]:
    """A bias, as rounding weights makes it: the same for all values of a column."""
    spread = right.std()
    return [(f"{db} dB of a shift", right + spread * 10 ** (-db / 20)) for db in (20, 26, 30, 36, 45)]


def quantiles(rng: np.random.Generator) -> np.ndarray:
    """[n, 12, 9]: nine quantiles of twelve hours, of series whose levels differ much more than a band is wide."""
    level = 1000 + 300 * rng.normal(size=(SAMPLES, 1, 1))
    path = level + 30 * np.cumsum(rng.normal(size=(SAMPLES, 12, 1)), 1)
    width = 20 * np.exp(0.3 * rng.normal(size=(SAMPLES, 1, 1))) * np.sqrt(np.arange(1, 13))[None, :, None]
    return path + width * np.array([-1.28, -0.84, -0.52, -0.25, 0, 0.25, 0.52, 0.84, 1.28])


def coverage_loss(expected: np.ndarray, actual: np.ndarray) -> float:
    """How far the width of the band from the first to the last quantile is off, and whether quantiles cross."""
    a, b = expected[..., -1] - expected[..., 0], actual[..., -1] - actual[..., 0]
    return float(((a - b) ** 2).mean() / (a**2).mean()) + float((np.diff(actual, axis=-1) < 0).mean())


def angles(rng: np.random.Generator) -> np.ndarray:
    """[n, 3]: yaw, pitch and roll in degrees."""
    return rng.normal(0, [35, 15, 5], (SAMPLES, 3))


def angle_loss(expected: np.ndarray, actual: np.ndarray) -> float:
    """Mean error against the mean size of each angle, squared: 1 - R2 of the worst."""
    return float((((expected - actual) ** 2).mean(0) / expected.var(0)).max())


def small_boxes(rng: np.random.Generator) -> np.ndarray:
    """[n, 10, 4] of corners in pixels of 640, without scores: most of 12 to 40 pixels, all over the picture."""
    low = rng.uniform(0, 600, (SAMPLES, 10, 2))
    return np.concatenate([low, low + rng.uniform(12, 40, low.shape)], -1)


def overlap_loss(expected: np.ndarray, actual: np.ndarray) -> float:
    """Share of boxes that overlap by less than 0.75 with where they were."""
    low, high = np.maximum(expected[..., :2], actual[..., :2]), np.minimum(expected[..., 2:], actual[..., 2:])
    inner = np.clip(high - low, 0, None).prod(-1)
    area = [np.clip(v[..., 2:] - v[..., :2], 0, None).prod(-1) for v in (expected, actual)]
    return 1 - float((inner >= 0.75 * np.maximum(area[0] + area[1] - inner, 1e-9)).mean())


def near_constant(rng: np.random.Generator) -> np.ndarray:
    """[n, 6]: columns with a mean far from zero, of which one hardly varies and still is what is asked for."""
    return rng.normal(100, [5, 5, 5, 5, 5, 0.05], (SAMPLES, 6))


def worst_r2(expected: np.ndarray, actual: np.ndarray) -> float:
    return float((((expected - actual) ** 2).mean(0) / expected.var(0)).max())


def fraud(rng: np.random.Generator) -> np.ndarray:
    """[n, 1]: a probability that is near zero for nearly all; the order of the highest is what is used."""
    return 1 / (1 + np.exp(-rng.normal(-6, 1.5, (SAMPLES, 1))))


def relevance(rng: np.random.Generator) -> np.ndarray:
    """[n, 1]: scores of a reranker."""
    return rng.normal(-2, 4, (SAMPLES, 1))


def spikes(rng: np.random.Generator) -> np.ndarray:
    """[n, 50, 1]: beats or key words, at one step in fifty."""
    values = np.clip(rng.normal(0.02, 0.01, (SAMPLES, 50, 1)), 0, 1)
    at = rng.integers(0, 50, SAMPLES)
    values[np.arange(SAMPLES), at, 0] = rng.beta(8, 2, SAMPLES)
    return values


def unsure_voice(rng: np.random.Generator) -> np.ndarray:
    """[n, 1]: whether a frame is speech; sure in three of four."""
    return 1 / (1 + np.exp(-np.where(np.arange(SAMPLES) % 4 > 0, rng.choice([-5, 5], SAMPLES), 0)[:, None]
                           - rng.normal(0, 1, (SAMPLES, 1))))  # fmt: skip


def flips_near_half(expected: np.ndarray, actual: np.ndarray) -> float:
    """Expected loss of accuracy: the float model's own probabilities are the truth."""
    return float((np.abs(2 * expected - 1) * ((expected > 0.5) != (actual > 0.5))).mean())


def features(rng: np.random.Generator) -> np.ndarray:
    """[n, 128] behind a Relu: each in use for a third of the samples."""
    base = np.repeat(rng.normal(-0.4, 1, (SAMPLES // 2, 128)), 2, 0)
    return np.maximum(base + 0.3 * rng.normal(size=base.shape), 0)


def sharp(rng: np.random.Generator) -> np.ndarray:
    """[n, 3, 16, 16]: pictures between 0 and 1."""
    small = rng.random((SAMPLES, 3, 4, 4))
    return np.clip(small.repeat(4, 2).repeat(4, 3) + 0.05 * rng.normal(size=(SAMPLES, 3, 16, 16)), 0, 1)


def psnr_loss(expected: np.ndarray, actual: np.ndarray) -> float:
    """0.02 where the picture is 35 dB (of its range of 1) from float's: below that people see it."""
    return 0.02 * float(10 ** (3.5) * ((expected - actual) ** 2).mean())


def depth(rng: np.random.Generator) -> np.ndarray:
    """[n, 1, 16, 16]: distances from 1 to 80 metres."""
    y = np.linspace(0, 1, 16)[None, :, None]
    return (2 + 60 * rng.random((SAMPLES, 1, 1)) * y**2 + 6 * rng.random((SAMPLES, 16, 16)))[:, None]


def depth_loss(expected: np.ndarray, actual: np.ndarray) -> float:
    """Share of pixels that are off by a quarter or more ("delta < 1.25")."""
    ratio = np.maximum(expected, 1e-3) / np.maximum(actual, 1e-3)
    return float((np.maximum(ratio, 1 / ratio) > 1.25).mean())


FURTHER = (
    Output("a rare tag among tokens", "logits", "Gemm", tagged(0.03, (24,), 5), macro_f1, rare_shrinks),
    Output("a rare class of pixels", "class_scores", "Softmax", softmax(tagged(0.02, (8, 8), 3)), macro_f1,
           rare_shrinks),
    Output("a rare class of samples", "logits", "Gemm", tagged(0.25, (), 3), macro_f1, rare_shrinks),
    Output("tokens of a language model", "logits", "Gemm", peaked(300, 8), perplexity_loss),
    Output("log-probabilities of tokens", "log_probs", "LogSoftmax", log_softmax(peaked(300, 8)), perplexity_loss),
    Output("labels, two of them rare", "scores", "Sigmoid", rare_labels, macro_labels, rare_shrinks),
    Output("masks of large and small objects", "mask", "Sigmoid", discs, object_loss, small_fade),
    Output("a density map that is summed", "density", "Conv", density, count_loss, shifted),
    Output("quantiles of series of many levels", "quantiles", "Identity", quantiles, coverage_loss),
    Output("angles", "angles", "Gemm", angles, angle_loss),
    Output("small boxes in a large picture", "boxes", "Identity", small_boxes, overlap_loss),
    Output("a column that hardly varies", "y", "Gemm", near_constant, worst_r2),
    Output("a probability of rare fraud", "y", "Sigmoid", fraud, ranks),
    Output("scores of a reranker", "y", "Gemm", relevance, ranks, shifted),
    Output("beats, one step in fifty", "activations", "Sigmoid", spikes, over(0.5)),
    Output("speech or not, unsure frames", "speech", "Sigmoid", unsure_voice, flips_near_half),
    Output("features behind a Relu", "y", "MatMul, Relu", features, neighbours),
    Output("a picture", "y", "Conv", sharp, psnr_loss),
    Output("distances", "depth", "Conv", depth, depth_loss),
)  # fmt: skip
