"""JSON Schema (draft 2020-12) of every report, derived from the dataclasses themselves.

`python -m onnxtool.report.schema docs/schema` writes one file for each report; a test holds them up to date.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import pkgutil
import sys
import types
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, Union

from onnxtool import report as reports
from onnxtool.report.base import Report, json_fields, json_names

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


DIALECT = "https://json-schema.org/draft/2020-12/schema"
# What JSON has no number for; see to_plain.
_NUMBER = {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}
_PLAIN: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    Path: {"type": "string"},
    bytes: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: _NUMBER,
    type(None): {"type": "null"},
    Any: {},
    object: {},
}


def report_classes() -> dict[str, type[Report]]:
    """Every report there is: kind -> class."""
    found: dict[str, type[Report]] = {}
    for module in pkgutil.walk_packages(reports.__path__, f"{reports.__name__}."):
        for item in vars(import_module(module.name)).values():
            if inspect.isclass(item) and issubclass(item, Report) and "kind" in vars(item) and item is not Report:
                found[item.kind] = item
    return dict(sorted(found.items()))


def json_schema(report: type[Report]) -> dict[str, Any]:
    """The schema of what `report(...).to_dict()` gives.

    Fields may be added within a version, so readers must tolerate unknown ones; those listed are always there.
    """
    definitions: dict[str, Any] = {}
    body = _object(report, definitions)
    name = f"onnxtool/{report.kind}/{report.version}"
    head = {"schema": {"const": name}, "tool_version": {"type": "string"}, "ok": {"type": "boolean"}}
    return {
        "$schema": DIALECT,
        "$id": f"urn:{name.replace('/', ':')}",
        "title": report.__name__,
        "description": _first_line(report),
        "type": "object",
        "properties": head | body["properties"],
        "required": [*head, *body["required"]],
        "$defs": dict(sorted(definitions.items())),
    }


def _object(owner: type, definitions: dict[str, Any]) -> dict[str, Any]:
    hints, names = typing.get_type_hints(owner), json_names(owner)
    hints |= {name: typing.get_type_hints(vars(owner)[name].fget)["return"] for name in names if name not in hints}
    return {
        "type": "object",
        "description": _first_line(owner),
        "properties": {name: _schema(hints[name], definitions) for name in names},
        "required": names,
    }


def _schema(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if hint in _PLAIN:
        return dict(_PLAIN[hint])
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(a, definitions) for a in arguments]}
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if inspect.isclass(hint) and issubclass(hint, Enum):
        return {"enum": [item.value for item in hint]}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if hint.__name__ not in definitions:
            definitions[hint.__name__] = {}  # taken first: a report may nest in itself
            definitions[hint.__name__] = _object(hint, definitions)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    container = origin or hint
    if inspect.isclass(container) and issubclass(container, Mapping):
        value = _schema(arguments[1], definitions) if arguments else {}
        return {"type": "object", "additionalProperties": value}
    if inspect.isclass(container) and issubclass(container, (Sequence, set, frozenset)):
        return _array(arguments, definitions)
    raise TypeError(f"no JSON schema for {hint!r}")


def _array(arguments: tuple[Any, ...], definitions: dict[str, Any]) -> dict[str, Any]:
    if arguments and Ellipsis not in arguments and len(arguments) > 1:
        items = [_schema(a, definitions) for a in arguments]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    return {"type": "array", "items": _schema(arguments[0], definitions) if arguments else {}}


def _first_line(owner: type) -> str:
    return (owner.__doc__ or "").strip().splitlines()[0] if owner.__doc__ else ""


def write(folder: Path) -> None:
    """Write `<kind>.json` for every report into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, report in report_classes().items():
        (folder / f"{kind}.json").write_text(json.dumps(json_schema(report), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
