"""JUnit XML of a report: one test case for each output, model or finding, as CI systems show them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree

from onnxtool.cli.text import clean
from onnxtool.cli.views import view_of
from onnxtool.cli.views.compare import why
from onnxtool.report.base import Report
from onnxtool.report.build import BuildReport
from onnxtool.report.check import CheckReport, ChecksReport, Severity
from onnxtool.report.compare import CompareReport
from onnxtool.report.measurement.bench import BenchReport


@dataclass(frozen=True)
class _Case:
    group: str
    name: str
    failure: str | None = None
    seconds: float = 0.0
    note: str = ""
    skipped: str = ""


def render(report: Report) -> str:
    """The report as JUnit XML."""
    cases = list(_cases(report))
    failures = sum(c.failure is not None for c in cases)
    suite = ElementTree.Element(
        "testsuite",
        name=f"onnxtool {report.kind}",
        tests=str(len(cases)),
        failures=str(failures),
        errors="0",
        skipped=str(sum(bool(c.skipped) for c in cases)),
        time=f"{sum(c.seconds for c in cases):.3f}",
    )
    for case in cases:
        element = ElementTree.SubElement(
            suite,
            "testcase",
            classname=clean(case.group, 500),
            name=clean(case.name, 500),
            time=f"{case.seconds:.3f}",
        )
        if case.failure is not None:
            lines = [clean(line, 2000) for line in case.failure.splitlines()] or ["failed"]
            failure = ElementTree.SubElement(element, "failure", message=lines[0])
            failure.text = "\n".join(lines)
        if case.skipped:
            ElementTree.SubElement(element, "skipped", message=clean(case.skipped, 2000))
        if case.note:
            ElementTree.SubElement(element, "system-out").text = "\n".join(
                clean(line, 2000) for line in case.note.splitlines()
            )
    root = ElementTree.Element("testsuites", tests=str(len(cases)), failures=str(failures))
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _cases(report: Report) -> Iterator[_Case]:
    if isinstance(report, CheckReport):
        yield from _check(report)
    elif isinstance(report, ChecksReport):
        for one in report.reports:
            yield from _check(one)
        for lost in report.unreadable:
            yield _Case(lost.model, "readable", lost.error)
    elif isinstance(report, CompareReport):
        for output in report.outputs:
            text = f"max abs {output.max_abs:.3g}, max rel {output.max_rel:.3g}, SQNR {output.sqnr_db:.1f} dB"
            failure = f"{why(output)}; {text}" if output.compared and not output.ok else None
            if output in report.unjudged:
                failure = f"not tested: {why(output)}"
            skipped = "" if output.compared or failure else f"not compared: {why(output)}"
            yield _Case(f"{report.a} against {report.b}", output.name, failure, note=text, skipped=skipped)
        if not report.compared:
            yield _Case(f"{report.a} against {report.b}", "outputs", "no output was compared")
        if report.coverage is not None:
            missed = "\n".join(f"not reached: {branch}" for branch in report.coverage.unreached)
            note = "\n".join(filter(None, (report.coverage.summary, missed)))
            failure = (missed or "not reached") if report.equal and not report.ok else None
            yield _Case(f"{report.a} against {report.b}", "coverage", failure, note=note)
    elif isinstance(report, BenchReport):
        for item in report.latencies:
            name = f"batch {item.batch}, threads {item.threads or 'all'}"
            yield _Case(item.model, name, None, item.median, f"p90 {item.p90:.6f} s, p99 {item.p99:.6f} s")
        for line in report.regressions:
            yield _Case("baseline", line.split(":")[0], line)
    elif isinstance(report, BuildReport):
        for model in report.models:
            bad = model.error or ("stale" if report.dry_run and model.state == "stale" else "")
            note = "\n".join(f"{s.command}: {s.state} {s.summary or s.reason}" for s in model.steps)
            yield _Case(report.file, model.name, bad or None, sum(s.seconds for s in model.steps), note)
    else:
        verdict = view_of(report).verdict.text
        yield _Case(report.kind, report.kind, None if report.ok else verdict or "the verdict is bad", note=verdict)


def _check(report: CheckReport) -> Iterator[_Case]:
    """The stages, then one case for each finding that counts; the milder ones are notes of the last case."""
    bad = [f for f in report.findings if f.severity.rank <= report.fail_on.rank]
    for stage in report.stages:
        yield _Case(report.model, stage.name, None, stage.seconds, stage.detail)
    for finding in bad:
        name = f"{finding.id} {finding.where}".strip()
        yield _Case(report.model, name, f"{finding.message}\nfix: {finding.fix}")
    rest = [f for f in report.findings if f not in bad and f.severity is not Severity.ERROR]
    if rest:
        lines = "\n".join(f"{f.severity.value} {f.id} {f.where}: {f.message}" for f in rest)
        yield _Case(report.model, "other findings", None, note=lines)
