"""Student's t: by how many standard errors the mean of a few values may be off."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

_MANY = 2000  # degrees of freedom, from which on it is the normal distribution to four digits
_BISECTIONS = 60


@lru_cache(maxsize=512)
def student_quantile(confidence: float, free: int) -> float:
    """One-sided quantile of Student's t with so many degrees of freedom; 0.975 for a two-sided interval of 95 %.

    Source: Abramowitz and Stegun 1964, "Handbook of mathematical functions", 26.7.3 and 26.7.4.
    """
    if free >= _MANY:
        return NormalDist().inv_cdf(confidence)
    low, high = 0.0, 1e4
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, free) < 2 * confidence - 1 else (low, middle)
    return (low + high) / 2


def _within(t: float, free: int) -> float:
    """Chance of a value between -t and t."""
    angle = math.atan2(t, math.sqrt(free))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = free % 2
    term, total = cosine if odd else 1.0, 0.0
    for power in range(odd + 2, free + 1, 2):
        total += term
        term *= cosine * cosine * (power - 1) / power
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
