"""One line on what a step gave, and the figures of a model, read off the JSON form of a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from onnxtool.report.build import CandidatePoint
from onnxtool.workflow.constraints import Constraints, MeasuredFile, excess, pareto_front

Plain = Mapping[str, Any]


def summary(command: str, report: Plain) -> str:
    """One line."""
    return _LINES[command](report)


def _convert(report: Plain) -> str:
    if not report.get("written", True):
        return "the outputs of the source and of the ONNX file differ"
    proven = "" if report.get("comparison") else ", not compared"
    return f"{report['form']}, opset {report['opset']}, {report['nodes']} nodes{proven}"


def _optimize(report: Plain) -> str:
    return f"{report['before']['nodes']} -> {report['after']['nodes']} nodes"


def _quantize(report: Plain) -> str:
    return str(report.get("verdict") or report.get("summary") or "done")


def _edit(report: Plain) -> str:
    steps = report.get("steps") or ()
    return f"{len(steps)} operation{'s' if len(steps) != 1 else ''}"


def _check(report: Plain) -> str:
    findings = report.get("findings") or ()
    if not findings:
        return "sound"
    first = findings[0]
    return f"{len(findings)} findings; {first['id']}: {first['message']}"


def _compare(report: Plain) -> str:
    bad = [o["name"] for o in report.get("outputs", ()) if not o.get("ok", True)]
    return f"differs in {', '.join(bad)}" if bad else "equal"


def _bench(report: Plain) -> str:
    if report.get("regressions"):
        return str(report["regressions"][0])
    rows = report.get("latencies") or ()
    return f"{rows[-1]['median'] * 1e3:.3g} ms" if rows else "done"


_LINES = {
    "convert": _convert,
    "optimize": _optimize,
    "quantize": _quantize,
    "edit": _edit,
    "check": _check,
    "compare": _compare,
    "bench": _bench,
}


def with_figures(known: MeasuredFile, command: str, report: Plain) -> MeasuredFile:
    """What is known of a model after one more step."""
    if command == "quantize":
        latency = report.get("latency") or {}
        return replace(
            known, seconds=_number(latency.get("after")), ratio=_number(latency.get("value")), drop=_drop(report)
        )
    if command == "bench":
        rows, models = report.get("latencies") or (), report.get("models") or ()
        last = rows[-1] if rows else {}
        memory = models[-1]["load"]["peak_bytes"] if models else None
        ratio = _number(last.get("ratio")) if len(models) > 1 else known.ratio
        return replace(known, seconds=_number(last.get("median")), ratio=ratio, memory=memory)
    if command in ("convert", "optimize", "edit"):
        return replace(known, seconds=None, memory=None)
    return known


def _drop(report: Plain) -> float | None:
    """Accuracy lost: on labels where there are any, else what is to be expected."""
    metric = report.get("metric")
    if metric:
        return float(metric["float_value"]) - float(metric["value"])
    fidelity = report.get("fidelity")
    return _number(fidelity.get("expected_drop")) if fidelity else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def candidates(report: Plain, limits: Constraints) -> tuple[CandidatePoint, ...]:
    """What a search tried, the Pareto front marked, the nearest to the limits first."""
    before = next((c["latency"]["before"] for c in report.get("frontier", ()) if c.get("latency")), None)
    points = [CandidatePoint("float", int(report["bytes_before"]), _number(before), 1.0, 0.0, within_budget=True)]
    for tried in report.get("frontier", ()):
        latency = tried.get("latency") or {}
        points.append(
            CandidatePoint(
                name=str(tried["name"]),
                bytes=int(tried["bytes"]),
                seconds=_number(latency.get("after")),
                ratio=_number(latency.get("value")),
                drop=_drop(tried),
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
