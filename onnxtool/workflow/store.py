"""The cache: results of steps under the digest of everything that they were made of.

    blobs/ab/<sha256>        contents of files
    entries/ab/<key>.json    what a step gave: its report, the names and digests of its files
    reads/ab/<key>.json      which files the code of a step was seen to read

Entries and blobs appear as a whole or not at all, and are held against their digests whenever they are used: what is
damaged counts as not there.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from onnxtool.errors import InputError, ResourceError
from onnxtool.generation.bundle import PROVENANCE, staged_folder
from onnxtool.model.io import sha256
from onnxtool.packaging.manifest import verify_output
from onnxtool.workflow.digests import text_digest


def published(root: Path, output: str, files: Mapping[str, StoredFile]) -> bool:
    """True when every file lies in its place with the content that it should have."""
    folder = (root / output).parent
    try:
        return all(
            (folder / name).stat().st_size == file.bytes and sha256(folder / name) == file.sha256
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


def publish_folder(store: Store, folder: Path, files: Mapping[str, StoredFile]) -> None:
    """Put a folder of packages, each with its provenance, in the place of what is there.

    Raises:
        UsageError: what is there is no package.
        ResourceError: the cache lost it, or there is no room.
    """
    for place in sorted(PurePosixPath(name).parent for name in files if PurePosixPath(name).name == PROVENANCE):
        verify_output(folder / place)
        folder.mkdir(parents=True, exist_ok=True)
        with staged_folder(folder / place) as staged:
            own = {n: f for n, f in files.items() if PurePosixPath(n).is_relative_to(place)}
            for name, file in own.items():
                target = staged / PurePosixPath(name).relative_to(place)
                target.parent.mkdir(parents=True, exist_ok=True)
                inside = target.resolve().is_relative_to(staged.resolve())
                if not inside or not store.take_out(file, target):
                    raise ResourceError(
                        f"{folder}: its content in the cache is damaged; build once more to make it again."
                    )


FORMAT = 1
_FICLONE = 0x40049409  # linux/fs.h: share the blocks of another file until one of the two is written to
_MOST_READS = 8


@dataclass(frozen=True)
class StoredFile:
    """One file of a result: its content and its length."""

    sha256: str
    bytes: int


@dataclass(frozen=True)
class Entry:
    """What a step gave.

    Attributes:
        key: digest of everything it was made of.
        command: convert, optimize, ...
        files: name -> content; the model is called "model.onnx".
        report: the report of the command, as JSON.
        seconds: how long it took.
    """

    key: str
    command: str
    files: Mapping[str, StoredFile]
    report: Mapping[str, Any]
    seconds: float
    uses: Mapping[str, str] = field(default_factory=dict)


class Store:
    """A cache in a folder."""

    def __init__(self, folder: Path) -> None:
        """Take a folder; it is made when something is put there."""
        self.folder = Path(folder)

    def find(self, key: str) -> Entry | None:
        """The entry of a key; None when there is none, or it or one of its files is damaged or gone."""
        entry = self.entry(key)
        if entry is None or not all(self.holds(f) for f in entry.files.values()):
            return None
        return entry

    def entry(self, key: str) -> Entry | None:
        """The entry of a key, without a look at its files."""
        try:
            body = json.loads(self._path("entries", f"{key}.json").read_bytes())
            digest = body.pop("digest")
            if digest != text_digest(body) or body["key"] != key or body["format"] != FORMAT:
                return None
            files = {name: StoredFile(f["sha256"], f["bytes"]) for name, f in body["files"].items()}
            return Entry(key, body["command"], files, body["report"], body["seconds"], body["uses"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def put(self, entry: Entry) -> None:
        """Keep an entry, whose files are there already."""
        body: dict[str, Any] = {
            "format": FORMAT,
            "key": entry.key,
            "command": entry.command,
            "files": {n: {"sha256": f.sha256, "bytes": f.bytes} for n, f in entry.files.items()},
            "report": entry.report,
            "seconds": entry.seconds,
            "uses": dict(entry.uses),
        }
        self._write(self._path("entries", f"{entry.key}.json"), {**body, "digest": text_digest(body)})

    def holds(self, file: StoredFile) -> bool:
        """Whether a content is there; by its length, because whoever takes it out looks at the digest."""
        with suppress(OSError):
            return self.blob(file.sha256).stat().st_size == file.bytes
        return False

    def blob(self, sha256: str) -> Path:
        """Where a content lies."""
        return self._path("blobs", sha256)

    def add_file(self, path: Path, move: bool = False) -> StoredFile:
        """Keep a copy of a file's content; with `move` the file itself, which nobody else may have open.

        Raises:
            ResourceError: no room.
        """
        digest, count = sha256(path), path.stat().st_size
        stored = StoredFile(digest, count)
        target = self.blob(digest)
        if self.holds(stored):
            return stored
        if move:
            with suppress(OSError):
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(path, target)
                return stored
        with _staged(target) as temporary:
            copy(path, temporary)
            if sha256(temporary) != digest:
                raise ResourceError(f"{path.name}: changed while it was copied into the cache.")
            os.replace(temporary, target)
        return stored

    def take_out(self, file: StoredFile, target: Path) -> bool:
        """Copy a content to a path, atomically; False, and the content is removed, when it is damaged."""
        with _staged(target) as temporary:
            try:
                copy(self.blob(file.sha256), temporary)
            except FileNotFoundError:
                return False
            if sha256(temporary) != file.sha256:
                self.blob(file.sha256).unlink(missing_ok=True)
                return False
            os.replace(temporary, target)
        return True

    @contextmanager
    def lease(self, key: str) -> Iterator[None]:
        """Held by the one process on this machine that makes an entry; others wait for it."""
        try:
            import fcntl
        except ImportError:  # Windows: both make it, which costs time alone
            yield
            return
        place = self.folder / "work" / f"{key}.lease"
        place.parent.mkdir(parents=True, exist_ok=True)
        held = False
        while not held:
            with open(place, "ab") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                held = os.fstat(file.fileno()).st_nlink > 0  # else its last holder has removed it
                try:
                    if held:
                        yield
                finally:
                    if held:
                        place.unlink(missing_ok=True)

    def reads(self, key: str) -> list[list[str]]:
        """Sets of file names that the code of a step was seen to read, the latest first."""
        try:
            found = json.loads(self._path("reads", f"{key}.json").read_bytes())
            return [[str(name) for name in names] for names in found]
        except (OSError, ValueError, TypeError):
            return []

    def add_reads(self, key: str, names: list[str]) -> None:
        """Note what the code of a step read."""
        known = [n for n in self.reads(key) if n != names]
        self._write(self._path("reads", f"{key}.json"), [names, *known][:_MOST_READS])

    def entries(self) -> Iterator[Path]:
        """The files of all entries."""
        yield from sorted(self.folder.glob("entries/*/*.json"))

    def blobs(self) -> Iterator[Path]:
        """The files of all contents."""
        yield from sorted(p for p in self.folder.glob("blobs/*/*") if not p.name.startswith("."))

    def _path(self, kind: str, name: str) -> Path:
        return self.folder / kind / name[:2] / name

    def _write(self, path: Path, value: Any) -> None:
        with _staged(path) as temporary:
            temporary.write_text(json.dumps(value, sort_keys=True), encoding="utf-8")
            os.replace(temporary, path)


class _staged:  # noqa: N801  (a context manager that is called like a function)
    """A temporary name beside a path, gone at the end; what no one has room for is said in one line.

    There is no fsync: after a loss of power the digests tell what is not whole, and it is made again.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.temporary = path, path.with_name(f".{os.getpid()}-{secrets.token_hex(6)}.tmp")

    def __enter__(self) -> Path:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ResourceError(f"{self.path.parent}: cannot be made ({error.strerror}).") from error
        return self.temporary

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with suppress(OSError):
            self.temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            raise ResourceError(f"{self.path}: cannot be written ({error.strerror}).") from error


def copy(source: Path, target: Path) -> None:
    """Copy a file's bytes, sharing the blocks where the file system can. Never a hard link: ONNX refuses these."""
    with open(source, "rb") as old, open(target, "wb") as new:
        try:
            import fcntl

            fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())
            return
        except (ImportError, OSError):
            pass
    shutil.copyfile(source, target)


def default_folder() -> Path:
    """Where results are kept unless the user says so."""
    given = os.environ.get("ONNXTOOL_CACHE")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "onnxtool"
