"""What a loss is at most, at a confidence: exact for flips, by resampling for any other metric.

Sources: Clopper and Pearson 1934, "The use of confidence or fiducial limits illustrated in the case of the binomial";
Efron and Tibshirani 1993, "An introduction to the bootstrap", chapter 13; Satterthwaite 1946, "An approximate
distribution of estimates of variance components"; Wilson and Hilferty 1931, "The distribution of chi-square".
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from onnxtool.runtime.timing.timing import student_quantile

CONFIDENCE = 0.95
_GAINED = 0.2  # of the chance to be wrong: for what was gained, the rest for what was lost
_RESAMPLES = 200
_BISECTIONS = 40
_LEAST_FREE, _LEAST_QUANTILE = 1.0, 0.16  # 0.16 ** 3: the 5 % quantile of a chi-square of one degree of freedom


def share_bound(count: float, total: float, confidence: float = CONFIDENCE) -> float:
    """Largest share that a count of `total` independent ones may come from: Clopper and Pearson's upper limit."""
    hits, size = math.ceil(count - 1e-9), math.floor(total + 1e-9)
    if size <= 0 or hits >= size:
        return 1.0
    steps = np.arange(1, hits + 1)
    ways = np.concatenate([[0.0], np.cumsum(np.log((size - steps + 1) / steps))])
    every = np.arange(hits + 1)
    low, high = hits / size, 1.0
    for _ in range(_BISECTIONS):
        share = (low + high) / 2
        chance = np.exp(ways + every * math.log(share) + (size - every) * math.log1p(-share)).sum()
        low, high = (share, high) if chance > 1 - confidence else (low, share)
    return high


def mean_bound(values: np.ndarray, confidence: float = CONFIDENCE) -> float:
    """What the mean of independent values is at most: their mean and Student's quantile of its standard error."""
    if len(values) < 2:
        return float("inf")
    spread = student_quantile(confidence, len(values) - 1) * values.std(ddof=1)
    return float(values.mean() + spread / math.sqrt(len(values)))


def power_factor(sums: np.ndarray, squares: np.ndarray, samples: int, confidence: float = CONFIDENCE) -> np.ndarray:
    """By how many times the mean of amounts that are never below zero (noise power) may exceed the measured one.

    Their sum is taken for a chi-square of as many degrees of freedom as it varies like, so that few samples, and noise
    in few of them, leave much open. That these degrees are an estimate too is met by Student's quantile in place of the
    normal one. Of a single sample nothing can be told: 1.

    Args:
        sums: of the amounts of all samples, any shape.
        squares: of their squares, likewise.
        samples: how many there are.
        confidence: of the bound.
    """
    if samples < 2:
        return np.ones(np.shape(sums))
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.maximum(samples * squares / np.square(sums) - 1, 0) / (samples - 1)  # variance of the mean
        free = np.clip(np.nan_to_num(2 / relative, nan=np.inf, posinf=1e12), _LEAST_FREE, 1e12)
    spread = 2 / (9 * free)
    quantile = (
        np.maximum(1 - spread - student_quantile(confidence, samples - 1) * np.sqrt(spread), _LEAST_QUANTILE) ** 3
    )
    return np.asarray(1 / quantile)


def amount_bound(amounts: np.ndarray, confidence: float = CONFIDENCE) -> float:
    """What the mean of independent amounts, none below zero, is at most."""
    total = float(amounts.sum())
    factor = power_factor(np.array(total), np.array(float(np.square(amounts).sum())), len(amounts), confidence)
    return total / max(len(amounts), 1) * float(factor)


def clustered_share_bound(counts: np.ndarray, totals: np.ndarray, confidence: float = CONFIDENCE) -> float:
    """`share_bound` of what comes in samples (tokens of a text), whose parts are not independent: of fewer, by as many
    times as the share varies more between samples than it would by chance (Kish's design effect).
    """
    count, total = float(counts.sum()), float(totals.sum())
    if total <= 0:
        return 0.0
    share = count / total
    effect = 1.0
    if 0 < share < 1 and len(counts) > 1:
        spread = np.square(counts - share * totals).sum() * len(counts) / (len(counts) - 1)
        effect = max(1.0, float(spread / (share * (1 - share) * total)))
    return share_bound(count / effect, total / effect, confidence)


def paired_bound(before: np.ndarray, after: np.ndarray, confidence: float = CONFIDENCE) -> float:
    """What accuracy is lost at most, of hits on the same samples, bool: lost ones at most, less gained at least."""
    chance, size = 1 - confidence, len(before)
    lost = share_bound(float((before & ~after).sum()), size, 1 - (1 - _GAINED) * chance)
    kept = share_bound(float(size - (~before & after).sum()), size, 1 - _GAINED * chance)
    return lost - (1 - kept)


def resampled_bound(drop: Callable[[np.ndarray], float], samples: int, confidence: float = CONFIDENCE) -> float:
    """What is lost at most, by a paired bootstrap.

    Args:
        drop: of the samples with these indices, what they lose together.
        samples: how many there are.
        confidence: of the bound.

    Returns:
        The larger one of the percentile and Student's interval's end; where nothing is lost anywhere, what samples
        that were not seen may lose.
    """
    random = np.random.default_rng(0)
    drops = np.array([drop(random.integers(0, samples, samples)) for _ in range(_RESAMPLES)])
    drops = drops[np.isfinite(drops)]
    if not len(drops):
        return float("inf")
    if not drops.any():
        return share_bound(0, samples, confidence)
    # Resamples of few samples vary less than new samples would, and lopsided ones have a longer end than Student's
    # (Johnson 1978, "Modified t tests and confidence intervals for asymmetrical populations").
    spread = float(drops.std(ddof=1)) * math.sqrt(samples / (samples - 1))
    quantile = student_quantile(confidence, samples - 1)
    skew = float(np.mean((drops - drops.mean()) ** 3) / drops.std() ** 3) if drops.std() > 0 else 0.0
    quantile += max(skew, 0.0) * (1 + 2 * quantile**2) / 6
    return max(float(np.quantile(drops, confidence)), drop(np.arange(samples)) + quantile * spread)


def samples_to_show(samples: int, drop: float, bound: float, limit: float) -> int | None:
    """How many samples would show that a drop is within a limit, if it stays what it is; None if none would."""
    if drop >= limit or not math.isfinite(bound):
        return None
    return math.ceil(samples * ((bound - drop) / (limit - drop)) ** 2)
