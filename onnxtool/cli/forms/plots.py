"""Plots as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import singledispatch
from html import escape

from onnxtool.cli.text import clean, duration
from onnxtool.cli.views.view import Bars, Boxes, Depth, Histogram, Pairs, Plot, Scatter

_WIDTH = 800
_LEFT = 260  # where bars begin, right of their names


@singledispatch
def draw(plot: Plot) -> str:
    """The picture; empty where there is nothing to draw."""
    raise NotImplementedError(f"no picture of {type(plot).__name__}")


@draw.register
def _bars(plot: Bars) -> str:
    longest = max((value for _, value, _ in plot.items), default=0) or 1
    row, parts = 22, []
    for index, (label, value, text) in enumerate(plot.items):
        y = index * row
        width = (_WIDTH - _LEFT - 90) * value / longest
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 15}" text-anchor="end">{_short(label)}</text>')
        parts.append(f'<rect class="bar" x="{_LEFT}" y="{y + 3}" width="{width:.1f}" height="{row - 6}"/>')
        parts.append(f'<text x="{_LEFT + width + 6:.1f}" y="{y + 15}">{escape(clean(text))}</text>')
    return _svg(row * len(plot.items) + 4, parts)


@draw.register
def _pairs(plot: Pairs) -> str:
    """For each thing a pale bar and below it a full one, from zero, with their numbers."""
    left, row, thick = _LEFT, 30, 11
    items = plot.items[: plot.few]
    longest = max((max(before, after) for _, before, after in items), default=0) or 1
    parts = []
    for index, (label, before, after) in enumerate(items):
        y = index * row
        parts.append(f'<text x="{left - 8}" y="{y + 18}" text-anchor="end">{_short(label)}</text>')
        for kind, value, top in (("bar pale", before, y + 2), ("bar", after, y + 2 + thick)):
            width = (_WIDTH - left - 90) * value / longest
            parts.append(f'<rect class="{kind}" x="{left}" y="{top}" width="{width:.1f}" height="{thick - 1}"/>')
            parts.append(f'<text class="small" x="{left + width + 6:.1f}" y="{top + 9}">{value:g}</text>')
    key = '<p><span class="key pale"></span> before &nbsp; <span class="key"></span> after</p>'
    rest = len(plot.items) - len(items)
    return key + _svg(row * len(items) + 4, parts) + (f'<p class="dim">and {rest} more</p>' if rest else "")


@draw.register
def _histogram(plot: Histogram) -> str:
    """Logarithmic upwards: the few elements with large errors are what one looks for."""
    highest = max((count for _, count in plot.items), default=0) or 1
    height, bottom = 160, 40
    step = _WIDTH / max(len(plot.items), 1)
    parts = [f'<line class="grid" x1="0" x2="{_WIDTH}" y1="{height}" y2="{height}"/>']
    for index, (label, count) in enumerate(plot.items):
        tall = (height - 24) * (math.log10(count + 1) / math.log10(highest + 1))
        x, middle = index * step, (index + 0.5) * step
        parts.append(
            f'<rect class="bar" x="{x + 2:.1f}" y="{height - tall:.1f}" width="{step - 4:.1f}" height="{tall:.1f}">'
            f"<title>{escape(label)}: {count}</title></rect>"
        )
        if count:
            parts.append(f'<text x="{middle:.1f}" y="{height - tall - 4:.1f}" text-anchor="middle">{count}</text>')
        parts.append(f'<text x="{middle:.1f}" y="{height + 15}" text-anchor="middle">{escape(label)}</text>')
    parts.append(f'<text x="{_WIDTH}" y="{height + 34}" text-anchor="end">{escape(plot.across)} &rarr;</text>')
    parts.append(f'<text x="0" y="12">&uarr; {escape(plot.up)}</text>')
    return _svg(height + bottom, parts)


@draw.register
def _depth(plot: Depth) -> str:
    """Relative error over depth, logarithmic."""
    height, left, bottom = 220, 50, 24
    floor, roof = -9.0, 1.0
    deepest = max((d for d, *_ in plot.points), default=1) or 1
    parts = []
    for mark in range(int(floor), int(roof) + 1, 2):
        y = _level(mark, floor, roof, height)
        parts.append(f'<line class="grid" x1="{left}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        label = "0" if mark == floor else f"1e{mark}"
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for depth, error, agrees, text in plot.points:
        x = left + 8 + (_WIDTH - left - 16) * depth / deepest
        power = floor if error <= 0 else roof if not math.isfinite(error) else math.log10(error)
        y = _level(min(max(power, floor), roof), floor, roof, height)
        kind = "dot-good" if agrees else "dot-bad"
        parts.append(
            f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{escape(clean(text))}</title></circle>'
        )
    parts.append(f'<text x="{_WIDTH}" y="{height + 18}" text-anchor="end">depth &rarr;</text>')
    parts.append(f'<text x="{left}" y="{height + 18}">relative error; red is outside tolerance</text>')
    return _svg(height + bottom, parts)


def _level(power: float, floor: float, roof: float, height: float) -> float:
    return 10 + (height - 20) * (1 - (power - floor) / (roof - floor))


@draw.register
def _boxes(plot: Boxes) -> str:
    """Box from 25 % to 75 %, line at the median, whiskers from 5 % to 95 %."""
    if not plot.items:
        return ""
    left, row = _LEFT, 30
    longest = max(q[19] for _, q in plot.items) or 1.0
    scale = (_WIDTH - left - 20) / longest
    parts = []
    for index, (name, q) in enumerate(plot.items):
        y = index * row + row / 2
        low, quarter, middle, three, high = (left + q[i] * scale for i in (1, 5, 10, 15, 19))
        parts.append(f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{_short(name)}</text>')
        parts.append(f'<line class="whisker" x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}"/>')
        title = f"<title>median {duration(q[10])}, 5 % {duration(q[1])}, 95 % {duration(q[19])}</title>"
        width = max(three - quarter, 1)
        parts.append(f'<rect class="box" x="{quarter:.1f}" y="{y - 8}" width="{width:.1f}" height="16">{title}</rect>')
        parts.append(f'<line class="whisker" x1="{middle:.1f}" x2="{middle:.1f}" y1="{y - 10}" y2="{y + 10}"/>')
    bottom = len(plot.items) * row
    parts.append(f'<line class="grid" x1="{left}" x2="{_WIDTH - 20}" y1="{bottom}" y2="{bottom}"/>')
    parts.append(f'<text x="{left}" y="{bottom + 15}">0</text>')
    parts.append(f'<text x="{(left + _WIDTH) / 2}" y="{bottom + 15}" text-anchor="middle">latency &rarr;</text>')
    parts.append(f'<text x="{_WIDTH - 20}" y="{bottom + 15}" text-anchor="end">{duration(longest)}</text>')
    return _svg(bottom + 22, parts)


@draw.register
def _scatter(plot: Scatter) -> str:
    """Latency from zero; upwards the range of the points. The chosen point is drawn last, above all others."""
    if not plot.points:
        return ""
    height, left, bottom, top = 400, 60, 44, 16
    right = max([1.0, *(p.x for p in plot.points)]) * 1.05
    low, high = min(p.y for p in plot.points), max(p.y for p in plot.points)
    margin = (high - low) * 0.08 or abs(high) * 0.08 or 1.0
    low, high = low - margin, high + margin

    def x_of(value: float) -> float:
        return left + value / right * (_WIDTH - left - 16)

    def y_of(value: float) -> float:
        return height - bottom - (value - low) / (high - low) * (height - bottom - top)

    parts = []
    for y in _ticks(low, high):
        parts.append(f'<line class="grid" x1="{left}" x2="{_WIDTH - 16}" y1="{y_of(y):.1f}" y2="{y_of(y):.1f}"/>')
        parts.append(f'<text x="{left - 8}" y="{y_of(y) + 4:.1f}" text-anchor="end">{y:g}</text>')
    for x in _ticks(0, right):
        parts.append(f'<text x="{x_of(x):.1f}" y="{height - bottom + 18}" text-anchor="middle">{x:g}</text>')
    parts.append(f'<line class="float" x1="{x_of(1):.1f}" x2="{x_of(1):.1f}" y1="{top}" y2="{height - bottom}"/>')
    across = "latency against float (1 = dashed)"
    parts.append(f'<text x="{(_WIDTH + left) / 2}" y="{height - 8}" text-anchor="middle">{across}</text>')
    turned = f'text-anchor="middle" transform="rotate(-90 14 {height / 2})"'
    parts.append(f'<text x="14" y="{height / 2}" {turned}>{escape(clean(plot.up))}</text>')
    for point in sorted(plot.points, key=lambda p: p.kind == "best"):
        place = f'cx="{x_of(point.x):.1f}" cy="{y_of(point.y):.1f}" r="{8 if point.kind == "best" else 5}"'
        parts.append(f'<circle class="{point.kind}" {place}><title>{escape(clean(point.label))}</title></circle>')
    dot = '<svg class="dot" viewBox="0 0 16 16"><circle class="{}" cx="8" cy="8" r="6"/></svg>'
    legend = " &nbsp; ".join(f"{dot.format(kind)} {escape(words)}" for kind, words in plot.legend)
    return _svg(height, parts) + f"<p>{legend}</p>"


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers from `low` to `high`."""
    rough = max(high - low, 1e-9) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough)
    return [round(i * step, 10) for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _svg(height: float, parts: Sequence[str]) -> str:
    picture = f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img">{"".join(parts)}</svg>'
    return f'<div class="picture">{picture}</div>'


def _short(text: str) -> str:
    """The end of a long name: paths differ there."""
    shown = clean(text, 500)
    return escape(shown if len(shown) <= 36 else "…" + shown[-35:])
