"""Twenty-six outputs for `judge_outputs.py --only heldout`, written before the rule and looked at once it was done."""

from __future__ import annotations

import numpy as np
from judged_outputs import SAMPLES, Loss, Output, clustered, flips_that_cost, logits, neighbours, over, r2_of, ranks
from judged_outputs_fresh import Made, events, fading, faults, relative, turned, units


def off_by(share: float) -> Loss:
    """Share of amounts that are off by more than that of themselves."""

    def loss(expected: np.ndarray, actual: np.ndarray) -> float:
        return float((np.abs(actual - expected) > share * np.abs(expected)).mean())

    return loss


def log_r2(expected: np.ndarray, actual: np.ndarray) -> float:
    """1 - R2 of the logarithms, of the worst column."""
    floor = 1e-6 * np.abs(expected).max(0)
    return r2_of()(*(np.log(np.maximum(v, floor)) for v in (expected, actual)))


def lognormal(count: int, spread: float, scale: float = 1.0) -> Made:
    return lambda rng: scale * np.exp(spread * rng.normal(size=(SAMPLES, count)))


def pareto(count: int, shape: float) -> Made:
    return lambda rng: 1 + rng.pareto(shape, (SAMPLES, count))


def counts(rng: np.random.Generator) -> np.ndarray:
    """[n, 1]: expected counts, most of them small, some in the hundreds."""
    return rng.gamma(0.6, 20, (SAMPLES, 1)) + 0.5


def gauge(rng: np.random.Generator) -> np.ndarray:
    """[n, 3]: a temperature in kelvin, a pressure in pascal and a fraction."""
    kelvin, pascal = rng.normal(290, 8, (SAMPLES, 1)), rng.normal(101_300, 900, (SAMPLES, 1))
    return np.concatenate([kelvin, pascal, rng.beta(2, 5, (SAMPLES, 1))], 1)


def same_top(many: int) -> Loss:
    """Share of the highest `many` samples that are no longer among them."""

    def loss(expected: np.ndarray, actual: np.ndarray) -> float:
        a, b = (set(np.argsort(-v.ravel(), kind="stable")[:many]) for v in (expected, actual))
        return 1 - len(a & b) / many

    return loss


def auc_loss(expected: np.ndarray, actual: np.ndarray) -> float:
    """Area under the curve that is lost where the highest tenth are the positive ones."""
    positive = expected.ravel() >= np.quantile(expected, 0.9)
    high, low = actual.ravel()[positive], actual.ravel()[~positive]
    return 1 - float(((high[:, None] > low) + 0.5 * (high[:, None] == low)).mean())


def angles(rng: np.random.Generator) -> np.ndarray:
    turn = rng.uniform(-np.pi, np.pi, (SAMPLES, 1))
    return np.concatenate([np.sin(turn), np.cos(turn)], 1)


def depth(rng: np.random.Generator) -> np.ndarray:
    """[n, 1, 16, 16]: metres, near things before far ones."""
    far = np.exp(rng.uniform(0, 4, (SAMPLES // 2, 1, 4, 4))).repeat(4, 2).repeat(4, 3)
    return far * (1 + 0.05 * rng.normal(size=far.shape))


def spectrum(rng: np.random.Generator) -> np.ndarray:
    """[n, 20, 32]: power by frequency, over five decades."""
    level = np.linspace(0, -11, 20)[:, None]
    return np.exp(level + rng.normal(size=(SAMPLES // 2, 20, 32)))


def segments(classes: int) -> Made:
    """[n, classes, 12, 12] logits with the classes in axis 1."""
    return lambda rng: np.moveaxis(logits(classes, 6, (12, 12))(rng)[:64], -1, 1)


def by_pixel(expected: np.ndarray, actual: np.ndarray) -> float:
    return float((expected.argmax(1) != actual.argmax(1)).mean())


def unit(make: Made) -> Made:
    def made(rng: np.random.Generator) -> np.ndarray:
        values = make(rng)
        return values / np.linalg.norm(values, axis=-1, keepdims=True)

    return made


HELDOUT = (
    Output("a price, in proportion", "price", "Identity", lognormal(1, 1.4, 300), relative, faults),
    Output("a price, within a tenth", "price", "Gemm", lognormal(1, 0.9, 50), off_by(0.3), faults),
    Output("four amounts, in logarithms", "y", "Identity", lognormal(4, 1.6), log_r2, faults),
    Output("sixteen amounts, in proportion", "y", "MatMul, Relu", lognormal(16, 1.2), relative, faults),
    Output("Pareto, one", "y", "Identity", pareto(1, 1.1), relative, faults),
    Output("Pareto, three", "y", "Identity", pareto(3, 1.5), relative, faults),
    Output("expected counts", "y", "Identity", counts, relative, faults),
    Output("an amount without tails", "y", "Identity", lognormal(1, 0.2, 9), r2_of(), faults),
    Output("temperature, pressure, fraction", "y", "Identity", gauge, r2_of(), faults),
    Output("an anomaly score, the highest", "y", "Identity", lambda rng: rng.gamma(2, 1, (SAMPLES, 1)), auc_loss,
           faults),
    Output("a ranking of items", "y", "Gemm", lambda rng: rng.normal(size=(SAMPLES, 1)), ranks, faults),
    Output("a ranking of probabilities", "y", "Sigmoid",
           lambda rng: 1 / (1 + np.exp(6 - 2 * rng.normal(size=(SAMPLES, 1)))), ranks, faults),
    Output("the best fifty", "y", "Identity", lambda rng: rng.standard_t(3, (SAMPLES, 1)), same_top(50), faults),
    Output("sine and cosine", "y", "Tanh", angles, turned, faults),
    Output("depth in metres", "y", "Conv", depth, off_by(0.5), faults),
    Output("power by frequency", "y", "Identity", spectrum, off_by(0.9), faults),
    Output("alarms over 0.6", "y", "Sigmoid", events(25, 0.02, 0.75, 0.08), over(0.6), fading),
    Output("alarms over 0.4", "y", "Sigmoid", events(40, 0.05, 0.7, 0.15), over(0.4), fading),
    Output("rare alarms over 0.85", "y", "Sigmoid", events(12, 0.006, 0.92, 0.03), over(0.85), fading),
    Output("one clear event in a hundred", "y", "Sigmoid", events(8, 0.01, 0.97, 0.01), over(0.5), fading),
    Output("segments", "y", "Conv", segments(5), by_pixel, faults),
    Output("fifty classes, sure", "y", "Softmax", lambda rng: (
        lambda e: e / e.sum(-1, keepdims=True))(np.exp(logits(50, 12)(rng))), flips_that_cost, faults),
    Output("three logits", "y", "Gemm", logits(3, 6), flips_that_cost, faults),
    Output("voices, 192", "y", "LpNormalization", unit(clustered(192)), neighbours, faults),
    Output("a word's vector", "y", "ReduceMean", clustered(48), neighbours, faults),
    Output("twenty targets, four decades", "y", "Gemm", units(20, 4), r2_of(), faults),
)  # fmt: skip
