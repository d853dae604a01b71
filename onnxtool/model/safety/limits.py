"""How large a model may be before it is refused; sizes are checked before memory is taken."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, fields

from onnxtool.errors import UsageError
from onnxtool.model.byte_sizes import parse_bytes

GIB = 1 << 30
PROTOBUF_LIMIT = (1 << 31) - 1  # protobuf cannot hold a larger message
# Settings for every command, as --limit takes them, separated by commas; read when this module is imported.
ENVIRONMENT = "ONNXTOOL_LIMITS"


@dataclass
class Limits:
    """Limits on what is read from a model file, and on what native code may take for it.

    Those in force, DEFAULT, are settings of the process: `use` changes them in place, so that all who hold them agree.

    Attributes:
        max_model_bytes: size of the .onnx file itself, without external data.
        max_external_bytes: size of all external data together.
        max_nodes: nodes of all graphs and functions together.
        max_depth: nesting of subgraphs.
        max_seconds: time for a native call on a small file, at the command line (see `runtime.isolation`).
        max_memory_bytes: memory for a native call on a small file, likewise.
    """

    max_model_bytes: int = PROTOBUF_LIMIT
    max_external_bytes: int = 1 << 40
    max_nodes: int = 5_000_000
    max_depth: int = 64
    max_seconds: int = 10
    max_memory_bytes: int = GIB


def parse_limits(settings: Iterable[str]) -> Limits:
    """Limits from settings such as "nodes=1000000" and "memory-bytes=4e9".

    Raises:
        UsageError: no such limit, or no positive number.
    """
    known = {f.name.removeprefix("max_").replace("_", "-"): f.name for f in fields(Limits)}
    values = {}
    for setting in settings:
        name, _, text = setting.partition("=")
        if name not in known:
            raise UsageError(f"--limit {setting}: the limits are {', '.join(known)}.")
        try:
            value = int(float(text))
        except (ValueError, OverflowError):
            value = _size(text) if name.endswith("-bytes") else 0
        if value <= 0:
            example = "500MB" if name.endswith("-bytes") else "1000000"
            raise UsageError(f"--limit {setting}: give a positive number, such as {name}={example}.")
        values[known[name]] = value
    return Limits(**values)


def _size(text: str) -> int:
    """Bytes of "500MB"; 0 for what is not a size."""
    try:
        return parse_bytes(text, "")
    except UsageError:
        return 0


def _of_environment() -> tuple[Limits, str]:
    """The limits that the environment sets, and what is wrong with them (reported later: importing must not raise)."""
    try:
        return parse_limits(filter(None, os.environ.get(ENVIRONMENT, "").split(","))), ""
    except UsageError as error:
        return Limits(), str(error).replace("--limit ", f"{ENVIRONMENT}=", 1)


DEFAULT, FAULT = _of_environment()


def verify_environment() -> None:
    """Say now what was wrong with the limits that the environment sets.

    Raises:
        UsageError: no such limit, or no positive number.
    """
    if FAULT:
        raise UsageError(FAULT)


def use(settings: Iterable[str]) -> None:
    """Change DEFAULT for this process; only the command line does so, before it does anything else.

    Raises:
        UsageError: as `parse_limits`.
    """
    parsed = parse_limits(settings)
    for field in fields(Limits):
        setattr(DEFAULT, field.name, getattr(parsed, field.name))
