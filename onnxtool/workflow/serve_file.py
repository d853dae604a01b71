"""Reading `serve.toml`: what a server's command line says, and its models with options of their own.

`python -m onnxtool.workflow.serve_file docs/serve.schema.json` writes its JSON schema.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

from onnxtool.errors import UsageError
from onnxtool.options.option import Option, options_of
from onnxtool.options.serve import OF_MODEL, ServeCommand
from onnxtool.options.shared import Shown
from onnxtool.words import read_words
from onnxtool.workflow.file import read_toml
from onnxtool.workflow.file_schema import Key, check_table, object_schema

_SHOWN = {field.name for field in fields(Shown)}
_OPTIONS = {name: o for name, o in options_of(ServeCommand).items() if name not in _SHOWN and not o.argument}
_PATH = Key("text", "An .onnx file, a bundle, or a folder with 1/model.onnx; relative to this file.")
_MODELS = Key("table", "Models by name; NAME:VERSION for a version.")


def server_keys() -> dict[str, Key]:
    """What the file may hold."""
    return {**_keys(_OPTIONS), "models": _MODELS}


def serve_model_keys() -> dict[str, Key]:
    """What a model's table may hold."""
    return {"path": _PATH, **_keys(OF_MODEL)}


def serve_schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of the file, for editors."""
    model = {**object_schema(serve_model_keys()), "required": ["path"]}
    nested = {"models": {"type": "object", "additionalProperties": model}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:onnxtool:serve.toml:1",
        "title": "serve.toml",
        **object_schema(server_keys(), nested),
        "required": ["models"],
    }


def read_serve_file(path: Path, given: ServeCommand) -> tuple[ServeCommand, dict[str, ServeCommand]]:
    """The options of a server, and those of each model, by NAME=PATH.

    Args:
        path: of the file.
        given: on the command line, which says what the file does not.

    Raises:
        InputError: it cannot be read.
        UsageError: an unknown key, a value that the option does not have, or no model.
    """
    table = read_toml(path, "")
    check_table(path.name, table, server_keys())
    models = table.pop("models", {})
    if not models:
        raise UsageError(f"{path.name}: there is no model in it; write a table [models.NAME].")
    defaults = {f.name: f.default for f in fields(ServeCommand) if f.default is not MISSING}
    asked = {n: getattr(given, n) for n, default in defaults.items() if getattr(given, n) != default}
    server = replace(given, **_values(path, path.name, table) | asked)
    found = {}
    for name, own in models.items():
        where = f"{path.name}: models.{name}"
        check_table(where, own, serve_model_keys())
        if "path" not in own:
            raise UsageError(f"{where}: has no path.")
        place = path.parent / own.pop("path")
        found[f"{name}={place}"] = replace(server, **_values(path, where, own))
    return replace(server, models=tuple(found)), found


def _keys(names: Collection[str]) -> dict[str, Key]:
    chosen = {o.word: o for name, o in _OPTIONS.items() if name in names}
    return {word: Key(option.file_type, option.help, option.choices) for word, option in chosen.items()}


def _values(path: Path, where: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """Values of fields, from what stands in a table."""
    by_word = {option.word: name for name, option in _OPTIONS.items()}
    written = {by_word[word]: value for word, value in table.items()}
    written = {name: Path(value) if _OPTIONS[name].kind == "path" else value for name, value in written.items()}
    for name, value in written.items():
        _verify_limits(f"{where}.{_OPTIONS[name].word}", _OPTIONS[name], value)
    read = read_words(ServeCommand, written | {"models": ()}, dashes=f"{where}: ")
    found = {name: getattr(read, name) for name in written}
    return {name: _beside(path.parent, value) for name, value in found.items()}


def _beside(folder: Path, value: Any) -> Any:
    """Paths are relative to the file; of several words only those that name a file there are paths."""
    if isinstance(value, tuple):
        return tuple(_beside(folder, v) if (folder / str(v)).exists() else v for v in value)
    return folder / value if isinstance(value, Path) else value


def _verify_limits(where: str, option: Option, value: Any) -> None:
    if isinstance(value, (int, float)) and not (option.low or 0) <= value <= (option.high or float("inf")):
        most = f" to {option.high:g}" if option.high is not None else " up"
        raise UsageError(f"{where} {value}: must be from {option.low or 0:g}{most}.")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(serve_schema(), indent=2) + "\n", encoding="utf-8")
