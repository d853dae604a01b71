"""What a result of the search has to keep besides the accuracy budget: latency and size."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ResultLimits:
    """What a result has to keep; None where there is no limit.

    Attributes:
        max_seconds: median latency, seconds.
        max_ratio: latency against the float model.
        max_bytes: size of the file.
        minimise: "latency" or "size": of those that keep all limits, the one with the least is chosen.
    """

    max_seconds: float | None = None
    max_ratio: float | None = None
    max_bytes: int | None = None
    minimise: str = "latency"
