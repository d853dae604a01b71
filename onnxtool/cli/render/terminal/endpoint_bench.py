"""How a load test of an endpoint is shown."""

from __future__ import annotations

from rich.console import Console

from onnxtool.cli.render.terminal import facts, table, verdict
from onnxtool.cli.render.text import markup
from onnxtool.report.measurement.endpoint_bench import EndpointBenchReport, LoadResult


def render(report: EndpointBenchReport, console: Console, verbose: int) -> None:
    """One row for each loop, then how the endpoint relates to the file."""
    columns = ("loop", "median", "p90", "p99", "p99.9", "longest", "requests/s", "requests", "errors")
    made = table(*columns, right=columns[1:])
    for r in report.results:
        times = (f"{1e3 * s:.2f} ms" for s in (r.median, r.p90, r.p99, r.p999, r.longest))
        errors = ", ".join(f"{n} x {status}" for status, n in r.errors.items()) or "0"
        made.add_row(markup(_name(r)), *times, f"{r.throughput:.0f}", str(r.requests), markup(errors))
    console.print(
        facts([("endpoint", report.url), ("file", report.model), ("request", f"{report.request_bytes} bytes")])
    )
    console.print(made)
    said = []
    if report.latency_ratio is not None and report.overhead is not None and report.throughput_ratio is not None:
        said = [
            f"{report.latency_ratio:.2f}x the latency of session.run ({1e3 * report.overhead:+.2f} ms)",
            f"{report.throughput_ratio:.2f}x its throughput",
        ]
    if report.equal is not None:
        said.append("the file's answers" if report.equal else "other answers than the file")
    verdict(console, report.ok, "; ".join(said) or "every request was answered" * report.ok or "requests failed")


def _name(result: LoadResult) -> str:
    if result.loop == "session":
        return "session.run in a loop"
    if result.loop == "open":
        return f"open, {result.rate:g} requests/s"
    return f"closed, {result.connections} connection{'s' * (result.connections > 1)}"
