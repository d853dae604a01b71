"""Reading `onnxtool.toml`: includes, environment variables, what is to be served, and everything that can be wrong in it."""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any

from onnxtool.errors import InputError, UsageError
from onnxtool.options.option import Option, options_of
from onnxtool.options.serve import OF_MODEL, ServeCommand
from onnxtool.options.shared import Shown
from onnxtool.words import read_words
from onnxtool.workflow.file_schema import (
    DATA_SET,
    SETTINGS,
    TOP,
    Key,
    check_table,
    defaults_keys,
    model_keys,
    object_schema,
    step_keys,
)
from onnxtool.workflow.steps import STEPS

FILE_NAME = "onnxtool.toml"
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
_NAME = re.compile(r"[\w.+-]+")


@dataclass(frozen=True)
class WorkflowFile:
    """A file that was read and holds nothing unknown.

    Attributes:
        path: the file.
        settings, defaults, data, models: its tables, those of included files merged in.
    """

    path: Path
    settings: Mapping[str, Any]
    defaults: Mapping[str, Any]
    data: Mapping[str, Mapping[str, Any]]
    models: Mapping[str, Mapping[str, Any]]

    @property
    def root(self) -> Path:
        """The folder that paths in the file are relative to; those of included files too."""
        return self.path.parent


def read_file(path: str | os.PathLike[str]) -> WorkflowFile:
    """Read a file and what it includes.

    Raises:
        InputError: no such file, or it is not TOML.
        UsageError: an unknown key, a value of another type, a variable that is not set, files that include each other.
    """
    path = Path(path).absolute()
    merged = _read(path, ())
    if not merged.get("models"):
        raise UsageError(f"{path.name}: there is no model in it; write a table [models.NAME].")
    return WorkflowFile(path, *(merged.get(name, {}) for name in ("settings", "defaults", "data", "models")))


def _read(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    if path in above:
        chain = " -> ".join(p.name for p in (*above[above.index(path) :], path))
        raise UsageError(f"{path.name}: files include each other: {chain}.")
    table = read_toml(path, "" if above else " `onnxtool init SOURCE...` writes a first one.")
    _check(path.name, table)
    included = table.pop("include", [])
    merged: dict[str, Any] = {}
    for name in [included] if isinstance(included, str) else included:
        _merge(merged, _read((path.parent / name).absolute(), (*above, path)))
    _merge(merged, table)
    return merged


def read_toml(path: Path, advice: str) -> dict[str, Any]:
    """A TOML file, with ${NAME} and ${NAME:-otherwise} replaced from the environment.

    Args:
        path: the file.
        advice: what is said where there is none.

    Raises:
        InputError: no such file, or it is not TOML.
        UsageError: a variable that is not set.
    """
    try:
        return _expanded(tomllib.loads(path.read_text(encoding="utf-8-sig")), path.name)  # type: ignore[no-any-return]
    except FileNotFoundError as error:
        raise InputError(f"{path.name}: no such file.{advice}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path.name}: cannot be read ({error}).") from error
    except ValueError as error:  # numbers of thousands of digits too
        raise InputError(f"{path.name}: this is not TOML: {str(error).removesuffix('.')}.") from error
    except RecursionError as error:
        raise InputError(f"{path.name}: its tables or lists are nested too deeply.") from error


def _merge(into: dict[str, Any], table: Mapping[str, Any]) -> None:
    """Tables are merged key by key; everything else of `table` replaces what is there."""
    for name, value in table.items():
        if isinstance(value, Mapping) and isinstance(into.get(name), Mapping):
            into[name] = dict(into[name])
            _merge(into[name], value)
        else:
            into[name] = value


def _expanded(value: Any, where: str) -> Any:
    """Texts with ${NAME} and ${NAME:-otherwise} replaced from the environment."""
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: _variable(found, where), value)
    if isinstance(value, list):
        return [_expanded(v, where) for v in value]
    if isinstance(value, dict):
        return {k: _expanded(v, f"{where}: {k}") for k, v in value.items()}
    return value


def _variable(found: re.Match[str], where: str) -> str:
    value = os.environ.get(found[1], found[2])
    if value is None:
        raise UsageError(f"{where}: the environment variable {found[1]} is not set; ${{{found[1]}:-TEXT}} gives one.")
    return value


def _check(name: str, table: Mapping[str, Any]) -> None:
    check_table(name, table, TOP)
    if table.get("version", 1) != 1:
        raise UsageError(f"{name}: version {table['version']} is not known; this onnxtool knows version 1.")
    check_table(f"{name}: settings", table.get("settings", {}), SETTINGS)
    defaults = table.get("defaults", {})
    check_table(f"{name}: defaults", defaults, defaults_keys())
    _check_commands(f"{name}: defaults", defaults)
    for title, data in table.get("data", {}).items():
        check_table(f"{name}: data.{title}", data, DATA_SET)
        if "path" not in data:
            raise UsageError(f"{name}: data.{title}: has no path.")
    for title, model in table.get("models", {}).items():
        where = f"{name}: models.{title}"
        if not _NAME.fullmatch(title):
            raise UsageError(f"{where}: a model's name has letters, digits, '.', '_', '+' and '-' only.")
        check_table(where, model, model_keys())
        _check_commands(where, model)
        for axis, values in model.get("matrix", {}).items():
            if not isinstance(values, list) or not values or not all(isinstance(v, (str, int, float)) for v in values):
                raise UsageError(f"{where}.matrix.{axis}: must be a list of texts or numbers.")


def _check_commands(where: str, table: Mapping[str, Any]) -> None:
    """The tables of options in a model or in the defaults, and the steps."""
    for command in STEPS:
        check_table(f"{where}.{command}", table.get(command, {}), step_keys(command))
    for index, step in enumerate(table.get("steps", ())):
        command = step if isinstance(step, str) else step.get("step")
        if command not in STEPS:
            said = "a step without `step`" if command is None else f"{command!r} is not a step"
            raise UsageError(f"{where}.steps[{index}]: {said}; there are {', '.join(STEPS)}.")
        if not isinstance(step, str):
            options = {k: v for k, v in step.items() if k != "step"}
            check_table(f"{where}.steps[{index}]", options, step_keys(command))


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
