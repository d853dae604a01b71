"""Sixty more outputs for `judge_outputs.py --only fresh`, written after the rule that judges them, to break it.

Columns of different units (2 to 1,000), heavy tails, targets behind a Sigmoid or a mean, directions, quaternions,
vectors, logits, hashes, heat maps, rare scores; besides noise they are clipped, shrunk, shifted and mixed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from judged_outputs import (
    SAMPLES,
    Loss,
    Output,
    clustered,
    flips_that_cost,
    logits,
    neighbours,
    over,
    peak_loss,
    peaks,
    r2_of,
    softmax,
)

Made = Callable[[np.random.Generator], np.ndarray]
Tampered = list[tuple[str, np.ndarray]]


def faults(right: np.ndarray, rng: np.random.Generator) -> Tampered:
    """What quantizing does besides noise: saturation, a gain, a shift, columns that leak, errors in proportion."""
    found: Tampered = []
    flat = right.reshape(-1, right.shape[-1])
    for share in (0.99, 0.95, 0.9):
        low, high = np.quantile(right, (1 - share, share))
        found.append((f"clipped to {share:g} of all values", np.clip(right, low, high)))
        lows, highs = np.quantile(flat, (1 - share, share), axis=0)
        found.append((f"each column clipped to {share:g}", np.clip(right, lows, highs)))
    mean, spread = flat.mean(0), flat.std(0)
    for gain in (0.995, 0.97, 0.9):
        found.append((f"gain of {gain:g}", mean + gain * (right - mean)))
        found.append((f"scaled by {gain:g}", gain * right))
    for db in (20, 30, 40):
        size = 10 ** (-db / 20)
        found.append((f"{db} dB of a shift of each column", right + size * spread))
        found.append((f"{db} dB in proportion", right * (1 + size * rng.normal(size=right.shape))))
        found.append((f"{db} dB of the next column", right + size * np.roll(right - mean, 1, -1)))
        shared = rng.normal(size=(*right.shape[:-1], 1))
        found.append((f"{db} dB shared by all columns", right + size * spread * shared))
    return found


def units(count: int, decades: float, heavy: float = 0.0) -> Made:
    """[n, count] targets of other units; `heavy` is the spread of their logarithm."""

    def make(rng: np.random.Generator) -> np.ndarray:
        values = rng.normal(size=(SAMPLES, count))
        values = np.exp(heavy * values) if heavy else values + rng.normal(size=count)
        return values * 10 ** rng.permutation(np.linspace(-decades / 2, decades / 2, count))

    return make


def squashed(count: int, width: float) -> Made:
    """[n, count] targets behind a Sigmoid: shares that vary about a level of their own, some of them little."""

    def make(rng: np.random.Generator) -> np.ndarray:
        level, spread = rng.normal(0, 1, count), width * 10 ** rng.uniform(-1, 0, count)
        return 1 / (1 + np.exp(-(level + spread * rng.normal(size=(SAMPLES, count)))))

    return make


def low_rank(count: int, causes: int) -> Made:
    def make(rng: np.random.Generator) -> np.ndarray:
        return rng.normal(size=(SAMPLES, causes)) @ rng.normal(size=(causes, count))

    return make


def on_sphere(width: int, tight: float = 0.0) -> Made:
    """[n, width] of length 1, as directions and quaternions are; `tight` around one of them."""

    def make(rng: np.random.Generator) -> np.ndarray:
        values = rng.normal(size=(SAMPLES, width)) + tight * np.eye(width)[0]
        return values / np.linalg.norm(values, axis=1, keepdims=True)

    return make


def turned(expected: np.ndarray, actual: np.ndarray) -> float:
    """0.02 where the mean angle to what it was is 8 degrees."""
    a, b = (v / np.maximum(np.linalg.norm(v, axis=-1, keepdims=True), 1e-12) for v in (expected, actual))
    return 0.02 * float(np.degrees(np.arccos(np.clip((a * b).sum(-1), -1, 1))).mean()) / 8


def nearest_of(many: int) -> Loss:
    """How often the nearest other row is none of the `many` nearest that it had."""

    def order(v: np.ndarray) -> np.ndarray:
        v = v.reshape(len(v), -1)
        v = v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-12)
        near = v @ v.T
        np.fill_diagonal(near, -np.inf)
        return np.argsort(-near, 1)

    def loss(expected: np.ndarray, actual: np.ndarray) -> float:
        return 1 - float((order(expected)[:, :many] == order(actual)[:, :1]).any(1).mean())

    return loss


def signs(expected: np.ndarray, actual: np.ndarray) -> float:
    """Signs that differ, against a tenth of what two samples of a pair differ by."""
    flips = ((expected > 0) != (actual > 0)).mean()
    return float(0.1 * flips / max(((expected[::2] > 0) != (expected[1::2] > 0)).mean(), 1e-9))


def events(columns: int, share: float, height: float, spread: float) -> Made:
    def make(rng: np.random.Generator) -> np.ndarray:
        values = rng.beta(1, 20, (SAMPLES, columns))
        at = rng.random(values.shape) < share
        return np.where(at, np.clip(rng.normal(height, spread, values.shape), 0, 1), values)

    return make


def fading(right: np.ndarray, rng: np.random.Generator) -> Tampered:
    high = right > 0.5
    return faults(right, rng) + [
        (f"high scores by {by:g}", np.where(high, right * by, right)) for by in (0.98, 0.9, 0.6)
    ]


def imbalanced(classes: int, share: float) -> Made:
    """[n, classes] logits: all but a few samples are of the first class, surely."""

    def make(rng: np.random.Generator) -> np.ndarray:
        values = rng.normal(size=(SAMPLES, classes))
        right = np.where(rng.random(SAMPLES) < share, rng.integers(1, classes, SAMPLES), 0)
        values[np.arange(SAMPLES), right] += 8
        return values

    return make


def smooth_maps(channels: int, size: int, decades: float) -> Made:
    def make(rng: np.random.Generator) -> np.ndarray:
        coarse = rng.normal(size=(SAMPLES // 2, channels, size // 4, size // 4)).repeat(4, 2).repeat(4, 3)
        return coarse * np.logspace(0, decades, channels)[:, None, None]

    return make


def by_channel(expected: np.ndarray, actual: np.ndarray) -> float:
    return r2_of()(*(np.moveaxis(v, 1, -1) for v in (expected, actual)))


def any_channel_and_row(expected: np.ndarray, actual: np.ndarray) -> float:
    """1 - R2 of the worst channel and row of the map: what is used is one line of it."""
    a, b = (np.moveaxis(v, (1, 2), (-2, -1)).reshape(-1, v.shape[1] * v.shape[2]) for v in (expected, actual))
    return r2_of()(a, b)


def bands(rng: np.random.Generator) -> np.ndarray:
    """[n, 2]: a low and a high limit, far from zero and near each other."""
    level = rng.normal(300, 60, (SAMPLES, 1))
    half = np.exp(rng.normal(1.5, 0.5, (SAMPLES, 1)))
    return np.concatenate([level - half, level + half], 1)


def width_loss(expected: np.ndarray, actual: np.ndarray) -> float:
    a, b = np.diff(expected, axis=1), np.diff(actual, axis=1)
    return float(((a - b) ** 2).mean() / (a**2).mean())


def relative(expected: np.ndarray, actual: np.ndarray) -> float:
    """Share of amounts that are off by more than a half."""
    return float((np.abs(actual - expected) > 0.5 * np.abs(expected)).mean())


def _columns() -> list[Output]:
    found = []
    for count, decades, made in (
        (2, 1, "Gemm"), (2, 6, "Identity"), (3, 0, "Tanh"), (4, 2, "Concat"), (5, 0.5, "Identity"),
        (7, 3, "MatMul, Relu"),
        (12, 1.5, "Gemm"), (16, 1.2, "Identity"), (31, 2, "Gemm"), (33, 0, "MatMul, Relu"), (50, 4, "Gemm"),
        (100, 1.1, "Identity"), (250, 2, "MatMul, Tanh"), (500, 0.8, "Gemm"), (1000, 3, "MatMul, Relu"),
        (1000, 0, "Gemm"),
    ):  # fmt: skip
        found.append(
            Output(f"{count} units over {decades:g} decades", "out", made, units(count, decades), r2_of(), faults)
        )
    for count, heavy in ((1, 0.8), (2, 1.0), (6, 1.2), (40, 1.0)):
        made = units(count, 2, heavy)
        found.append(Output(f"{count} amounts with heavy tails", "amount", "Identity", made, r2_of(), faults))
    found.append(
        Output("one amount of heavy tails, in proportion", "y", "Identity", units(1, 0, 1.0), relative, faults)
    )
    for count, width, made in ((1, 0.5, "Sigmoid"), (3, 1.0, "Sigmoid"), (20, 1.0, "Sigmoid"), (120, 0.6, "Sigmoid")):
        found.append(Output(f"{count} shares behind a Sigmoid", "y", made, squashed(count, width), r2_of(), faults))
    found.append(Output("8 targets behind a mean", "y", "ReduceMean", units(8, 0.3), r2_of(), faults))
    found.append(Output("24 targets behind a mean", "y", "ReduceMean", units(24, 0.5), r2_of(), faults))
    found.append(Output("3 targets behind a normalization", "y", "LayerNormalization", units(3, 0), r2_of(), faults))
    found.append(Output("200 targets of 5 causes", "y", "Identity", low_rank(200, 5), r2_of(), faults))
    found.append(Output("a band from low to high", "y", "Gemm", bands, width_loss, faults))
    return found


def _vectors() -> list[Output]:
    return [
        Output("directions in space", "y", "LpNormalization", on_sphere(3), turned, faults),
        Output("directions in the plane", "y", "Identity", on_sphere(2), turned, faults),
        Output("quaternions near rest", "y", "Identity", on_sphere(4, 3.0), turned, faults),
        Output("faces, 128", "y", "LpNormalization", lambda rng: (
            lambda v: v / np.linalg.norm(v, axis=1, keepdims=True))(clustered(128)(rng)), neighbours, faults),
        Output("sentences, 384", "embedding", "ReduceMean", clustered(384), nearest_of(3), faults),
        Output("sentences of few dims", "y", "ReduceMean", clustered(12), neighbours, faults),
        Output("a pooled layer, 768", "y", "MatMul, Tanh", lambda rng: np.tanh(clustered(768)(rng)),
               nearest_of(3), faults),
        Output("tokens, 24 dims", "y", "LayerNormalization", clustered(24, (5,)), neighbours, faults),
        Output("hashes of 32 bits", "code", "MatMul, Tanh", lambda rng: np.tanh(4 * clustered(32)(rng)), signs, faults),
        Output("hashes of 512 bits", "code", "Tanh", lambda rng: np.tanh(2 * clustered(512)(rng)), signs, faults),
    ]  # fmt: skip


def _classes() -> list[Output]:
    return [
        Output("two logits, unsure", "y", "Gemm", logits(2, 1), flips_that_cost, faults),
        Output("seven logits", "y", "Gemm", logits(7, 5), flips_that_cost, faults),
        Output("300 logits", "y", "Gemm", logits(300, 7), flips_that_cost, faults),
        Output("2,000 logits of tokens", "y", "Gemm", logits(2000, 9, (4,)), flips_that_cost, faults),
        Output("an odd sample in thirty", "y", "Gemm", imbalanced(4, 0.03), flips_that_cost, faults),
        Output("probabilities of 30", "y", "Softmax", softmax(logits(30, 4)), flips_that_cost, faults),
        Output("probabilities, rare classes", "y", "Softmax", softmax(imbalanced(6, 0.1)), flips_that_cost, faults),
        Output("a class for each of 64 places", "y", "Softmax", softmax(logits(3, 4, (8, 8))), flips_that_cost, faults),
    ]  # fmt: skip


def _scores() -> list[Output]:
    return [
        Output("a handful of alarms over 0.5", "y", "Sigmoid", events(20, 0.004, 0.6, 0.05), over(0.5), fading),
        Output("a handful of alarms over 0.8", "y", "Sigmoid", events(20, 0.004, 0.9, 0.06), over(0.8), fading),
        Output("alarms over 0.9", "y", "Sigmoid", events(30, 0.02, 0.95, 0.03), over(0.9), fading),
        Output("a few dozen over 0.7", "y", "Sigmoid", events(10, 0.015, 0.8, 0.1), over(0.7), fading),
        Output("labels that are clear", "tags", "Sigmoid", lambda rng: 1 / (1 + np.exp(
            -rng.choice([-6.0, 6.0], (SAMPLES, 15), p=[0.8, 0.2]) - rng.normal(size=(SAMPLES, 15)))),
            over(0.5), fading),
        Output("a clear yes or no", "y", "Sigmoid", lambda rng: 1 / (1 + np.exp(
            -rng.choice([-5.0, 5.0], (SAMPLES, 1)) - rng.normal(size=(SAMPLES, 1)))), over(0.5), fading),
    ]  # fmt: skip


def _maps() -> list[Output]:
    return [
        Output("heat maps", "heat", "Conv", peaks, peak_loss, faults),
        Output("two channels of other units", "y", "Conv", smooth_maps(2, 16, 2), by_channel, faults),
        Output("nine channels alike", "y", "Conv", smooth_maps(9, 16, 0), by_channel, faults),
        Output("a line of a map", "y", "Identity", smooth_maps(3, 16, 1), any_channel_and_row, faults),
        Output("a wave", "y", "Tanh", lambda rng: np.sin(
            rng.uniform(0, 6, (SAMPLES, 1, 1)) + np.arange(128) * rng.uniform(0.05, 0.4, (SAMPLES, 1, 1))),
            lambda a, b: float(((a - b) ** 2).mean() / a.var()), faults),
        Output("a mask of thin lines", "y", "Sigmoid", lambda rng: 1 / (1 + np.exp(
            -9 * (rng.random((SAMPLES, 1, 16, 1)) < 0.1) + 4 - 0.3 * rng.normal(size=(SAMPLES, 1, 16, 16)))),
            over(0.5), faults),
    ]  # fmt: skip


FRESH = (*_columns(), *_vectors(), *_classes(), *_scores(), *_maps())
