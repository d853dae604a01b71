"""A package folder as a Runner, for `compare`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from onnxtool.errors import UnsafeError, UnsupportedError, UsageError
from onnxtool.packaging.manifest import read_manifest
from onnxtool.packaging.registry import BUILT_IN, find_kind
from onnxtool.packaging.server_process import ServerRunner
from onnxtool.runtime.runner import Runner, closing


@contextmanager
def serve_package(folder: Path, *, trust: bool) -> Iterator[str]:
    """Inside the block the server of a package folder runs; gives the URL of its model.

    Args:
        folder: written by `package`.
        trust: whether its code may run.

    Raises:
        UnsafeError: without trust.
        UsageError: a package that is no server.
        InputError: not a package, or it does not start.
    """
    runner = open_package(folder, trust=trust)
    with closing(runner):
        if not isinstance(runner, ServerRunner):
            raise UsageError(f"{folder}: is a package for {read_manifest(folder).kind}, which is not a server here.")
        yield runner.endpoint


def open_package(folder: Path, *, trust: bool) -> Runner:
    """Start what a package folder holds.

    Args:
        folder: written by `package`.
        trust: whether its code may run.

    Raises:
        UnsafeError: without trust.
        UnsupportedError: a bundle's package, or one of a later onnxtool.
        InputError: not a package, or it does not start.
    """
    manifest = read_manifest(folder)
    if not trust:
        raise UnsafeError(f"{folder}: comparing a package runs its code. Pass --trust if you trust it.")
    if manifest.kind not in BUILT_IN:
        raise UnsupportedError(f"{folder}: a package of the kind {manifest.kind!r} cannot be run here.")
    runner, _ = find_kind(manifest.kind).start(folder, None)
    return runner
