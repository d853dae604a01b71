"""What may stand in `onnxtool.toml`: one description, from which the checks and the JSON schema for editors are made.

`python -m onnxtool.workflow.file_schema docs/onnxtool.schema.json` writes the JSON schema; a test holds it up to date.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from onnxtool.errors import UsageError
from onnxtool.workflow.steps import SOURCE_OPTIONS, STEPS


@dataclass(frozen=True)
class Key:
    """One key of a table: what it holds, and what it means."""

    kind: str
    text: str
    choices: tuple[str, ...] = ()


TOP = {
    "version": Key("integer", "Version of this format: 1."),
    "include": Key("texts", "Other files whose models, data and defaults are taken too; this file's own come first."),
    "settings": Key("table", "Where results are kept."),
    "defaults": Key("table", "Options of steps, by command, for every model; and `steps` for models without any."),
    "data": Key("table", "Data sets by name."),
    "models": Key("table", "Models by name."),
}
SETTINGS = {
    "cache": Key("text", "Folder or fsspec URL of the cache; ONNXTOOL_CACHE, or a folder of the user, unless given."),
    "lock": Key("text", "The lock file; beside this file and called like it (onnxtool.lock) unless given."),
    "output": Key("text", "Folder for the outputs of models that name none."),
    "jobs": Key("integer", "How many steps run at a time."),
    "executor": Key("text", "local, processes, dask://HOST:PORT or ray://HOST:PORT."),
}
DATA_SET = {
    "path": Key("text", "File or folder, as the commands' --data takes it; file.py:generator; or an fsspec URL."),
    "image": Key("text", "How pictures become tensors, as quantize --image."),
    "samples": Key("integer", "Use at most this many."),
    "labels": Key("text", "The labels' array in the file, for evaluation."),
    "metric": Key("text", "accuracy, or file.py:function."),
}
CONSTRAINTS = {
    "max-drop": Key("number", "Accuracy that may be lost against float; 0.01 is one point."),
    "max-latency": Key("any", 'Latency at most: "2ms", "0.5s", a number of milliseconds, or "0.8x" of float.'),
    "max-size": Key("size", "Size of the file at most."),
    "max-memory": Key("size", "Peak memory of loading and running at most."),
    "minimise": Key("text", "What is made as low as possible within the limits.", ("latency", "size")),
}
MODEL = {
    "source": Key("text", "The model: whatever convert takes, or an .onnx file; a path or an fsspec URL."),
    "from": Key("text", "Another model of this file, whose result is the source."),
    "steps": Key("steps", "What is done, in order."),
    "calibration": Key("text", "Data set for quantize --data."),
    "evaluation": Key("text", "Labelled data set for quantize --eval."),
    "output": Key("text", "The file to write. {name} and {axis} of the matrix stand for their values."),
    "tags": Key("texts", "Words to choose models by on the command line: build tag:WORD."),
    "depends": Key("texts", "Files or patterns that the factory reads and that are not seen otherwise."),
    "runs-on": Key("texts", "Tags of the workers that measure it, or run it on a provider: gpu, arm64, ..."),
    "matrix": Key("table", "Axes and their values; one model is built for each combination."),
    **CONSTRAINTS,
}


def check_table(where: str, table: Any, keys: Mapping[str, Key]) -> None:
    """Hold a table against its description.

    Raises:
        UsageError: it is not a table, has an unknown key (the nearest known one is named) or a value of another type.
    """
    if not isinstance(table, Mapping):
        raise UsageError(f"{where}: must be a table.")
    for name, value in table.items():
        if name not in keys:
            near = get_close_matches(name, keys, 1, 0.5)
            advice = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(keys))}."
            raise UsageError(f"{where}: unknown key {name!r}; {advice}")
        _check_value(f"{where}.{name}", value, keys[name])


_WORDS = {
    "text": "a text",
    "texts": "a text or a list of texts",
    "integer": "a whole number",
    "number": "a number",
    "flag": "true or false",
    "size": 'a number of bytes or a text such as "64MB"',
    "any": "a text or a number",
    "table": "a table",
    "steps": "a list of commands, or of tables with `step`",
}


def _check_value(where: str, value: Any, key: Key) -> None:
    if not _fits(value, key.kind):
        raise UsageError(f"{where}: must be {_WORDS[key.kind]}.")
    if key.choices and value not in key.choices:
        raise UsageError(f"{where}: must be one of {', '.join(key.choices)}.")


def _fits(value: Any, kind: str) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if isinstance(value, str) and value.startswith("{") and value.endswith("}"):
        return True  # a value of the matrix
    if kind in ("text", "texts") and isinstance(value, str):
        return True
    if kind == "texts":
        return isinstance(value, list) and all(isinstance(v, str) for v in value)
    if kind == "steps":
        return isinstance(value, list) and all(isinstance(v, (str, Mapping)) for v in value)
    return {
        "text": False,
        "integer": isinstance(value, int) and not isinstance(value, bool),
        "number": number,
        "flag": isinstance(value, bool),
        "size": isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)),
        "table": isinstance(value, Mapping),
        "any": isinstance(value, str) or number,
    }[kind]


def step_keys(command: str) -> dict[str, Key]:
    """The options of a step, as keys of its table."""
    return {
        name: Key(option.file_type, f"As of onnxtool {command}.") for name, option in STEPS[command].declared().items()
    }


def model_keys() -> dict[str, Key]:
    """Everything that a model's table may hold: its own keys, source options of convert, a table for each command."""
    source = {name: Key(option.file_type, "As of onnxtool convert.") for name, option in SOURCE_OPTIONS.items()}
    commands = {name: Key("table", f"Options of this model's {name} steps.") for name in STEPS}
    return {**MODEL, **source, **commands}


