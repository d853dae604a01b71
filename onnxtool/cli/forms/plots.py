"""Plots as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import singledispatch
from html import escape

from onnxtool.cli.text import clean, duration
from onnxtool.cli.views.view import Bars, Boxes, HistogramPlot, Plot, Scatter

_WIDTH = 800
_LEFT = 260  # where bars begin, right of their names


@singledispatch
def draw(plot: Plot) -> str:
    """The picture; empty where there is nothing to draw."""
    raise NotImplementedError(f"no picture of {type(plot).__name__}")


@draw.register
def _bars(plot: Bars) -> str:
    items = plot.items[: plot.few]
    longest = max((*plot.before, *(value for _, value, _ in plot.items)), default=0) or 1
    row, thick = (34, 13) if plot.before else (22, 16)
    parts = []
    for index, (label, value, text) in enumerate(items):
        bars = [("bar", value, text)]
        if plot.before:
            bars.insert(0, ("bar pale", plot.before[index], f"{plot.before[index]:g}"))
        parts.append(_words(_LEFT - 8, index * row + row / 2 + 4, label, "end"))
        for position, (kind, length, words) in enumerate(bars):
            top, width = index * row + 3 + position * thick, (_WIDTH - _LEFT - 90) * length / longest
            parts.append(f'<rect class="{kind}" x="{_LEFT}" y="{top}" width="{width:.1f}" height="{thick - 1}"/>')
            parts.append(_words(_LEFT + width + 6, top + thick - 3, words))
    key = '<p><span class="key pale"></span> before &nbsp; <span class="key"></span> after</p>' if plot.before else ""
    rest = len(plot.items) - len(items)
    return key + _svg(row * len(items) + 4, parts) + (f'<p class="dim">and {rest} more</p>' if rest else "")


@draw.register
def _histogram(plot: HistogramPlot) -> str:
    """Logarithmic upwards: the few elements with large errors are what one looks for."""
    highest = max((count for _, count in plot.items), default=0) or 1
    height, step = 160, _WIDTH / max(len(plot.items), 1)
    parts = [_line(0, height, _WIDTH, height)]
    for index, (label, count) in enumerate(plot.items):
        tall = (height - 24) * (math.log10(count + 1) / math.log10(highest + 1))
        place = f'x="{index * step + 2:.1f}" y="{height - tall:.1f}" width="{step - 4:.1f}" height="{tall:.1f}"'
        parts.append(f'<rect class="bar" {place}/>')
        middle = (index + 0.5) * step
        parts.append(_words(middle, height + 15, label, "middle"))
        if count:
            parts.append(_words(middle, height - tall - 4, count, "middle"))
    parts.append(_words(_WIDTH, height + 34, f"{plot.across} →", "end"))
    parts.append(_words(0, 12, f"↑ {plot.up}"))
    return _svg(height + 40, parts)


@draw.register
def _boxes(plot: Boxes) -> str:
    """Box from 25 % to 75 %, line at the median, whiskers from 5 % to 95 %."""
    if not plot.items:
        return ""
    row, longest = 30, max(q[19] for _, q in plot.items) or 1.0
    scale = (_WIDTH - _LEFT - 20) / longest
    parts = []
    for index, (name, q) in enumerate(plot.items):
        y = index * row + row / 2
        low, quarter, middle, three, high = (_LEFT + q[i] * scale for i in (1, 5, 10, 15, 19))
        parts.append(_words(_LEFT - 8, y + 4, name, "end"))
        parts.append(_line(low, y, high, y, "whisker"))
        title = f"<title>median {duration(q[10])}, 5 % {duration(q[1])}, 95 % {duration(q[19])}</title>"
        width = max(three - quarter, 1)
        parts.append(f'<rect class="box" x="{quarter:.1f}" y="{y - 8}" width="{width:.1f}" height="16">{title}</rect>')
        parts.append(_line(middle, y - 10, middle, y + 10, "whisker"))
    bottom = len(plot.items) * row
    parts.append(_line(_LEFT, bottom, _WIDTH - 20, bottom))
    parts.append(_words(_LEFT, bottom + 15, "0"))
    parts.append(_words((_LEFT + _WIDTH) / 2, bottom + 15, "latency →", "middle"))
    parts.append(_words(_WIDTH - 20, bottom + 15, duration(longest), "end"))
    return _svg(bottom + 22, parts)


@draw.register
def _scatter(plot: Scatter) -> str:
    """From zero to the right, upwards the range of the points. The chosen point is drawn last, above all others."""
    if not plot.points:
        return ""
    height, left, floor, top = 320, 60, 276, 16
    right = max(plot.mark or 0, *(p.x for p in plot.points), 1e-9) * 1.05
    low, high = min(p.y for p in plot.points), max(p.y for p in plot.points)
    margin = (high - low) * 0.08 or abs(high) * 0.08 or 1.0
    low, high = low - margin, high + margin

    def x_of(value: float) -> float:
        return left + value / right * (_WIDTH - left - 16)

    def y_of(value: float) -> float:
        return floor - (value - low) / (high - low) * (floor - top)

    parts = []
    for y in _ticks(low, high):
        parts.append(_line(left, y_of(y), _WIDTH - 16, y_of(y)))
        parts.append(_words(left - 8, y_of(y) + 4, f"1e{y:g}" if plot.powers else f"{y:g}", "end"))
    parts += [_words(x_of(x), floor + 18, f"{x:g}", "middle") for x in _ticks(0, right)]
    if plot.mark is not None:
        parts.append(_line(x_of(plot.mark), top, x_of(plot.mark), floor, "float"))
    parts.append(_words((_WIDTH + left) / 2, height - 8, plot.across, "middle"))
    parts.append(f'<g transform="rotate(-90 14 {height / 2})">{_words(14, height / 2, plot.up, "middle")}</g>')
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


def _words(x: float, y: float, text: object, anchor: str = "start") -> str:
    """A text made safe; of a long one the end: paths differ there."""
    shown = clean(text, 500)
    shown = shown if len(shown) <= 36 or anchor != "end" else "…" + shown[-35:]
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(shown)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str = "grid") -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}"/>'


def _svg(height: float, parts: Sequence[str]) -> str:
    picture = f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img">{"".join(parts)}</svg>'
    return f'<div class="picture">{picture}</div>'
