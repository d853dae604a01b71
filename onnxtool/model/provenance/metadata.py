"""Provenance: where a file came from and what was done to it, kept in the model's own metadata_props."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx_ir as ir

HISTORY_KEY = "onnxtool.history"
COMPILE_STEP = "compile"  # of a form that one provider has compiled


def add_history(model: ir.Model, command: str, details: Mapping[str, Any]) -> None:
    """Append one step to the model's history (a JSON list; no clock, so that outputs are reproducible).

    Args:
        model: changed in place.
        command: the command that wrote the file ("optimize").
        details: JSON-ready facts, such as the source's SHA-256, options and library versions.
    """
    from onnxtool import __version__

    steps = read_history(model.metadata_props)
    steps.append({"command": command, "onnxtool": __version__, **details})
    model.metadata_props[HISTORY_KEY] = json.dumps(steps, sort_keys=True, ensure_ascii=False)


def read_history(metadata: Mapping[str, str]) -> list[dict[str, Any]]:
    """The steps recorded so far; an unreadable entry (a stranger's file) counts as none."""
    try:
        steps = json.loads(metadata.get(HISTORY_KEY, "[]"))
    except (ValueError, RecursionError):
        return []
    return [s for s in steps if isinstance(s, dict)] if isinstance(steps, list) else []


def versions(*packages: str) -> dict[str, str]:
    """Installed versions of the given distributions; missing ones are left out."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