def defaults_keys() -> dict[str, Key]:
    """What `[defaults]` may hold."""
    commands = {name: Key("table", f"Options of every {name} step.") for name in STEPS}
    return {"steps": MODEL["steps"], "runs-on": MODEL["runs-on"], **CONSTRAINTS, **commands}


_TEXTS = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
_JSON: dict[str, dict[str, Any]] = {
    "text": {"type": "string"},
    "texts": _TEXTS,
    "integer": {"type": ["integer", "string"]},
    "number": {"type": ["number", "string"]},
    "flag": {"type": ["boolean", "string"]},
    "size": {"type": ["integer", "string"]},
    "any": {"type": ["number", "string"]},
    "table": {"type": "object"},
}


def json_schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of the file, for editors."""
    steps = {name: object_schema(step_keys(name)) for name in STEPS}
    one: list[dict[str, Any]] = [{"enum": list(STEPS)}]
    one += [
        {**table, "properties": {"step": {"const": name}, **table["properties"]}, "required": ["step"]}
        for name, table in steps.items()
    ]
    listed = {"type": "array", "items": {"anyOf": one}}
    nested = {**{name: {"$ref": f"#/$defs/{name}"} for name in STEPS}, "steps": {"$ref": "#/$defs/steps"}}
    model = object_schema(
        model_keys(), nested | {"matrix": {"type": "object", "additionalProperties": {"type": "array"}}}
    )
    tables = {
        "settings": object_schema(SETTINGS),
        "defaults": object_schema(defaults_keys(), nested),
        "data": {"type": "object", "additionalProperties": object_schema(DATA_SET)},
        "models": {"type": "object", "additionalProperties": model},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:onnxtool:onnxtool.toml:1",
        "title": "onnxtool.toml",
        **object_schema(TOP, tables),
        "$defs": {**steps, "steps": listed},
    }


def object_schema(keys: Mapping[str, Key], nested: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The JSON schema of a table; `nested` has that of its own tables."""
    properties: dict[str, Any] = {}
    for name, key in keys.items():
        shape = (nested or {}).get(name) or ({"enum": list(key.choices)} if key.choices else _JSON[key.kind])
        properties[name] = {**shape, "description": key.text}
    return {"type": "object", "properties": properties, "additionalProperties": False}


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(json_schema(), indent=2) + "\n", encoding="utf-8")
