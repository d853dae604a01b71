"""Limits, the nearest candidates, the Pareto front."""

from __future__ import annotations

import pytest

from onnxtool.errors import UsageError
from onnxtool.report.build import CandidatePoint
from onnxtool.workflow.constraints import Constraints, MeasuredFile, excess, pareto_front, parse_constraints, verdicts
from onnxtool.workflow.run_step import candidates, float_suffices


@pytest.mark.parametrize(
    ("given", "seconds", "ratio"), [("2ms", 0.002, None), (2, 0.002, None), ("1.5 s", 1.5, None), ("0.8x", None, 0.8)]
)
def test_reads_latencies(given: object, seconds: float | None, ratio: float | None) -> None:
    limits = parse_constraints("m", {"max-latency": given})
    assert (limits.max_seconds, limits.max_ratio) == (seconds, ratio)


@pytest.mark.parametrize("table", [{"max-latency": "0ms"}, {"max-latency": "x"}, {"max-size": "much"}])
def test_refuses_what_is_not_a_limit(table: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        parse_constraints("m", table)


def test_a_value_that_is_not_known_keeps_no_limit_but_that_of_accuracy() -> None:
    limits = Constraints(max_drop=0.01, max_seconds=1.0, max_bytes=10, max_memory=5)
    kept = {v.name: v.kept for v in verdicts(limits, MeasuredFile(10))}
    assert kept == {"max-drop": True, "max-latency": False, "max-size": True, "max-memory": False}
    assert not verdicts(limits, MeasuredFile(11, seconds=0.5))[2].kept


def point(name: str, ratio: float | None, size: int, drop: float | None, within: bool = True) -> CandidatePoint:
    return CandidatePoint(name, size, ratio, ratio, drop, within)


def test_the_front_has_what_no_other_beats() -> None:
    points = [
        point("fast", 0.5, 100, 0.02),
        point("small", 0.9, 25, 0.02),
        point("exact", 1.0, 100, 0.0),
        point("worse", 0.9, 100, 0.02),
        point("unknown", None, 1, 0.0),
        point("twin of small", 0.9, 25, 0.02),
    ]
    assert [points[i].name for i in pareto_front(points)] == ["fast", "small", "exact", "twin of small"]


def test_excess_is_a_share_of_each_limit() -> None:
    limits = Constraints(max_bytes=100, max_ratio=0.5)
    assert excess(limits, point("a", 0.5, 100, 0.0)) == 0
    assert excess(limits, point("a", 0.75, 150, 0.0)) == pytest.approx(1.0)
    assert excess(limits, point("a", 0.5, 100, 0.0, within=False)) == 1.0
    assert excess(limits, point("a", None, 100, 0.0)) == 1.0


def test_candidates_come_nearest_first_with_float_among_them() -> None:
    tried = {
        "name": "static",
        "bytes": 40,
        "latency": {"before": 0.002, "after": 0.001, "value": 0.5},
        "fidelity": {"expected_drop": 0.1},
        "metric": None,
        "within_budget": False,
    }
    report = {"bytes_before": 100, "frontier": [tried]}
    found = candidates(report, Constraints(max_bytes=50))
    assert [(c.name, c.pareto) for c in found] == [("float", True), ("static", True)]
    assert [c.excess for c in found] == [1.0, 1.0]
    assert found[0].seconds == 0.002
    assert not float_suffices(report, Constraints(max_bytes=50))
    assert float_suffices(report, Constraints(max_bytes=100))
    assert not float_suffices(report, Constraints())
