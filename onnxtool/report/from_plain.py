"""Reports from their JSON form: what `to_dict` gave becomes the dataclass again."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Union

from onnxtool.report.base import Report, json_fields
from onnxtool.report.schema import report_classes

_FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def report_from_plain(plain: Mapping[str, Any]) -> Report:
    """The report that a JSON form is of; fields that this version does not know are left out.

    Raises:
        ValueError: it is not a report, or one of another version.
    """
    kind, _, version = str(plain.get("schema", "")).removeprefix("onnxtool/").partition("/")
    found = report_classes().get(kind)
    if found is None or version != str(found.version):
        raise ValueError(f"{plain.get('schema')!r} is not a report of this version")
    report = _made(found, plain)
    assert isinstance(report, Report)
    return report


def _made(hint: Any, value: Any) -> Any:
    """`value` as what a type hint says."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return _made(_fitting([a for a in arguments if a is not type(None)], value), value)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        hints = typing.get_type_hints(hint)
        return hint(**{f.name: _made(hints[f.name], value[f.name]) for f in json_fields(hint) if f.name in value})
    if inspect.isclass(hint) and issubclass(hint, Enum):
        return hint(value)
    if hint is float:
        return _FLOATS[value] if isinstance(value, str) else float(value)
    if hint is Path:
        return Path(value)
    container = origin or hint
    if inspect.isclass(container) and issubclass(container, Mapping):
        return {k: _made(arguments[1], v) for k, v in value.items()} if arguments else dict(value)
    if inspect.isclass(container) and issubclass(container, Sequence) and container is not str:
        if container is tuple and arguments and Ellipsis not in arguments:
            return tuple(_made(a, v) for a, v in zip(arguments, value, strict=True))
        return tuple(_made(arguments[0], v) for v in value) if arguments else tuple(value)
    return value


def _fitting(hints: Sequence[Any], value: Any) -> Any:
    """Of several types the one that a value in JSON is of."""
    for hint in hints:
        plain = typing.get_origin(hint) or hint
        if plain in (str, int, bool) and type(value) is plain:
            return hint
        if plain is float and (isinstance(value, (int, float)) or value in _FLOATS):
            return hint
    return hints[0]
