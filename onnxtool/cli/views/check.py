"""What `check` says: of one model, of several, and of what its findings mean."""

from __future__ import annotations

from collections.abc import Iterator

from onnxtool.cli.text import duration, plural, size
from onnxtool.cli.views.view import Facts, FindingList, Heading, Line, Part, Row, Table, Verdict, state, with_detail
from onnxtool.report.check import CheckReport, ChecksReport, RulesReport, Severity


def check(report: CheckReport) -> Iterator[Part]:
    """The outside of the model, the stages, the findings."""
    counts = [plural(report.count(s), s.value) for s in Severity if report.count(s)]
    yield Verdict(f"{', '.join(counts)} (onnxtool check --explain ID tells more)" if counts else "no findings")
    yield from _model(report)
    yield FindingList(report.findings)


def _model(report: CheckReport) -> Iterator[Part]:
    yield Facts(
        (
            ("model", f"{report.model} ({size(report.bytes)}, {plural(report.nodes, 'node')})"),
            ("IR version", report.ir_version),
            ("opsets", ", ".join(f"{domain} {version}" for domain, version in report.opsets.items())),
            ("producer", report.producer),
            ("input", tuple(map(str, report.inputs))),
            ("output", tuple(map(str, report.outputs))),
        )
    )
    stages = [
        (s.name, state(s.state), "" if s.state == "skipped" else duration(s.seconds), s.detail) for s in report.stages
    ]
    yield Table(("stage", "result", "time", ""), stages, numbers=("time",))


def checks(report: ChecksReport) -> Iterator[Part]:
    """A table of the models, then what is wrong with each; all of it where there is room."""
    passed = sum(r.ok for r in report.reports)
    states = {"passed": passed, "failed": len(report.reports) - passed, "unreadable": len(report.unreadable)}
    counts = ", ".join(f"{n} {name}" for name, n in states.items() if n)
    yield Verdict(f"{plural(sum(states.values()), 'model')}: {counts}")
    rows: list[Row] = [
        (r.model, state("passed" if r.ok else "failed"), size(r.bytes), *(str(r.count(s)) for s in Severity))
        for r in report.reports
    ]
    rows += [(lost.model, state("unreadable"), "", "", "", "") for lost in report.unreadable]
    numbers = ("size", "errors", "warnings", "notes")
    yield Table(("model", "result", *numbers), rows, numbers=numbers)
    for one in report.reports:
        yield FindingList(one.findings, title=one.model, least=one.fail_on, when="brief")
        yield from with_detail((Heading(one.model), *_model(one), FindingList(one.findings)))
    for lost in report.unreadable:
        yield Line(lost.error, "error", "bad", whole=True)


def rules(report: RulesReport) -> Iterator[Part]:
    """Each finding with its meaning and what to do."""
    for rule in report.rules:
        yield Line(f"{rule.title} ({rule.family}, {rule.severity.value})", rule.id)
        yield Line(rule.explanation, indent=2)
        yield Line(rule.fix, "fix:", "dim", indent=2)
