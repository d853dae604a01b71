"""Where a package goes, and what it calls its model."""

from __future__ import annotations

import re
from pathlib import Path

from onnxtool.errors import UsageError
from onnxtool.packaging.manifest import is_package


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
