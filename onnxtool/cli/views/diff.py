"""What `diff` says, in the manner of git."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from onnxtool.cli.text import clean, plural
from onnxtool.cli.views.view import Code, Line, Part
from onnxtool.report.diff import Change, DiffReport

_MANY = 40
_KINDS = ("changed", "renamed", "removed", "added")


def diff(report: DiffReport) -> Iterator[Part]:
    """Changes by what they are about; of many nodes the first, all where there is room."""
    yield Code((f"--- {report.a}", f"+++ {report.b}"), "diff")
    for what, group in groupby(report.changes, key=lambda change: change.what):
        changes = list(group)
        counts = ", ".join(f"{n} {kind}" for kind in _KINDS if (n := sum(c.kind == kind for c in changes)))
        head = f"@@ {what if what in ('header', 'metadata') else f'{what}s'}: {counts} @@"
        lines = [line for change in changes for line in _lines(change)]
        shown = [line for change in changes[:_MANY] for line in _lines(change)]
        left = len(changes) - _MANY
        more = [f"  and {left} more (-v)"] if left > 0 else []
        yield Code((head, *shown, *more), "diff", when="brief")
        yield Code((head, *lines), "diff", when="full")
    if report.operators:
        told = ", ".join(f"{name} {a} -> {b}" for name, (a, b) in report.operators.items())
        yield Line(told, "@@ operators @@", "info", whole=True)
    yield Line(plural(len(report.changes), "difference") if report.changes else "no difference")


def _lines(change: Change) -> Sequence[str]:
    if change.kind == "renamed":
        return (f"~ {clean(change.before)} is now {clean(change.after)}",)
    removed = f"- {clean(change.name)}: {clean(change.before, 400)}"
    added = f"+ {clean(change.name)}: {clean(change.after, 400)}"
    return {"removed": (removed,), "added": (added,), "changed": (removed, added)}.get(change.kind, ())
