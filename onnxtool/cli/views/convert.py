"""What `convert` says: what was recognised and written, each output beside the source's, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator

from onnxtool.cli.text import duration, plural, size
from onnxtool.cli.views.compare import counterexample, outputs, provider_proofs, rule, why
from onnxtool.cli.views.view import Facts, Line, Part, Verdict, warnings
from onnxtool.report.compare import CompareReport
from onnxtool.report.convert import ConvertReport


def _verdict(report: ConvertReport) -> str:
    if report.written and not all(p.ok for p in report.providers):
        return f"{report.output} written, and equal on the CPU; not on every provider asked for"
    rows = "" if report.changed_rows is None else "{} of {} rows of the sample".format(*report.changed_rows)
    if report.ok and report.is_within_flips:
        allowed = f"{report.max_flips} allowed; nothing else was tried"
        return f"{report.output} written; it is not equal to its source: {rows} differ ({allowed})"
    if report.ok and report.comparison is not None:
        runs = plural(len(report.comparison.runs), "run")
        compared = f"compared in {runs}, {report.untested}" if report.untested else f"equal to its source in {runs}"
        if report.comparison.verdict == "certified" and not report.untested:
            compared = f"certified: the same real function as its source; equal in {runs}"
        if listed := _not_tested(report):
            compared = f"in every run {listed}, which tells nothing (--sample FILE compares on real inputs)"
        return f"{report.output} written; {compared}"
    if report.ok:
        return f"{report.output} written, unverified"
    kept = f"; kept as {report.kept} for study" if report.kept else ""
    if listed := _not_tested(report):
        ways = "--sample FILE compares on real inputs; --allow-unproven writes it all the same"
        done = "written all the same" if report.written else f"not written{kept} ({ways})"
        return f"not tested: {listed} in every run; {report.output} {done}"
    where = f" in {rows}" if rows else ""
    return f"outputs differ from the source's{where}; {report.output} not written{kept}"


def _not_tested(report: ConvertReport) -> str:
    """The outputs that no run told anything of, and why."""
    found = report.comparison.not_tested if report.comparison and report.comparison.verdict == "not tested" else ()
    return ", ".join(o.why_not_tested for o in found)


def convert(report: ConvertReport) -> Iterator[Part]:
    """What was recognised, what was written, one row for each output compared, and the verdict."""
    untested = report.ok and bool(_not_tested(report))
    yield Verdict(_verdict(report), but="NOT EQUAL" if report.is_within_flips else "NOT TESTED" if untested else "")
    stages = ", ".join(f"{stage} {duration(seconds)}" for stage, seconds in report.seconds.items())
    rows = (
        ("source", f"{report.source} ({report.form}, {report.framework})"),
        ("inputs", ", ".join(map(str, report.inputs))),
        ("outputs", ", ".join(map(str, report.outputs))),
        ("opset", f"{report.opset}, {plural(report.nodes, 'node')}"),
        ("size", size(report.size_bytes) if report.written else None),
        ("time", f"{duration(sum(report.seconds.values()))} ({stages})"),
    )
    yield Facts(rows)
    yield Facts((("sha256", report.source_sha256),), when="full")
    yield from (Line(note, "note:", "dim") for note in report.notes)
    if report.comparison is not None:
        yield from _compared(report.comparison)
    yield from provider_proofs(report.providers)
    if report.ok and report.comparison is None:
        yield from warnings(("not compared with its source (--no-verify).",))


def _compared(comparison: CompareReport) -> Iterator[Part]:
    yield outputs(comparison.outputs)
    worst = comparison.worst
    if worst is not None and not worst.ok:
        yield Line(f"worst output {worst.name}: {why(worst)}", indent=2)
    yield from counterexample(comparison.counterexample)
    if comparison.outputs and comparison.runs:
        sizes = "; ".join(", ".join(f"{n} {list(s)}" for n, s in run.items()) for run in comparison.runs)
        limits = f"within rtol {comparison.rtol:g}, atol {comparison.atol:g}"
        yield Line(f"compared on {comparison.data}, {limits}: {sizes}", tone="dim", indent=2)
    if comparison.rule:
        yield rule(comparison)
    if comparison.certificate is not None:
        yield Line(f"{comparison.verdict}: {comparison.certificate.summary}", tone="dim", indent=2)
    if comparison.coverage is not None:
        yield Line(f"also tested: {comparison.coverage.summary}", tone="dim", indent=2)
