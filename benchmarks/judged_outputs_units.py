"""Sixty outputs for `judge_outputs.py --only units`, written before the rule that judges them.

Columns of different units (2 to 1,000 of them) under misleading names, vectors, logits, heat maps, hashes, rare events.
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
    ranks,
    softmax,
)

Made = Callable[[np.random.Generator], np.ndarray]
Tamper = Callable[[np.ndarray, np.random.Generator], list[tuple[str, np.ndarray]]]


def targets(count: int, decades: float, level: float = 0.0) -> Made:
    """[n, count]: independent targets whose units spread over so many decades, in any order."""

    def make(rng: np.random.Generator) -> np.ndarray:
        units = rng.permutation(np.logspace(0, decades, count))
        return (level + rng.normal(size=(SAMPLES, count))) * units

    return make


def demand(count: int, decades: float) -> Made:
    """[n, count]: amounts of products, none below zero, many exactly zero."""
    return lambda rng: np.maximum(rng.normal(0.5, 1, (SAMPLES, count)), 0) * np.logspace(0, decades, count)


def some_tiny(count: int, tiny: int) -> Made:
    """[n, count]: amounts, and a few rates that are a thousand times smaller."""
    return lambda rng: rng.normal(2, 1, (SAMPLES, count)) * np.where(np.arange(count) < tiny, 1e-3, 1.0)


def correlated(count: int) -> Made:
    """[n, count]: targets of one unit that share a few causes, as curves and spectra do."""
    return lambda rng: (
        rng.normal(size=(SAMPLES, 6)) @ rng.normal(size=(6, count)) + 0.1 * rng.normal(size=(SAMPLES, count))
    )


def noise_by_tensor(right: np.ndarray, rng: np.random.Generator) -> list[tuple[str, np.ndarray]]:
    """Noise of one size in all columns, as one scale for the whole tensor makes it."""
    spread = right.std()
    return [
        (f"{db} dB of one scale", right + spread * 10 ** (-db / 20) * rng.normal(size=right.shape)) for db in (32, 39)
    ]


def hashed(width: int) -> Made:
    """[n, width] near -1 and 1: what is compared are the signs."""
    return lambda rng: np.tanh(3 * clustered(width)(rng))


def bits(expected: np.ndarray, actual: np.ndarray) -> float:
    """Share of signs that differ, against a tenth of what two samples of a pair differ by."""
    flips = ((expected > 0) != (actual > 0)).mean()
    pairs = ((expected[::2] > 0) != (expected[1::2] > 0)).mean()
    return float(0.1 * flips / max(pairs, 1e-9))


def rectified(width: int) -> Made:
    return lambda rng: np.maximum(clustered(width)(rng) - 0.3, 0)


def unit(make: Made) -> Made:
    def made(rng: np.random.Generator) -> np.ndarray:
        values = make(rng)
        return values / np.linalg.norm(values, axis=-1, keepdims=True)

    return made


def rare(share: float, height: float) -> Made:
    """[n, 30] scores: nearly all below 0.2, a few at about `height`."""

    def make(rng: np.random.Generator) -> np.ndarray:
        values = rng.beta(1, 12, (SAMPLES, 30))
        found = rng.random(values.shape) < share
        return np.where(found, np.clip(rng.normal(height, 0.04, values.shape), 0, 1), values)

    return make


def high_fade(right: np.ndarray, _rng: np.random.Generator) -> list[tuple[str, np.ndarray]]:
    """What is high comes out lower, and nothing else changes."""
    return [(f"high ones by {by:g}", np.where(right > 0.6, right * by, right)) for by in (0.99, 0.8, 0.7)]


def maps(channels: int, size: int, scales: float = 0.0) -> Made:
    """[n, channels, size, size]: smooth maps, whose units spread over so many decades."""

    def make(rng: np.random.Generator) -> np.ndarray:
        low = rng.normal(size=(SAMPLES, channels, size // 4, size // 4)).repeat(4, 2).repeat(4, 3)
        return low * np.logspace(0, scales, channels)[:, None, None]

    return make


def channel_r2(expected: np.ndarray, actual: np.ndarray) -> float:
    a, b = (np.moveaxis(v, 1, -1) for v in (expected, actual))
    return r2_of()(a, b)


def skewed(classes: int) -> Made:
    """[n, classes] logits: a few classes are common, all others hardly ever named."""
    return lambda rng: 3 * rng.normal(size=(SAMPLES, classes)) + np.linspace(4, -4, classes)


def either(*losses: Loss) -> Loss:
    """The best for it: outputs that may be used in either way lose only what all of these lose."""
    return lambda a, b: min(loss(a, b) for loss in losses)


def _regressions() -> list[Output]:
    found = []
    for count, decades in ((2, 3), (3, 1.5), (5, 4), (9, 2), (17, 3), (33, 2.5), (64, 3), (65, 3), (96, 3), (200, 2)):
        found.append(Output(f"{count} targets", "y", "Gemm", targets(count, decades, 2.0), r2_of(), noise_by_tensor))
    for count, name in ((64, "y"), (96, "demand"), (128, "features"), (512, "embedding"), (1000, "logits")):
        found.append(
            Output(f"{count} amounts behind a Relu", name, "MatMul, Relu", demand(count, 3), r2_of(), noise_by_tensor)
        )
    for count, name in ((128, "features"), (256, "latent"), (65, "class_scores"), (768, "pooled"), (1000, "logits")):
        found.append(
            Output(f"{count} targets called {name}", name, "Gemm", targets(count, 2.5), r2_of(), noise_by_tensor)
        )
    for count, tiny in ((24, 2), (96, 4), (96, 10), (400, 12)):
        found.append(
            Output(f"{count} targets, {tiny} tiny", "y", "Gemm", some_tiny(count, tiny), r2_of(), noise_by_tensor)
        )
    for count, name in ((20, "y"), (96, "spectrum"), (300, "curve")):
        found.append(Output(f"{count} targets of one unit", name, "Gemm", correlated(count), r2_of()))
    found.append(Output("targets behind a Tanh", "y", "Tanh", lambda rng: np.tanh(targets(12, 0)(rng)), r2_of()))
    return found


def _vectors() -> list[Output]:
    return [
        Output("mean of tokens, 384", "sentence_embedding", "ReduceMean", clustered(384), neighbours),
        Output("mean of tokens without a name", "output_0", "ReduceMean", clustered(96), neighbours),
        Output("pooled by a Tanh", "pooler_output", "MatMul, Tanh", lambda rng: np.tanh(clustered(128)(rng)),
               neighbours),
        Output("a projection", "text_embeds", "Gemm", clustered(256), neighbours),
        Output("normalised by hand", "y", "Identity", unit(clustered(192)), neighbours),
        Output("normalised, no name, Relu", "output", "MatMul, Relu", unit(rectified(256)), neighbours),
        Output("features behind a Relu, 512", "y", "MatMul, Relu", rectified(512), neighbours),
        Output("hidden states", "last_hidden_state", "LayerNormalization", clustered(48, (6,)), neighbours),
        Output("hashes of 64 bits", "y", "Tanh", hashed(64), bits),
        Output("hashes of 256 bits", "hash", "MatMul, Tanh", hashed(256), bits),
    ]  # fmt: skip


def _classes() -> list[Output]:
    return [
        Output("logits without a name", "output", "Gemm", logits(12, 6), flips_that_cost),
        Output("logits of 100 without a name", "output_0", "Gemm", logits(100, 8), flips_that_cost),
        Output("logits of 5,000", "logits", "Gemm", logits(5000, 11), flips_that_cost),
        Output("three classes, unsure", "logits", "Gemm", logits(3, 1.5), flips_that_cost),
        Output("skewed classes", "logits", "Gemm", skewed(40), flips_that_cost),
        Output("skewed classes, many", "scores", "Gemm", skewed(300), flips_that_cost),
        Output("probabilities of 200", "y", "Softmax", softmax(logits(200, 8)), flips_that_cost),
        Output("two probabilities", "y", "Softmax", softmax(logits(2, 2)), flips_that_cost),
        Output("tokens", "y", "Gemm", logits(64, 7, (10,)), flips_that_cost),
    ]


def _scores_and_maps() -> list[Output]:
    return [
        Output("rare events at 0.8", "scores", "Sigmoid", rare(0.002, 0.8), over(0.7), high_fade),
        Output("rare events at 0.93", "y", "Sigmoid", rare(0.02, 0.93), over(0.9)),
        Output("rare events at 0.75", "y", "Sigmoid", rare(0.001, 0.75), over(0.7), high_fade),
        Output("many events", "y", "Sigmoid", rare(0.3, 0.7), over(0.5)),
        Output("one probability", "y", "Sigmoid", lambda rng: rng.beta(0.6, 1.4, (SAMPLES, 1)), ranks),
        Output("key points, other name", "output", "Conv", peaks, peak_loss),
        Output("key points of a Sigmoid", "y", "Sigmoid", lambda rng: np.clip(peaks(rng), 0, 1), peak_loss),
        Output("a map of three channels", "y", "Conv", maps(3, 16), channel_r2),
        Output("maps of different units", "y", "Conv", maps(5, 16, 3), channel_r2),
        Output("64 channels of maps", "features", "Conv", maps(64, 8), channel_r2),
        Output("64 channels of different units", "y", "Conv", maps(64, 8, 3), channel_r2),
        Output("a mask", "y", "Sigmoid", lambda rng: 1 / (1 + np.exp(-8 * maps(1, 16)(rng))), over(0.5)),
        Output("a series", "y", "Identity", lambda rng: np.cumsum(rng.normal(size=(SAMPLES, 48)), 1), r2_of()),
    ]


UNITS = (*_regressions(), *_vectors(), *_classes(), *_scores_and_maps())
