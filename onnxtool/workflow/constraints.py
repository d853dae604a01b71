"""What a model's result has to keep: accuracy, latency, size, memory; and what of it is made as low as possible."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxtool.errors import UsageError
from onnxtool.model.byte_sizes import parse_bytes
from onnxtool.report.build import CandidatePoint, ConstraintVerdict

_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "": 1e-3}


@dataclass(frozen=True)
class Constraints:
    """Limits on a result; None where there is none.

    Attributes:
        max_drop: accuracy lost against float.
        max_seconds: latency.
        max_ratio: latency against float.
        max_bytes: size of the file.
        max_memory: peak memory of loading and running, bytes.
        minimise: "latency" or "size".
    """

    max_drop: float | None = None
    max_seconds: float | None = None
    max_ratio: float | None = None
    max_bytes: int | None = None
    max_memory: int | None = None
    minimise: str = "latency"

    @property
    def any_limit(self) -> bool:
        """True when there is a limit besides the accuracy budget."""
        limits = (self.max_seconds, self.max_ratio, self.max_bytes, self.max_memory)
        return any(limit is not None for limit in limits)

    @property
    def any_latency(self) -> bool:
        """True when the latency has to be known."""
        return self.max_seconds is not None or self.max_ratio is not None


@dataclass(frozen=True)
class MeasuredFile:
    """What is known of a result; None where it was not measured."""

    bytes: int
    seconds: float | None = None
    ratio: float | None = None
    drop: float | None = None
    memory: int | None = None


def parse_constraints(where: str, table: Mapping[str, Any]) -> Constraints:
    """The limits that a model's table holds.

    Raises:
        UsageError: a limit that cannot be read.
    """
    seconds, ratio = _latency(f"{where}.max-latency", table.get("max-latency"))
    return Constraints(
        max_drop=table.get("max-drop"),
        max_seconds=seconds,
        max_ratio=ratio,
        max_bytes=byte_count(f"{where}.max-size", table.get("max-size")),
        max_memory=byte_count(f"{where}.max-memory", table.get("max-memory")),
        minimise=table.get("minimise") or "latency",
    )


def verdicts(limits: Constraints, found: MeasuredFile) -> tuple[ConstraintVerdict, ...]:
    """Each limit with what was measured; a value that is not known does not keep it."""
    pairs = (
        ("max-drop", limits.max_drop, found.drop),
        ("max-latency", limits.max_seconds, found.seconds),
        ("max-latency (of float)", limits.max_ratio, found.ratio),
        ("max-size", limits.max_bytes, found.bytes),
        ("max-memory", limits.max_memory, found.memory),
    )
    return tuple(
        ConstraintVerdict(name, float(limit), None if value is None else float(value), _keeps(name, limit, value))
        for name, limit, value in pairs
        if limit is not None
    )


def _keeps(name: str, limit: float, value: float | None) -> bool:
    # Without labels and classes no loss of accuracy can be told; quantize then holds its own budget in decibels.
    return value <= limit if value is not None else name == "max-drop"


def excess(limits: Constraints, point: CandidatePoint) -> float:
    """By how much a candidate is beyond the limits, each as a share of itself, added up; 0 when it keeps all."""
    total = 0.0 if point.within_budget else 1.0
    for limit, value in (
        (limits.max_seconds, point.seconds),
        (limits.max_ratio, point.ratio),
        (limits.max_bytes, point.bytes),
    ):
        if limit is not None:
            total += 1.0 if value is None else max(0.0, value / max(limit, 1e-12) - 1.0)
    return total


def pareto_front(points: Sequence[CandidatePoint]) -> list[int]:
    """Indices of the candidates that no other beats in latency, size and accuracy at once.

    A candidate whose latency or loss is not known is not on the front.
    """
    known = [(i, _axes(p)) for i, p in enumerate(points) if p.ratio is not None and p.drop is not None]
    return [
        i
        for i, own in known
        if not any(
            all(a <= b for a, b in zip(other, own, strict=True)) and other != own for j, other in known if j != i
        )
    ]


def _axes(point: CandidatePoint) -> tuple[float, float, float]:
    assert point.ratio is not None and point.drop is not None
    return point.ratio, float(point.bytes), point.drop


def _latency(where: str, value: Any) -> tuple[float | None, float | None]:
    """Seconds and ratio: a number is milliseconds."""
    if value is None:
        return None, None
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(x|s|ms|us|)", str(value).strip().lower())
    if found is None or float(found[1]) <= 0:
        raise UsageError(f'{where}: write "2ms", "0.5s", a number of milliseconds, or "0.8x" of float.')
    if found[2] == "x":
        return None, float(found[1])
    return float(found[1]) * _UNITS[found[2]], None


def byte_count(where: str, value: Any) -> int | None:
    """A number of bytes from a number or a text such as "64MB" (1 kB is 1000 bytes).

    Raises:
        UsageError: not such a size.
    """
    if value is None or isinstance(value, int):
        return value
    return parse_bytes(str(value), where)
