"""What `bench` says of one model in several settings, and of an endpoint under load."""

from __future__ import annotations

import json
from collections.abc import Iterator

from onnxtool.cli.text import duration, interval, plural, size
from onnxtool.cli.views.view import Code, Facts, Part, Row, Table, Verdict, state, warnings
from onnxtool.report.measurement.bench_matrix import BenchMatrixReport, MeasuredSetting
from onnxtool.report.measurement.endpoint_bench import EndpointBenchReport, LoadResult

_LANGUAGES = {"python": "Python", "csharp": "C#", "cpp": "C++"}


def bench_matrix(report: BenchMatrixReport) -> Iterator[Part]:
    """One row for each setting, then the one to use; with --best its settings and code."""
    best = report.best
    sure = "" if best.ratio == 1 else f", {interval(best.ratio, best.ratio_low, best.ratio_high)} measured again"
    where = f"{report.runtime} on {report.cpu}, {plural(report.cores, 'core')}; batch {report.batch}; {report.data}"
    yield Verdict(f"fastest that is equal: {best.name}{sure}; {where}", report.model)
    chosen = next((i for i, row in enumerate(report.rows) if row.name == best.name), -1)
    numbers = ("load", "memory", "error", "latency", "ratio [95 %]")
    columns = ("setting", *numbers, "outputs", "")
    yield Table(columns, [_setting(row) for row in report.rows], numbers, chosen=chosen)
    yield from warnings(report.warnings)
    if report.show_code:
        yield Code(json.dumps(best.settings, indent=2).splitlines(), "json")
        for language, code in best.code.items():
            yield Code(code.splitlines(), language, _LANGUAGES.get(language, language))


def _setting(row: MeasuredSetting) -> Row:
    memory = None if row.load is None else row.load.model_bytes
    error = None if row.proof is None else row.proof.error
    return (
        row.name,
        "" if row.load is None else duration(row.load.seconds),
        "" if memory is None else size(memory),
        "" if error is None else f"{error:.0e}",
        "" if row.median is None else duration(row.median),
        interval(row.ratio, row.ratio_low, row.ratio_high),
        state(row.verdict),
        row.speed,
    )


def endpoint_bench(report: EndpointBenchReport) -> Iterator[Part]:
    """One row for each loop, then how the endpoint relates to the file."""
    told = []
    if report.latency_ratio is not None and report.overhead is not None and report.throughput_ratio is not None:
        told = [
            f"{report.latency_ratio:.2f}x the latency of session.run ({1e3 * report.overhead:+.2f} ms)",
            f"{report.throughput_ratio:.2f}x its throughput",
        ]
    if report.equal is not None:
        told.append("the file's answers" if report.equal else "other answers than the file")
    yield Verdict("; ".join(told) or ("every request was answered" if report.ok else "requests failed"))
    yield Facts((("endpoint", report.url), ("file", report.model), ("request", f"{report.request_bytes} bytes")))
    rows = [
        (
            _loop(r),
            *(duration(s) for s in (r.median, r.p90, r.p99, r.p999, r.longest)),
            f"{r.throughput:.0f}",
            str(r.requests),
            ", ".join(f"{n} x {status}" for status, n in r.errors.items()) or "0",
        )
        for r in report.results
    ]
    numbers = ("median", "p90", "p99", "p99.9", "longest", "requests/s", "requests", "errors")
    yield Table(("loop", *numbers), rows, numbers, wide=("requests",))


def _loop(result: LoadResult) -> str:
    if result.loop == "session":
        return "session.run"
    if result.loop == "open":
        return f"open, {result.rate:g} requests/s"
    return f"closed, {plural(result.connections, 'connection')}"
