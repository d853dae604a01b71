"""Folders that appear as a whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from onnxtool.errors import ResourceError, UsageError
from onnxtool.generation.bundle import PROVENANCE, is_bundle
from onnxtool.model.io.atomic import sweep, sync


def check_output(output: Path) -> None:
    """Find out before any work whether a bundle can be written there.

    Raises:
        UsageError: a file, a folder with something else in it, or no folder to make it in.
    """
    if output.is_file():
        raise UsageError(f"{output}: is a file; a bundle is a folder.")
    if output.is_dir() and any(output.iterdir()) and not (is_bundle(output) or (output / PROVENANCE).is_file()):
        raise UsageError(f"{output}: is not empty and not a bundle; choose another folder.")
    parent = output.absolute().parent
    if not parent.is_dir():
        raise UsageError(f"{parent}: no such folder.")
    if not os.access(parent, os.W_OK):
        raise UsageError(f"{parent}: cannot be written to.")


@contextmanager
def staged_folder(output: Path) -> Iterator[Path]:
    """An empty folder beside `output`, which takes its place at the end when it has a provenance file by then.

    What is in `output` then goes as a whole; without, it stays. Folders that a killed process left are removed first.

    Raises:
        ResourceError: no room, or not allowed.
    """
    output = output.absolute()
    sweep(output)
    staged = output.with_name(f".{output.name}.{os.getpid()}-{secrets.token_hex(6)}.tmp")
    try:
        staged.mkdir()
        yield staged
        if (staged / PROVENANCE).is_file():
            for file in staged.rglob("*"):
                if file.is_file():
                    sync(file)
            _take_place(staged, output)
    except OSError as error:
        raise ResourceError(f"{output}: cannot be written ({error.strerror or error}).") from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _take_place(staged: Path, output: Path) -> None:
    old = None
    if output.exists():
        old = output.with_name(f".{output.name}.{os.getpid()}-{secrets.token_hex(6)}.tmp")
        os.rename(output, old)
    try:
        os.rename(staged, output)
    except OSError:
        if old is not None:
            os.rename(old, output)
        raise
    with suppress(OSError):
        sync(output.parent)
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)
