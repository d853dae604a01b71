"""`cache`: how large it is, removing what nobody needs, looking for what is damaged."""

from __future__ import annotations

import os
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path

from onnxtool.errors import UsageError
from onnxtool.model.io import sha256
from onnxtool.options.cache import Action
from onnxtool.report.build import CacheReport
from onnxtool.workflow.constraints import byte_count
from onnxtool.workflow.store import Store, default_folder

_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "w": 604800.0}
_ABANDONED = 3600.0  # seconds, after which a file that is being written, or a folder of work, belongs to nobody


def cache(
    action: Action = "size",
    *,
    folder: str | os.PathLike[str] | None = None,
    max_size: str | int | None = None,
    older_than: str | None = None,
) -> CacheReport:
    """Look after the cache of `build`.

    Args:
        action: "size" counts; "prune" removes results, the oldest first, until it is small enough; "verify" holds
            everything against its digest and removes what is damaged.
        folder: the cache; ONNXTOOL_CACHE or the user's own unless given.
        max_size: prune: bytes that may stay, or a text such as "10GB"; all results go unless this or `older_than` is
            given.
        older_than: prune: only results made longer ago than "30d", "12h", "2w".

    Raises:
        UsageError: an action, size or time that cannot be read.
    """
    store = Store(default_folder().absolute() if folder is None else Path(folder).absolute())
    if action == "size":
        return _counted(store, action)
    if action == "verify":
        return _verified(store)
    if action == "prune":
        return _pruned(store, byte_count("--max-size", max_size), _seconds(older_than))
    raise UsageError(f"cache {action}: must be size, prune or verify.")


def _counted(
    store: Store,
    action: str,
    removed_entries: int = 0,
    removed_files: int = 0,
    removed_bytes: int = 0,
    damaged: tuple[str, ...] = (),
) -> CacheReport:
    blobs = [p.stat().st_size for p in store.blobs()]
    entries = list(store.entries())
    return CacheReport(
        action,
        str(store.folder),
        len(entries),
        len(blobs),
        sum(blobs) + sum(p.stat().st_size for p in entries),
        removed_entries,
        removed_files,
        removed_bytes,
        damaged,
    )


def _verified(store: Store) -> CacheReport:
    damaged: list[str] = []
    removed = 0
    entries = files = 0
    for path in list(store.blobs()):
        if sha256(path) != path.name:
            removed += path.stat().st_size
            path.unlink(missing_ok=True)
            files += 1
            damaged.append(f"file {path.name[:12]}")
    for path in list(store.entries()):
        if store.find(path.stem) is None:
            removed += path.stat().st_size
            path.unlink(missing_ok=True)
            entries += 1
            damaged.append(f"entry {path.stem[:12]}")
    return _counted(store, "verify", entries, files, removed, tuple(damaged))


def _pruned(store: Store, most: int | None, age: float | None) -> CacheReport:
    before = _counted(store, "prune")
    now = time.time()
    oldest_first = sorted(store.entries(), key=lambda p: p.stat().st_mtime)
    for path in oldest_first:
        if age is not None and now - path.stat().st_mtime < age:
            break
        if most is not None and sum(p.stat().st_size for p in store.blobs()) <= most:
            break
        path.unlink(missing_ok=True)
        if most is not None:
            _remove_unused(store)
    _remove_unused(store)
    _remove_abandoned(store, now)
    after = _counted(store, "prune")
    return _counted(
        store, "prune", before.entries - after.entries, before.files - after.files, before.bytes - after.bytes
    )


def _remove_unused(store: Store) -> None:
    """Contents that no entry has any more."""
    used = set()
    for path in store.entries():
        entry = store.entry(path.stem)
        used |= {f.sha256 for f in entry.files.values()} if entry is not None else set()
    for path in list(store.blobs()):
        if path.name not in used and time.time() - path.stat().st_mtime > 0:
            path.unlink(missing_ok=True)
    if not used:
        for path in store.folder.glob("reads/*/*.json"):
            path.unlink(missing_ok=True)


def _remove_abandoned(store: Store, now: float) -> None:
    """What killed builds left: temporary files, folders of work."""
    for path in [*store.folder.glob("*/*/.*.tmp"), *store.folder.glob("work/*")]:
        with suppress(OSError):
            if now - path.stat().st_mtime > _ABANDONED:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([mhdw])", text.strip().lower())
    if found is None:
        raise UsageError(f"--older-than {text}: write a time such as 12h, 30d or 2w.")
    return float(found[1]) * _UNITS[found[2]]
