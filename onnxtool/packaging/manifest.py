"""A package folder: what it says of itself, so that `compare` can run it, and where it goes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxtool.errors import InputError, UsageError
from onnxtool.model.json_file import read_json
from onnxtool.model.provenance.sbom import sbom
from onnxtool.model.spec import TensorSpec
from onnxtool.report.package import PackageProof, WrittenPackage
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


# Of a browser's runtime, in the folder that holds it.
RUNTIME_PACKAGE = "runtime/package.json"


def package_name(path: Path, given: str | None) -> str:
    """What a package calls its model.

    Raises:
        UsageError: a name that does not fit into URLs and file names.
    """
    called = given or re.sub(r"[^A-Za-z0-9_-]+", "_", path.stem).strip("_") or "model"
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", called):
        raise UsageError(f"--name {called}: letters, digits, - and _ only, at most 64.")
    return called


def verify_output(folder: Path) -> None:
    """Raises UsageError for a folder that must not be replaced."""
    if folder.is_file():
        raise UsageError(f"{folder}: is a file; a package is a folder.")
    if folder.is_symlink() and not folder.exists():
        raise UsageError(f"{folder}: is a link that leads nowhere.")
    if folder.is_dir() and any(folder.iterdir()) and not is_package(folder):
        raise UsageError(f"{folder}: is not empty and not a package; choose another folder.")


def write_sbom(folder: Path, model: str) -> None:
    """The bill of materials of a package: its model, which lies at this place in its folder, and what it installs."""
    document = sbom(folder / model)
    files = [part for part in document["components"] if part["type"] == "file"]
    document["components"] = files + [
        {"type": "library", "bom-ref": f"pkg:{kind}/{name}", "name": name}
        | ({"version": version, "purl": f"pkg:{kind}/{name}@{version}"} if version else {})
        for kind, name, version in _installed(folder)
    ]
    (folder / "sbom.cdx.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _installed(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Kind, name and version of the packages that a folder names for pip, or holds for a browser."""
    lines = set[str]()
    if (folder / "requirements.txt").is_file():
        lines.update((folder / "requirements.txt").read_text(encoding="utf-8").split())
    if (folder / "conda.yaml").is_file():
        lines.update(read_json(folder / "conda.yaml")["dependencies"][-1]["pip"])
    for line in sorted(lines):
        name, _, version = line.partition("==")
        yield "pypi", name, version
    if (folder / RUNTIME_PACKAGE).is_file():
        runtime = read_json(folder / RUNTIME_PACKAGE)
        yield "npm", runtime["name"], runtime["version"]


def describe_package(
    staged: Path, folder: Path, kind: str, proof: PackageProof, commands: tuple[str, ...]
) -> WrittenPackage:
    """What the report says of a package.

    Args:
        staged: where its files are now.
        folder: where they will be.
        kind, proof, commands: as of `WrittenPackage`.
    """
    files = sorted(f for f in staged.rglob("*") if f.is_file())
    names = tuple(f.relative_to(staged).as_posix() for f in files)
    return WrittenPackage(kind, str(folder), names, sum(f.stat().st_size for f in files), proof, commands)
