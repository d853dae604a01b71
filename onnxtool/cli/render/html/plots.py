"""Plots as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from onnxtool.cli.render.text import clean, duration

_WIDTH = 800


@dataclass(frozen=True)
class Bar:
    """One bar: what it stands for, how long it is, and what is written at its end."""

    label: str
    value: float
    text: str


def bars(items: Sequence[Bar]) -> str:
    """Lying bars from zero, with their names on the left and their values at the end."""
    longest = max((i.value for i in items), default=0) or 1
    left, row = 260, 22
    parts = []
    for index, item in enumerate(items):
        y = index * row
        width = (_WIDTH - left - 90) * item.value / longest
        parts.append(f'<text x="{left - 8}" y="{y + 15}" text-anchor="end">{_short(item.label)}</text>')
        parts.append(f'<rect class="bar" x="{left}" y="{y + 3}" width="{width:.1f}" height="{row - 6}"/>')
        parts.append(f'<text x="{left + width + 6:.1f}" y="{y + 15}">{escape(clean(item.text))}</text>')
    return _svg(row * len(items) + 4, parts)


@dataclass(frozen=True)
class Pair:
    """Two bars for one thing: how it was and how it is."""

    label: str
    before: float
    after: float


def pairs(items: Sequence[Pair]) -> str:
    """For each thing a pale bar and below it a full one, from zero, with their numbers."""
    left, row, thick = 260, 30, 11
    longest = max((max(i.before, i.after) for i in items), default=0) or 1
    parts = []
    for index, item in enumerate(items):
        y = index * row
        parts.append(f'<text x="{left - 8}" y="{y + 18}" text-anchor="end">{_short(item.label)}</text>')
        for kind, value, top in (("bar pale", item.before, y + 2), ("bar", item.after, y + 2 + thick)):
            width = (_WIDTH - left - 90) * value / longest
            parts.append(f'<rect class="{kind}" x="{left}" y="{top}" width="{width:.1f}" height="{thick - 1}"/>')
            parts.append(f'<text class="small" x="{left + width + 6:.1f}" y="{top + 9}">{value:g}</text>')
    return _svg(row * len(items) + 4, parts)


def histogram(items: Sequence[Bar], across: str, up: str) -> str:
    """Upright bars from zero, by the logarithm of their values; `across` and `up` say what the axes are."""
    longest = max((i.value for i in items), default=0) or 1
    height, bottom = 160, 40
    step = _WIDTH / max(len(items), 1)
    parts = [f'<line class="grid" x1="0" x2="{_WIDTH}" y1="{height}" y2="{height}"/>']
    for index, item in enumerate(items):
        # Logarithmic: the few elements with large errors are what one looks for.
        tall = (height - 24) * (math.log10(item.value + 1) / math.log10(longest + 1))
        x = index * step
        title = f"<title>{escape(item.label)}: {escape(item.text)}</title>"
        parts.append(
            f'<rect class="bar" x="{x + 2:.1f}" y="{height - tall:.1f}" width="{step - 4:.1f}" height="{tall:.1f}">'
            f"{title}</rect>"
        )
        if item.value:
            parts.append(
                f'<text x="{x + step / 2:.1f}" y="{height - tall - 4:.1f}" text-anchor="middle">{item.text}</text>'
            )
        parts.append(f'<text x="{x + step / 2:.1f}" y="{height + 15}" text-anchor="middle">{escape(item.label)}</text>')
    parts.append(f'<text x="{_WIDTH}" y="{height + 34}" text-anchor="end">{escape(across)} &rarr;</text>')
    parts.append(f'<text x="0" y="12">&uarr; {escape(up)}</text>')
    return _svg(height + bottom, parts)


def depth_plot(points: Sequence[tuple[int, float, bool, str]]) -> str:
    """Relative error over depth, logarithmic; (depth, error, agrees, what it is) for each tensor."""
    height, left, bottom = 220, 50, 24
    floor, roof = -9.0, 1.0
    deepest = max((d for d, *_ in points), default=1) or 1
    parts = []
    for mark in range(int(floor), int(roof) + 1, 2):
        y = _level(mark, floor, roof, height)
        parts.append(f'<line class="grid" x1="{left}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        label = "0" if mark == floor else f"1e{mark}"
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for depth, error, agrees, text in points:
        x = left + 8 + (_WIDTH - left - 16) * depth / deepest
        power = floor if error <= 0 else roof if not math.isfinite(error) else math.log10(error)
        y = _level(min(max(power, floor), roof), floor, roof, height)
        kind = "dot-good" if agrees else "dot-bad"
        parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{_title(text)}</title></circle>')
    parts.append(f'<text x="{_WIDTH}" y="{height + 18}" text-anchor="end">depth &rarr;</text>')
    parts.append(f'<text x="{left}" y="{height + 18}">relative error; red is outside tolerance</text>')
    return _svg(height + bottom, parts)


def _level(power: float, floor: float, roof: float, height: float) -> float:
    return 10 + (height - 20) * (1 - (power - floor) / (roof - floor))


def box_plot(items: Sequence[tuple[str, Sequence[float]]]) -> str:
    """Spread of latencies: box from 25 % to 75 %, line at the median, whiskers from 5 % to 95 %; 21 quantiles each."""
    left, row = 260, 30
    longest = max((q[19] for _, q in items), default=0.0) or 1.0
    scale = (_WIDTH - left - 20) / longest
    parts = []
    for index, (name, q) in enumerate(items):
        y = index * row + row / 2
        low, quarter, middle, three, high = (left + q[i] * scale for i in (1, 5, 10, 15, 19))
        parts.append(f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{_short(name)}</text>')
        parts.append(f'<line class="whisker" x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}"/>')
        title = f"<title>median {duration(q[10])}, 5 % {duration(q[1])}, 95 % {duration(q[19])}</title>"
        width = max(three - quarter, 1)
        parts.append(f'<rect class="box" x="{quarter:.1f}" y="{y - 8}" width="{width:.1f}" height="16">{title}</rect>')
        parts.append(f'<line class="whisker" x1="{middle:.1f}" x2="{middle:.1f}" y1="{y - 10}" y2="{y + 10}"/>')
    bottom = len(items) * row
    parts.append(f'<line class="grid" x1="{left}" x2="{_WIDTH - 20}" y1="{bottom}" y2="{bottom}"/>')
    parts.append(f'<text x="{left}" y="{bottom + 15}">0</text>')
    parts.append(f'<text x="{(left + _WIDTH) / 2}" y="{bottom + 15}" text-anchor="middle">latency &rarr;</text>')
    parts.append(f'<text x="{_WIDTH - 20}" y="{bottom + 15}" text-anchor="end">{duration(longest)}</text>')
    return _svg(bottom + 22, parts)


def _svg(height: float, parts: Sequence[str]) -> str:
    picture = f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img">{"".join(parts)}</svg>'
    return f'<div class="picture">{picture}</div>'


def _short(text: str) -> str:
    """The end of a long name: paths differ there."""
    shown = clean(text, 500)
    return escape(shown if len(shown) <= 36 else "…" + shown[-35:])


def _title(text: str) -> str:
    return escape(clean(text, 200))
