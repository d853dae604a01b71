"""The base of all reports and their plain (JSON-ready) form."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sized
from enum import Enum
from html import escape
from pathlib import Path
from typing import Any, ClassVar

_LONG = 100  # letters of one value
_FEW = 4  # items that are written out


def brief_lines(report: Any) -> Iterator[tuple[str, str]]:
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
    return "\n".join([type(report).__name__, *(f"  {name}: {value}" for name, value in brief_lines(report))])


def as_html(report: Any) -> str:
    """A table of two columns; every text is escaped, since it may come from a file."""
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in brief_lines(report))
    return f"<table><caption>{escape(type(report).__name__)}</caption>{rows}</table>"


# Of a dataclass field that is not part of the JSON form: arrays and models, for Python only.
NOT_IN_JSON = {"json": False}


@dataclasses.dataclass(frozen=True)
class TensorInfo:
    """Name, dtype and shape of a model input or output; a str dim is symbolic, None is unknown.

    What is not a tensor has "sequence", "map" or "optional" for a dtype, and no shape.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None

    def __str__(self) -> str:
        if self.dtype in ("sequence", "map", "optional"):
            return f"{self.name}: {self.dtype}"
        dims = "?" if self.shape is None else ", ".join("?" if d is None else str(d) for d in self.shape)
        return f"{self.name}: {self.dtype}[{dims}]"


@dataclasses.dataclass(frozen=True, repr=False)
class Report:
    """Base of every report.

    `class CheckReport(Report, kind="check")` names the JSON schema, with `version`: "onnxtool/check/1". A field is
    added freely; removing one or changing its meaning raises `version`.
    """

    kind: ClassVar[str] = "report"
    version: ClassVar[int] = 1

    def __init_subclass__(cls, kind: str = "", version: int = 1) -> None:
        super().__init_subclass__()
        if kind:
            cls.kind, cls.version = kind, version

    @property
    def ok(self) -> bool:
        """True when the verdict is good (exit 0)."""
        return True

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return as_html(self)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON types, with its schema name, tool version and verdict first."""
        from onnxtool import __version__

        head = {
            "schema": f"onnxtool/{self.kind}/{self.version}",
            "tool_version": __version__,
            "ok": self.ok,
        }
        fields: dict[str, Any] = to_plain(self)
        return head | fields


def json_fields(owner: Any) -> tuple[dataclasses.Field[Any], ...]:
    """The fields of a dataclass, or of an instance of one, that the JSON form has."""
    return tuple(f for f in dataclasses.fields(owner) if f.metadata.get("json", True))


def json_names(owner: Any) -> list[str]:
    """What the JSON form has: the fields, and the properties that a class names in `computed`."""
    return [*(f.name for f in json_fields(owner)), *getattr(owner, "computed", ())]


def to_plain(value: Any) -> Any:
    """Turn dataclasses, enums, paths, numpy scalars and tuples into JSON types.

    NaN and infinities, which JSON has no number for, become the strings "NaN", "Infinity" and "-Infinity".
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: to_plain(getattr(value, name)) for name in json_names(value)}
    if isinstance(value, Enum):
        return to_plain(value.value)
    if isinstance(value, Mapping):
        return {str(k): to_plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_plain(v) for v in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if hasattr(value, "item") and not isinstance(value, (str, bool, int, float)):
        return to_plain(value.item() if getattr(value, "ndim", 0) == 0 else value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value
