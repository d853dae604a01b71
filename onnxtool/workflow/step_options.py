"""The options of each step: the names of the command's own options, what they hold, and which of them name files.

A test holds these tables against the commands: an option that a command gets and a step does not is noticed there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["text", "texts", "integer", "number", "flag", "size", "table"]
# What an option names: "data" is a data set or a file, "code" is place:name of Python code.
Role = Literal["", "file", "files", "folders", "data", "code"]


@dataclass(frozen=True)
class Option:
    """One option of a step.

    Attributes:
        kind: what the TOML file holds: "texts" is a text or a list of them, "size" a number of bytes or "64MB".
        role: which files belong to it, whose content decides whether the step is stale.
    """

    kind: Kind = "text"
    role: Role = ""


TEXT, TEXTS, INTEGER, NUMBER, FLAG = Option(), Option("texts"), Option("integer"), Option("number"), Option("flag")
SIZE, DATA, FILE, CODE = Option("size"), Option("text", "data"), Option("text", "file"), Option("text", "code")
LIBRARIES = Option("texts", "files")

# Options of `convert` that say what the model is: they stand in the model's own table.
SOURCE_OPTIONS: Mapping[str, Option] = {
    "factory": CODE,
    "factory-arg": Option("table"),
    "pythonpath": Option("texts", "folders"),
    "trust": FLAG,
    "input-shape": TEXTS,
    "input-dtype": TEXTS,
    "sample": DATA,
    "input-names": TEXT,
    "output-names": TEXT,
    "custom-op-library": LIBRARIES,
}

_CONVERT = {
    "opset": INTEGER,
    "rtol": NUMBER,
    "atol": NUMBER,
    "seed": INTEGER,
    "no-verify": FLAG,
    "exporter": TEXT,
    "keep-metadata": FLAG,
    "task": TEXT,
    "signature": TEXT,
    "inputs": TEXT,
    "outputs": TEXT,
    "layout": TEXT,
    "zipmap": FLAG,
    "float64": FLAG,
    "effort": TEXT,
    "strict": FLAG,
}
_OPTIMIZE = {
    "level": TEXT,
    "pass": TEXTS,
    "skip": TEXTS,
    "input-shape": TEXTS,
    "freeze-initializers": FLAG,
    "max-folded-size": SIZE,
    "upgrade-opset": INTEGER,
    "downgrade-opset": INTEGER,
    "data": DATA,
    "rtol": NUMBER,
    "atol": NUMBER,
    "seed": INTEGER,
    "target": TEXT,
    "strict": FLAG,
    "no-verify": FLAG,
    "no-bench": FLAG,
    "provider": TEXTS,
    "ep-library": TEXTS,
    "threads": INTEGER,
    "custom-op-library": LIBRARIES,
}
_QUANTIZE = {
    "steps": INTEGER,
    "state": TEXTS,
    "output-kind": TEXTS,
    "provider": TEXTS,
    "ep-library": TEXTS,
    "mode": TEXT,
    "data": DATA,
    "image": TEXT,
    "samples": INTEGER,
    "eval": DATA,
    "labels": TEXT,
    "metric": CODE,
    "max-drop": NUMBER,
    "time-limit": NUMBER,
    "smallest": FLAG,
    "target": TEXT,
    "recipe": FILE,
    "per-channel": FLAG,
    "activations": TEXT,
    "weights": TEXT,
    "method": TEXT,
    "percentile": NUMBER,
    "op": TEXTS,
    "exclude": TEXTS,
    "keep-io": FLAG,
    "block-size": INTEGER,
    "symmetric": FLAG,
    "rtn": FLAG,
    "smooth": NUMBER,
    "equalize": FLAG,
    "bias-correction": FLAG,
    "compact": INTEGER,
    "attention": FLAG,
    "fuse": TEXT,
    "threads": INTEGER,
}
_EDIT = {
    "no-verify": FLAG,
    "source": FILE,
    "data": LIBRARIES,
    "rtol": NUMBER,
    "atol": NUMBER,
    "seed": INTEGER,
    "provider": TEXTS,
    "ep-library": TEXTS,
    "threads": INTEGER,
    "custom-op-library": LIBRARIES,
}
_CHECK = {
    "require-provider": FLAG,
    "data": DATA,
    "select": TEXTS,
    "ignore": TEXTS,
    "fail-on": TEXT,
    "seed": INTEGER,
    "provider": TEXTS,
    "ep-library": TEXTS,
    "threads": INTEGER,
    "custom-op-library": LIBRARIES,
}
_COMPARE = {
    "provider-b": TEXTS,
    "quantized": FLAG,
    "data": DATA,
    "image": TEXT,
    "tolerance": TEXTS,
    "batch-sizes": TEXT,
    "samples": INTEGER,
    "top-k": INTEGER,
    "edge": FLAG,
    "layers": FLAG,
    "reference": FLAG,
    "opt-level": TEXT,
    "rtol": NUMBER,
    "atol": NUMBER,
    "effort": TEXT,
    "strict": FLAG,
    "seed": INTEGER,
    "provider": TEXTS,
    "ep-library": TEXTS,
    "threads": INTEGER,
    "custom-op-library": LIBRARIES,
}
_BENCH = {
    "require-provider": FLAG,
    "data": DATA,
    "batch": TEXT,
    "threads": TEXT,
    "budget": NUMBER,
    "profile": FLAG,
    "baseline": FILE,
    "max-regression": TEXT,
    "seed": INTEGER,
    "provider": TEXTS,
    "ep-library": TEXTS,
    "custom-op-library": LIBRARIES,
}

STEPS: Mapping[str, Mapping[str, Option]] = {
    "convert": {**SOURCE_OPTIONS, **_CONVERT},
    "optimize": _OPTIMIZE,
    "quantize": _QUANTIZE,
    "edit": _EDIT,
    "check": _CHECK,
    "compare": _COMPARE,
    "bench": _BENCH,
}
# The operations of `edit` that are options of its command; those of other packages go by `operation = ["NAME=VALUE"]`.
EDIT_OPERATIONS = (
    *("set-shape", "name-dim", "rename-input", "rename-output", "add-output", "remove-output", "remove-input"),
    *("io-dtype", "layout", "extract", "append", "prepend", "connect", "opset", "ir-version", "metadata"),
    *("clear-metadata", "doc", "external-data", "operation", "pre", "post", "refit", "replace-weight", "strip-weights"),
    "tokenizer",
)
# Steps that give a model; the others judge the model before them.
PRODUCING = frozenset({"convert", "optimize", "quantize", "edit"})


def options_of(command: str) -> Mapping[str, Option]:
    """Every option that a step of this command takes; the operations of `edit` are among them."""
    if command != "edit":
        return STEPS[command]
    return {**dict.fromkeys(EDIT_OPERATIONS, TEXTS), **_EDIT}
