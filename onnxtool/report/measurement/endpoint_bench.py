"""What a load test of an endpoint gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnxtool.report.base import Report


@dataclass(frozen=True)
class LoadResult:
    """One way of sending requests.

    Attributes:
        loop: "closed" (a connection sends when it has its answer), "open" (requests are due at given times, whether or
            not earlier ones are answered), or "session" (the file in a loop in this process).
        connections: at a time.
        rate: requests due in a second, of an open loop; None otherwise.
        requests: answers counted, errors included.
        errors: how many of each status that is not 200; "none" for no answer.
        seconds: of measuring.
        throughput: good answers in a second.
        median, p90, p99, p999, longest: latency in seconds; in an open loop from when a request was due.
    """

    loop: str
    connections: int
    rate: float | None
    requests: int
    errors: Mapping[str, int]
    seconds: float
    throughput: float
    median: float
    p90: float
    p99: float
    p999: float
    longest: float


@dataclass(frozen=True, repr=False)
class EndpointBenchReport(Report, kind="endpoint_bench"):
    """An endpoint under load, beside the file in this process where one was given.

    Attributes:
        url: of the model.
        model: the file; None without one.
        equal: whether the endpoint's answer is that of the file, by the rule of `compare`; None without a file.
        request_bytes, response_bytes: of one exchange, bodies alone.
        results: of each loop; those of the file first.
        latency_ratio: median of one connection over that of the file; None without a file.
        overhead: their difference in seconds.
        throughput_ratio: best throughput of a closed loop over that of the file.
    """

    url: str
    model: str | None
    equal: bool | None
    request_bytes: int
    response_bytes: int
    results: tuple[LoadResult, ...]
    latency_ratio: float | None = None
    overhead: float | None = None
    throughput_ratio: float | None = None
    cpu: str = ""
    cores: int = 0

    @property
    def ok(self) -> bool:
        """True when every request was answered with 200 and the answers are those of the file."""
        return self.equal is not False and not any(r.errors for r in self.results)
