"""What each report says to people, described once.

A function for each kind of report yields the parts of its `View`, the verdict first.
"""

from __future__ import annotations

from importlib import import_module

from onnxtool.cli.views.view import Facts, Verdict, View
from onnxtool.report.base import Report, brief_lines

# Module -> the kinds of reports that it has a function for, of the same name.
_MODULES = {
    "bench": ("bench", "bench_matrix", "endpoint_bench", "placement"),
    "build": ("build", "build_history", "cache", "init"),
    "bundle": ("bundle", "bundle_bench", "bundle_compare", "bundle_inspect", "bundle_quantize", "generate"),
    "certificate": ("certificate",),
    "check": ("check", "checks", "rules"),
    "compare": ("compare",),
    "convert": ("convert",),
    "diff": ("diff",),
    "doctor": ("doctor",),
    "edit": ("edit", "operations"),
    "inspect": ("inspect",),
    "optimize": ("optimize", "passes"),
    "quantize": ("quantize",),
    "quickstart": ("quickstart",),
    "run": ("run",),
    "serving": ("package", "serve", "view"),
    "verify": ("verify",),
}
_KINDS = {kind: module for module, kinds in _MODULES.items() for kind in kinds}


def view_of(report: Report) -> View:
    """What a report says; of a kind from another package, its fields."""
    if report.kind not in _KINDS:
        return View(report.ok, Verdict(""), (Facts(tuple(brief_lines(report))),))
    module = import_module(f"onnxtool.cli.views.{_KINDS[report.kind]}")
    parts = tuple(getattr(module, report.kind)(report))
    verdict = next((part for part in parts if isinstance(part, Verdict)), Verdict(""))
    return View(report.ok, verdict, tuple(part for part in parts if part is not verdict))
