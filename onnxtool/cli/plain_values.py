"""Values of options that need no library to be understood: texts, paths, numbers, choices, and lists of them.

Typer from 0.29 on hands every value, even one that was not given, to a pydantic adapter of its own. Importing pydantic
and building the adapters took 0.15 of the 0.36 s of processor time that a command on a small file takes in all
(typer 0.29.2). Whatever is not plain, or not right, still goes to Typer, whose messages stay the same. Goes when Typer
imports pydantic only for what needs it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

_INTEGER = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_PATH_CHECKS = ("exists", "writable", "resolve_path", "allow_dash", "path_type")
_OTHER = object()  # stands for: ask Typer


def install() -> None:
    """From now on Typer is asked only about what is not plain; a Typer without adapters is left alone."""
    from typer import core

    parameter: Any = getattr(core, "_TyperParameter", None)
    original = getattr(parameter, "get_runtime_param", None)
    if original is not None and not isinstance(original, _Installed):
        parameter.get_runtime_param = _Installed(original)


class _Installed:
    """In place of the method of Typer's parameters that gives an object with `coerce`."""

    def __init__(self, original: Callable[[Any], Any]) -> None:
        self._original = original

    def __get__(self, parameter: Any, owner: type) -> Callable[[], Any]:
        return lambda: _Coercion(lambda: self._original(parameter))


class _Coercion:
    def __init__(self, typers: Callable[[], Any]) -> None:
        self._typers = typers

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """As Typer's own."""
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        described = param.type_descriptor
        found = _plain(value, described.annotation, described.parameter_info)
        return self._typers().coerce(value, param=param, ctx=ctx) if found is _OTHER else found


def _plain(value: Any, annotation: Any, info: Any) -> Any:
    """The value as its type, or _OTHER."""
    if info.parser is not None:
        return _OTHER
    if get_origin(annotation) is list and isinstance(value, (list, tuple)):
        items = [_plain(item, get_args(annotation)[0], info) for item in value]
        return _OTHER if any(item is _OTHER for item in items) else items
    if annotation is str:
        return value if isinstance(value, str) else _OTHER
    if annotation is bool:
        return value if isinstance(value, bool) else _OTHER
    if annotation is Path:
        checked = any(getattr(info, name, None) for name in _PATH_CHECKS)
        plain = isinstance(value, (str, Path)) and not checked and info.file_okay and info.dir_okay
        return Path(value) if plain else _OTHER
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return next((m for m in annotation if value is m or value == m.value), _OTHER)
    if annotation in (int, float) and not info.clamp:
        return _number(value, annotation, info)
    return _OTHER


def _number(value: Any, annotation: type[int] | type[float], info: Any) -> Any:
    if isinstance(value, str):
        if not (_INTEGER if annotation is int else _NUMBER).fullmatch(value):
            return _OTHER
        value = annotation(value)
    if type(value) is not annotation:
        return _OTHER
    low, high = info.min, info.max
    return value if (low is None or value >= low) and (high is None or value <= high) else _OTHER
