"""Putting a result in its place: copies out of the cache, never links, each held against its digest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from onnxtool.errors import InputError, ResourceError
from onnxtool.workflow.digests import file_digest
from onnxtool.workflow.store import Store, StoredFile


def published(root: Path, output: str, files: Mapping[str, StoredFile]) -> bool:
    """True when every file lies in its place with the content that it should have."""
    folder = (root / output).parent
    try:
        return all(
            (folder / name).stat().st_size == file.bytes and file_digest(folder / name) == file.sha256
            for name, file in files.items()
        )
    except OSError:
        return False


def publish(store: Store, root: Path, output: str, files: Mapping[str, StoredFile]) -> None:
    """Copy a result out of the cache: external data first, so that the model never stands without it.

    Raises:
        ResourceError: the cache lost it, or there is no room.
    """
    target = root / output
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{output}: its folder cannot be made ({error.strerror}).") from error
    if target.is_symlink():
        target = target.resolve()
    for name, file in sorted(files.items(), key=lambda item: item[0] == Path(output).name):
        place = target if name == Path(output).name else target.parent / name
        if not store.take_out(file, place):
            raise ResourceError(f"{output}: its content in the cache is damaged; build once more to make it again.")
