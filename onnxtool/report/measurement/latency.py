"""Latency of one model against another."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LatencyRatio:
    """Latency of a result against that of its source, measured side by side, the runtime's own optimizations on.

    Attributes:
        value: median latency of the result divided by that of the source; below 1 is faster.
        low: lower end of its 95 % interval.
        high: upper end.
        before: median latency of the source, seconds.
        after: median latency of the result, seconds.
        threads: of the runtime while measuring; None = all cores.
    """

    value: float
    low: float
    high: float
    before: float
    after: float
    threads: int | None = None
