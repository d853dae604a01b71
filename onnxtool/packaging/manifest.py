"""What a package folder says of itself, so that `compare` can run it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxtool.errors import InputError
from onnxtool.generation.bundle import read_json
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.protocol_v2.tensors import read_metadata

MANIFEST = "onnxtool-package.json"
_SCHEMA = "onnxtool/package-folder/1"


@dataclass(frozen=True)
class Manifest:
    """A package folder.

    Attributes:
        kind: the kind of package.
        model_name: as its endpoint calls it.
        model: the model's file in the folder.
        inputs, outputs: as the V2 protocol describes them.
    """

    kind: str
    model_name: str
    model: str
    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]

    @property
    def specs(self) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
        """Inputs and outputs; InputError as of `read_metadata`."""
        return read_metadata(self.inputs), read_metadata(self.outputs)


def is_package(folder: Path) -> bool:
    """True for a folder that `package` wrote."""
    return (folder / MANIFEST).is_file()


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write it into the folder."""
    document = {"schema": _SCHEMA, **vars(manifest)}
    (folder / MANIFEST).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> Manifest:
    """Read it.

    Raises:
        InputError: none, or not one of ours.
    """
    found = read_json(folder / MANIFEST)
    try:
        if found["schema"] != _SCHEMA:
            raise ValueError(f"schema {found['schema']!r}")
        made = Manifest(*(found[f] for f in ("kind", "model_name", "model", "inputs", "outputs")))
        if not all(isinstance(v, str) for v in (made.kind, made.model_name, made.model)):
            raise ValueError("names must be texts")
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"{folder / MANIFEST}: not a package's manifest ({error}).") from error
    if not (folder / made.model).resolve().is_relative_to(folder.resolve()):
        raise InputError(f"{folder / MANIFEST}: the model {made.model!r} lies outside the folder.")
    return made
