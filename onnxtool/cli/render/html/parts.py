"""What all pages are made of: tables, and texts made safe."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from onnxtool.cli.render.text import clean


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], right: int = 0) -> str:
    """A table whose last `right` columns hold numbers."""
    width = len(columns)
    head = "".join(f"<th{_align(i, width, right)}>{text(c)}</th>" for i, c in enumerate(columns))
    lines = []
    for row in rows:
        cells = "".join(f"<td{_align(i, len(row), right)}{_colour(c)}>{_broken(c)}</td>" for i, c in enumerate(row))
        lines.append(f"<tr>{cells}</tr>")
    top = f"<thead><tr>{head}</tr></thead>" if columns else ""
    return f'<div class="scroll"><table>{top}<tbody>{"".join(lines)}</tbody></table></div>'


def _broken(cell: str) -> str:
    """A cell that may be broken where a path or a name has a joint."""
    return re.sub("([/_])", r"\1<wbr>", text(cell))


def _align(index: int, width: int, right: int) -> str:
    return ' class="n"' if index >= width - right else ""


def _colour(text: str) -> str:
    good, bad = ("passed", "equal", "faster"), ("failed", "differs", "error", "slower")
    name = "good" if text in good else "bad" if text in bad else "warn" if text in ("warning", "warned") else ""
    return f' class="{name}"' if name else ""


def text(value: object) -> str:
    """A value from a file or a report, safe to stand in the page."""
    return escape(clean(value, 500))
