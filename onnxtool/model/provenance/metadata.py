"""Provenance: where a file came from, what was done to it, and its digest, kept in the model's own metadata_props."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

if TYPE_CHECKING:
    import onnx_ir as ir


HISTORY_KEY = "onnxtool.history"
COMPILE_STEP = "compile"  # of a form that one provider has compiled


def add_history(model: ir.Model, command: str, details: Mapping[str, Any]) -> None:
    """Append one step to the model's history (a JSON list; no clock, so that outputs are reproducible).

    Args:
        model: changed in place.
        command: the command that wrote the file ("optimize").
        details: JSON-ready facts, such as the source's SHA-256, options and library versions.
    """
    from onnxtool import __version__

    steps = read_history(model.metadata_props)
    steps.append({"command": command, "onnxtool": __version__, **details})
    model.metadata_props[HISTORY_KEY] = json.dumps(steps, sort_keys=True, ensure_ascii=False)


def read_history(metadata: Mapping[str, str]) -> list[dict[str, Any]]:
    """The steps recorded so far; an unreadable entry (a stranger's file) counts as none."""
    try:
        steps = json.loads(metadata.get(HISTORY_KEY, "[]"))
    except (ValueError, RecursionError):
        return []
    return [s for s in steps if isinstance(s, dict)] if isinstance(steps, list) else []


@cache  # reading a distribution's metadata takes milliseconds each time
def installed_version(package: str) -> str:
    """Of a distribution by its name; "" where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def versions(*packages: str) -> dict[str, str]:
    """Installed versions of the given distributions; missing ones are left out."""
    return {package: installed_version(package) for package in packages if installed_version(package)}


DIGEST_KEY = "onnxtool.digest"
DIGEST_BYTES = 92  # what it takes in the file
_PREFIX = "sha256:"
_WINDOW = 1 << 23  # bytes; what is mapped counts as memory of the process


def seal(body: bytes, external: Iterable[bytes] = ()) -> bytes:
    """The metadata entry to append to a serialized model.

    Protobuf allows it: the concatenation of two messages is their merge, and `metadata_props` is a repeated field.

    Args:
        body: a serialized ModelProto without such an entry.
        external: what `file_digest` gives for each of its external data files, in the order of their names.
    """
    return _entry(_digest(memoryview(body), external))


def file_digest(path: Path) -> bytes:
    """The SHA-256 of a file, 32 bytes."""
    # Large files are mapped, a window at a time: where copying from the page cache is slow (some virtual machines),
    # hashlib's own file_digest took 7 s of 2.3 GB for reading alone.
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < _WINDOW:
            return hashlib.file_digest(file, "sha256").digest()
        total = hashlib.sha256()
        for start in range(0, size, _WINDOW):
            with mmap.mmap(file.fileno(), min(_WINDOW, size - start), access=mmap.ACCESS_READ, offset=start) as window:
                total.update(window)
        return total.digest()


def sealed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces of a serialized model without external data, and at the end what `seal` gives for all of them."""
    total = hashlib.sha256()
    for piece in pieces:
        total.update(piece)
        yield piece
    yield _entry(total.hexdigest())


def check_seal(data: bytes, external: Iterable[Path]) -> tuple[str | None, str | None]:
    """The digest that a file bears and the one that it has; (None, None) when it bears none, or not at its end.

    Args:
        data: the bytes of the .onnx file.
        external: its external data files, in the order of their names.
    """
    length = len(_entry("0" * 64))
    body, tail = memoryview(data)[:-length], bytes(memoryview(data)[-length:])
    digest = tail[-64:].decode("ascii", "replace")
    if tail != _entry(digest):
        return None, None
    return _PREFIX + digest, _PREFIX + _digest(body, map(file_digest, external))


def _entry(digest: str) -> bytes:
    model = onnx.ModelProto()
    model.metadata_props.add(key=DIGEST_KEY, value=_PREFIX + digest)
    return bytes(model.SerializeToString())


def _digest(body: memoryview, external: Iterable[bytes]) -> str:
    total = hashlib.sha256(body)
    for digest in external:
        total.update(digest)
    return total.hexdigest()
