"""What was given to convert: a file, a folder or nothing but a factory. Looks, never executes."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from functools import cached_property
from pathlib import Path
from typing import Any

from onnxtool.errors import InputError, ResourceError, reading
from onnxtool.model.io import sha256
from onnxtool.model.safety.pickle_scan import DAMAGED

_MAX_ENTRIES = 100_000
_MAX_MEMBER = 64 << 20
_MAX_FILES = 10_000
# An archive that is larger unpacked than both of these is taken for a bomb.
_UNPACKED_LIMIT = 1 << 30
_RATIO_LIMIT = 200


class Source:
    """A model as it lies on disk; `path` is None when it comes from `--factory` alone, or is an object in memory.

    Attributes:
        path: the file or folder.
        model: the object in memory: a torch module, a Keras model, an estimator, a booster; else None.
    """

    def __init__(self, path: str | os.PathLike[str] | None, model: Any = None) -> None:
        """Look at a path, or take an object.

        Raises:
            InputError: nothing there, or an empty file.
        """
        self.model = model
        self.path = None if path is None else Path(path)
        if self.path is None:
            return
        with reading(self.path):
            if not self.path.exists():
                place, _, name = str(self.path).rpartition(":")
                called = name.isidentifier() and (place.endswith(".py") or place.replace(".", "").isidentifier())
                advice = f" For what this function builds write --factory {self.path}." if called else ""
                raise InputError(f"{self.path}: no such file.{advice}")
            if not self.path.is_dir() and self.path.stat().st_size == 0:
                raise InputError(f"{self.path}: the file is empty.")

    def __str__(self) -> str:
        if self.model is not None:
            return f"{type(self.model).__name__} in memory"
        return "the factory" if self.path is None else str(self.path)

    @property
    def suffix(self) -> str:
        """Lower-case suffix with its dot (".pt"), "" when there is none. A hint for messages, no proof."""
        return "" if self.path is None else self.path.suffix.lower()

    @property
    def is_folder(self) -> bool:
        """True for a folder (SavedModel, Hugging Face)."""
        return self.path is not None and self.path.is_dir()

    @property
    def size(self) -> int:
        """Bytes on disk; of a folder, of all its files."""
        return sum(f.stat().st_size for f in self._files())

    def head(self, count: int = 4096) -> bytes:
        """The first bytes of a file; b"" for a folder or a factory.

        Raises:
            InputError: it cannot be read.
        """
        if self.path is None or self.is_folder:
            return b""
        with reading(self.path), open(self.path, "rb") as file:
            return file.read(count)

    @property
    def is_text(self) -> bool:
        """True when the first 4 kB hold no control characters: most likely not a model."""
        head = self.head()
        return bool(head) and all(c in b"\t\n\r\f" or c >= 32 for c in head)

    @cached_property
    def _zip(self) -> tuple[str, ...]:
        if self.path is None or self.is_folder or self.head(2) != b"PK":
            return ()
        try:
            with zipfile.ZipFile(self.path) as archive:
                unpacked = sum(entry.file_size for entry in archive.infolist())
                names = tuple(archive.namelist()[:_MAX_ENTRIES])
        except DAMAGED:
            return ()
        if unpacked > max(_UNPACKED_LIMIT, _RATIO_LIMIT * self.size):
            raise ResourceError(f"{self.path}: the archive unpacks to {unpacked} bytes, which is taken for a zip bomb.")
        return names

    def zip_names(self) -> tuple[str, ...]:
        """Entries of a zip archive; empty when it is none (or cut off).

        Raises:
            ResourceError: it unpacks to far more than its size.
        """
        return self._zip

    def zip_read(self, name: str) -> bytes:
        """One entry of the archive, at most 64 MB.

        Raises:
            InputError: no such entry, too large, or damaged.
        """
        assert self.path is not None
        try:
            with zipfile.ZipFile(self.path) as archive:
                if archive.getinfo(name).file_size > _MAX_MEMBER:
                    raise InputError(f"{self.path}: its entry {name!r} is larger than 64 MB.")
                return archive.read(name)
        except DAMAGED as error:
            raise InputError(f"{self.path}: the archive is damaged at {name!r}.") from error

    def names(self) -> tuple[str, ...]:
        """Names right inside a folder, sorted; empty for a file."""
        if self.path is None or not self.is_folder:
            return ()
        return tuple(sorted(os.listdir(self.path)))

    def json(self, name: str = "") -> Any:
        """A JSON document: the file itself, or `name` inside the folder or archive; None when it is none."""
        try:
            if name and not self.is_folder:
                return json.loads(self.zip_read(name)) if name in self.zip_names() else None
            file = self.path / name if name and self.path else self.path
            if file is None or not file.is_file() or file.stat().st_size > _MAX_MEMBER:
                return None
            return json.loads(file.read_bytes())
        except (ValueError, OSError, RecursionError, InputError):
            return None

    @cached_property
    def _digest(self) -> str:
        if self.path is None:
            return ""
        if not self.is_folder:
            return sha256(self.path)
        total = hashlib.sha256()
        for file in self._files():
            total.update(f"{file.relative_to(self.path).as_posix()}\0{sha256(file)}\n".encode())
        return total.hexdigest()

    def sha256(self) -> str:
        """SHA-256 in hex; of a folder, over the sorted relative paths and digests of its files; "" without a path."""
        return self._digest

    def _files(self) -> list[Path]:
        if self.path is None:
            return []
        if not self.is_folder:
            return [self.path]
        return sorted(f for f in self.path.rglob("*") if f.is_file())[:_MAX_FILES]
