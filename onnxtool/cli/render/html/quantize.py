"""The frontier that `quantize` tried, as one HTML page: a plot and a table. No scripts, nothing from outside."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from onnxtool.cli.render.html.parts import table, text
from onnxtool.cli.render.text import duration, number, size
from onnxtool.report.quantize import Candidate, QuantizeReport

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 720, 400, 60, 44, 16, 16


def body(report: QuantizeReport) -> Iterator[str]:
    """The page's parts."""
    yield f"<h2>{text(report.source)} {'&rarr; ' + text(report.output) if report.output else '(nothing written)'}</h2>"
    yield _facts(report)
    tried = [c for c in report.frontier if c.latency is not None and c.fidelity is not None]
    if tried:
        yield "<h2>Speed and accuracy of what was tried</h2>"
        yield f'<div class="picture">{_scatter(tried, report)}</div>'
        yield _legend()
        yield "<h2>All candidates</h2>"
        yield _table(report)


def _facts(report: QuantizeReport) -> str:
    rows = [
        ("verdict", report.verdict),
        ("recipe", report.summary),
        ("budget", report.budget),
        ("size", f"{size(report.bytes_before)} to {size(report.bytes_after)} ({report.size_ratio:.3f})"),
    ]
    if report.latency is not None:
        one = report.latency
        rows.append(("latency", f"{duration(one.before)} to {duration(one.after)} ({one.value:.3f})"))
    if report.metric is not None:
        rows.append((report.metric.name, f"{report.metric.float_value:.4f} to {report.metric.value:.4f}"))
    return table((), [row for row in rows if row[1]])


def _quality(one: Candidate, by_metric: bool) -> float | None:
    if by_metric:
        return None if one.metric is None else one.metric.value
    assert one.fidelity is not None
    return min(one.fidelity.channel_db, 80.0)


def _scatter(tried: Sequence[Candidate], report: QuantizeReport) -> str:
    by_metric = sum(c.metric is not None for c in tried) >= 3
    points = [(c, c.latency.value, q) for c in tried if c.latency and (q := _quality(c, by_metric)) is not None]
    right = max([1.0, *(x for _, x, _ in points)]) * 1.05
    low, high = min(q for *_, q in points), max(q for *_, q in points)
    margin = (high - low) * 0.08 or 1.0
    low, high = low - margin, high + margin

    def x_of(value: float) -> float:
        return _LEFT + value / right * (_WIDTH - _LEFT - _RIGHT)

    def y_of(value: float) -> float:
        return _HEIGHT - _BOTTOM - (value - low) / (high - low) * (_HEIGHT - _BOTTOM - _TOP)

    title = text(report.metric.name) if by_metric and report.metric else "signal to noise, dB"
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="latency ratio against {title}">']
    for y in _ticks(low, high):
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y_of(y):.1f}" y2="{y_of(y):.1f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y_of(y) + 4:.1f}" text-anchor="end">{y:g}</text>')
    for x in _ticks(0, right):
        parts.append(f'<text x="{x_of(x):.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{x:g}</text>')
    parts.append(f'<line class="float" x1="{x_of(1):.1f}" x2="{x_of(1):.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>')
    middle = (_WIDTH + _LEFT) / 2
    parts.append(f'<text x="{middle}" y="{_HEIGHT - 8}" text-anchor="middle">latency against float (1 = dashed)</text>')
    parts.append(
        f'<text x="14" y="{_HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 14 {_HEIGHT / 2})">{title}</text>'
    )
    for one, x, y in sorted(points, key=lambda p: p[0].chosen):
        kind = "best" if one.chosen else "kept" if one.within_budget else "broken"
        label = f"{text(one.name)}: latency {x:.3f}, {size(one.bytes)}, {number(y)}"
        parts.append(
            f'<circle class="{kind}" cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="{8 if one.chosen else 5}">'
            f"<title>{label}</title></circle>"
        )
    return "".join([*parts, "</svg>"])


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers from `low` to `high`."""
    rough = max(high - low, 1e-9) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough)
    return [round(i * step, 10) for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _legend() -> str:
    dot = '<svg class="dot" viewBox="0 0 16 16"><circle class="{}" cx="8" cy="8" r="6"/></svg>'
    kinds = (("best", "chosen"), ("kept", "within the budget"), ("broken", "beyond it, or not measured closely"))
    return "<p>" + " &nbsp; ".join(f"{dot.format(kind)} {words}" for kind, words in kinds) + "</p>"


def _table(report: QuantizeReport) -> str:
    head = "<tr><th>candidate</th><th>recipe</th>" + "".join(
        f'<th class="n">{c}</th>' for c in ("size", "latency", "dB", "same argmax", "metric", "budget")
    )
    rows = []
    for one in sorted(report.frontier, key=lambda c: c.latency.value if c.latency else float("inf")):
        fidelity, speed = one.fidelity, one.latency
        cells = (
            size(one.bytes),
            "-" if speed is None else f"{speed.value:.3f} ({speed.low:.2f} to {speed.high:.2f})",
            "-" if fidelity is None else number(fidelity.channel_db),
            "-" if fidelity is None or fidelity.agreement is None else f"{fidelity.agreement * 100:.2f} %",
            "-" if one.metric is None else f"{one.metric.value:.4f}",
            "kept" if one.within_budget else "-",
        )
        numbers = "".join(f'<td class="n">{text(c)}</td>' for c in cells)
        name = text(one.name + (f": {one.note}" if one.note else ""))
        rows.append(
            f'<tr class="{"chosen" if one.chosen else ""}"><td>{name}</td><td>{text(one.recipe)}</td>{numbers}</tr>'
        )
    return f'<div class="scroll"><table><thead>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
