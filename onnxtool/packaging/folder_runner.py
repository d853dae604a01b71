"""A package folder as a Runner, for `compare`."""

from __future__ import annotations

from pathlib import Path

from onnxtool.errors import UnsafeError
from onnxtool.packaging.manifest import read_manifest
from onnxtool.packaging.registry import find_kind
from onnxtool.runtime.runner import Runner


def open_package(folder: Path, *, trust: bool) -> Runner:
    """Start what a package folder holds.

    Args:
        folder: written by `package`.
        trust: whether its code may run.

    Raises:
        UnsafeError: without trust.
        InputError: not a package, or it does not start.
    """
    manifest = read_manifest(folder)
    if not trust:
        raise UnsafeError(f"{folder}: comparing a package runs its code. Pass --trust if you trust it.")
    runner, _ = find_kind(manifest.kind).start(folder, None)
    return runner
