"""A report in a few lines, for a Python prompt, and as a small table, for a notebook."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sized
from html import escape
from typing import Any

_LONG = 100  # letters of one value
_FEW = 4  # items that are written out


def lines(report: Any) -> Iterator[tuple[str, str]]:
    """Field and value of what fits in one line each: verdict first, then texts, numbers, and how many of the rest."""
    yield "ok", str(report.ok)
    for field in dataclasses.fields(report):
        value = getattr(report, field.name)
        if not field.repr or value is None or value == "" or (isinstance(value, Sized) and not len(value)):
            continue
        yield field.name, _short(value)


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return f"{len(value)} items" if len(value) > _FEW else ", ".join(f"{k}: {_short(v)}" for k, v in value.items())
    if isinstance(value, (tuple, list)):
        mute = any(dataclasses.is_dataclass(v) and "__str__" not in vars(type(v)) for v in value)
        return f"{len(value)} items" if mute or len(value) > _FEW else ", ".join(_short(v) for v in value)
    if dataclasses.is_dataclass(value):
        verdict = getattr(value, "ok", None)
        text = type(value).__name__ if verdict is None else f"{type(value).__name__}, {'ok' if verdict else 'not ok'}"
        return text if "__str__" not in vars(type(value)) else str(value)
    text = " ".join(str(value).split())
    return text if len(text) <= _LONG else text[: _LONG - 1] + "…"


def as_text(report: Any) -> str:
    """A few lines: the class, then a field a line."""
    return "\n".join([type(report).__name__, *(f"  {name}: {value}" for name, value in lines(report))])


def as_html(report: Any) -> str:
    """A table of two columns; every text is escaped, since it may come from a file."""
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in lines(report))
    return f"<table><caption>{escape(type(report).__name__)}</caption>{rows}</table>"
