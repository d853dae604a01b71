"""Reading `onnxtool.toml`: includes, environment variables, and everything that can be wrong with it."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxtool.errors import InputError, UsageError
from onnxtool.workflow.file_schema import (
    DATA_SET,
    SETTINGS,
    TOP,
    check_table,
    defaults_keys,
    model_keys,
    step_keys,
)
from onnxtool.workflow.steps import STEPS

FILE_NAME = "onnxtool.toml"
_DEEPEST = 500  # parts of a key
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
        text = path.read_text(encoding="utf-8-sig")
        if any(line.split("=", 1)[0].count(".") > _DEEPEST for line in text.splitlines()):
            raise RecursionError  # the parser's time grows with the square of a key's parts
        return _expanded(tomllib.loads(text), path.name)  # type: ignore[no-any-return]
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
