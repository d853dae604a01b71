"""What a search tried, read off the JSON form of its report."""

from __future__ import annotations

from dataclasses import replace

from onnxtool.report.build import CandidatePoint
from onnxtool.workflow.constraints import Constraints, excess, pareto_front
from onnxtool.workflow.steps import Plain, expected_drop, number


def candidates(report: Plain, limits: Constraints) -> tuple[CandidatePoint, ...]:
    """What a search tried, the Pareto front marked, the nearest to the limits first."""
    before = next((c["latency"]["before"] for c in report.get("frontier", ()) if c.get("latency")), None)
    points = [CandidatePoint("float", int(report["bytes_before"]), number(before), 1.0, 0.0, within_budget=True)]
    for tried in report.get("frontier", ()):
        latency = tried.get("latency") or {}
        points.append(
            CandidatePoint(
                name=str(tried["name"]),
                bytes=int(tried["bytes"]),
                seconds=number(latency.get("after")),
                ratio=number(latency.get("value")),
                drop=expected_drop(tried),
                within_budget=bool(tried["within_budget"]),
            )
        )
    points = [p for p in points if p.bytes > 0]
    front = set(pareto_front(points))
    marked = [replace(p, pareto=i in front, excess=excess(limits, p)) for i, p in enumerate(points)]
    return tuple(sorted(marked, key=lambda p: p.excess))


def float_suffices(report: Plain, limits: Constraints) -> bool:
    """True when a search wrote nothing, and the float model is within all limits that there are."""
    if not limits.any_limit or not report.get("frontier"):
        return False
    return any(p.name == "float" and p.excess == 0 for p in candidates(report, limits))
