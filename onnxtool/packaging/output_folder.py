"""Where a package goes, what it calls its model, and what the report says of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from onnxtool.errors import UsageError
from onnxtool.model.provenance.sbom import sbom
from onnxtool.packaging.manifest import is_package
from onnxtool.report.package import PackageProof, WrittenPackage


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
    """The bill of materials of a package's model, which lies at this place in its folder."""
    document = json.dumps(sbom(folder / model), indent=2)
    (folder / "sbom.cdx.json").write_text(document + "\n", encoding="utf-8")


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
