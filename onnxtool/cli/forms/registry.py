"""The output forms that go to files: the built-in ones, and those of other packages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from onnxtool.errors import UsageError
from onnxtool.installed_extensions import installed_extensions

ENTRY_POINTS = "onnxtool.report_formats"
BUILT_IN = ("html", "junit", "markdown", "sarif")

Renderer = Callable[[Any], str]


def find_renderer(name: str) -> Renderer:
    """The function of a form: a `Report` in, the text of the file out.

    Raises:
        UsageError: there is no form of that name.
    """
    if name in BUILT_IN:
        built_in: Renderer = import_module(f"onnxtool.cli.forms.{name}").render
        return built_in
    others = {extension.name: extension for extension in installed_extensions(ENTRY_POINTS)}
    if name not in others:
        raise UsageError(f"--report {name}: choose one of {', '.join(sorted({*BUILT_IN, *others}))}.")
    renderer: Renderer = others[name].load()
    return renderer


def parse_reports(texts: Iterable[str] | None) -> dict[str, Path]:
    """Parse "FORMAT=FILE" into a file for each form.

    Raises:
        UsageError: another way of writing it, or a form that nobody has.
    """
    found = {}
    for text in texts or ():
        name, equals, path = text.partition("=")
        if not equals or not name or not path:
            raise UsageError(f"--report {text}: write FORMAT=FILE, such as html=report.html.")
        find_renderer(name)
        found[name] = Path(path)
    return found
