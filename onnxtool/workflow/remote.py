"""Files behind URLs, by fsspec: sources, data, outputs, and a cache that several machines share.

Credentials belong into the environment, where fsspec's own back ends look for them. Those that stand in a URL are used
and never shown: not in messages, reports, locks.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from onnxtool.errors import InputError, MissingExtraError, OnnxToolError, needs_extra
from onnxtool.model.io.atomic import write_atomic
from onnxtool.workflow.digests import text_digest
from onnxtool.workflow.steps import Step
from onnxtool.workflow.store import Entry, Store, StoredFile

_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def is_remote(text: str) -> bool:
    """True for a URL."""
    return _URL.match(text) is not None


def shown(url: str) -> str:
    """A URL without its user, password and query."""
    if not is_remote(url):
        return url
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def base_name(place: str) -> str:
    """The name of the file that a path or URL leads to."""
    return Path(urlsplit(place).path or urlsplit(place).netloc).name if is_remote(place) else Path(place).name


class RemoteFiles:
    """What is behind the URLs of a build, brought into the cache's folder; each once in a build."""

    def __init__(self, folder: Path) -> None:
        """Keep downloads in this folder."""
        self._folder = folder / "remote"
        self._known: dict[str, Path] = {}

    def local(self, place: str, root: Path) -> Path:
        """The file of a path or URL on this machine.

        Raises:
            InputError: it cannot be reached, or is not there.
            MissingExtraError: fsspec, or its back end, is not installed.
        """
        if not is_remote(place):
            return root / place
        if place not in self._known:
            target = self._folder / text_digest(place)[:24] / base_name(place)
            with _system(place) as (system, path):
                target.parent.mkdir(parents=True, exist_ok=True)
                if system.isdir(path):
                    system.get(path, str(target), recursive=True)
                else:
                    system.get_file(path, str(target))
            self._known[place] = target
        return self._known[place]

    def local_step(self, step: Step, root: Path) -> Step:
        """A step whose options name files of this machine only."""
        known, options = step.declared(), dict(step.options)
        for name, value in step.options.items():
            if known[name].role in ("file", "data") and isinstance(value, str) and is_remote(value):
                options[name] = str(self.local(value, root))
            elif known[name].role == "files":
                texts = [value] if isinstance(value, str) else value
                options[name] = [str(self.local(v, root)) if is_remote(v) else v for v in texts]
        return replace(step, options=options)


def published_remotely(output: str, files: Mapping[str, StoredFile]) -> bool:
    """True when every file lies behind its URL with the content that it should have; it is read for that."""
    with suppress(InputError):
        return all(_content_digest(_beside(output, name)) == file.sha256 for name, file in files.items())
    return False


def publish_remotely(store: Store, output: str, files: Mapping[str, StoredFile]) -> None:
    """Copy a result out of the cache to a URL; external data first.

    Raises:
        InputError: it cannot be written there.
    """
    for name, file in sorted(files.items(), key=lambda item: item[0] == base_name(output)):
        with _system(_beside(output, name)) as (system, path):
            _make_parent(system, path)
            system.put_file(str(store.blob(file.sha256)), path)


class RemoteCache:
    """A cache behind a URL, in front of which a folder of this machine stands."""

    def __init__(self, url: str) -> None:
        """Take the URL of a folder."""
        self._url = url.rstrip("/")

    def pull_reads(self, store: Store, key: str) -> None:
        """Bring what is known of the files that the code of a step reads."""
        content = self._read(f"reads/{key[:2]}/{key}.json")
        if content is not None and not store.reads(key):
            _write(store.folder / "reads" / key[:2] / f"{key}.json", content)

    def pull(self, store: Store, key: str) -> Entry | None:
        """Bring an entry and its files; None when it is not there, or something of it is damaged."""
        content = self._read(f"entries/{key[:2]}/{key}.json")
        if content is None:
            return None
        place = store.folder / "entries" / key[:2] / f"{key}.json"
        _write(place, content)
        entry = store.entry(key)
        for file in entry.files.values() if entry is not None else ():
            if store.holds(file):
                continue
            blob = self._read(f"blobs/{file.sha256[:2]}/{file.sha256}")
            if blob is None or hashlib.sha256(blob).hexdigest() != file.sha256:
                return None
            _write(store.blob(file.sha256), blob)
        return store.find(key)

    def push(self, store: Store, entry: Entry, reads_key: str) -> None:
        """Put an entry there; its files first, so that it is never there without them.

        Raises:
            InputError: the place cannot be written to.
        """
        names = [f"blobs/{f.sha256[:2]}/{f.sha256}" for f in entry.files.values()]
        names += [f"reads/{reads_key[:2]}/{reads_key}.json", f"entries/{entry.key[:2]}/{entry.key}.json"]
        for name in names:
            if (store.folder / name).is_file():
                with _system(f"{self._url}/{name}") as (system, path):
                    if not (name.startswith("blobs/") and system.exists(path)):
                        _make_parent(system, path)
                        system.put_file(str(store.folder / name), path)

    def _read(self, name: str) -> bytes | None:
        with _system(f"{self._url}/{name}") as (system, path):
            if not system.exists(path):
                return None
            content: bytes = system.cat_file(path)
            return content


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, content)


def _beside(output: str, name: str) -> str:
    """The URL of another file in the folder of `output`."""
    parts = urlsplit(output)
    if name == base_name(output):
        return output
    return urlunsplit((parts.scheme, parts.netloc, f"{parts.path.rpartition('/')[0]}/{name}", parts.query, ""))


def _content_digest(url: str) -> str:
    with _system(url) as (system, path):
        if not system.exists(path):
            return ""
        with system.open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def _make_parent(system: Any, path: str) -> None:
    parent = path.rpartition("/")[0]
    if parent:
        with suppress(Exception):  # stores of objects have no folders
            system.makedirs(parent, exist_ok=True)


@contextmanager
def _system(url: str) -> Iterator[tuple[Any, str]]:
    """The file system and path of a URL; whatever goes wrong with them is one line without credentials."""
    with needs_extra(shown(url), "fsspec", "remote"):
        from fsspec.core import url_to_fs
    try:
        system, path = url_to_fs(url)
    except ImportError as error:
        scheme = url.partition(":")[0]
        raise MissingExtraError(shown(url), f"fsspec's back end for {scheme}://", "remote") from error
    except Exception as error:
        raise InputError(f"{shown(url)}: cannot be opened ({type(error).__name__}).") from error
    try:
        yield system, path
    except FileNotFoundError as error:
        raise InputError(f"{shown(url)}: is not there.") from error
    except OnnxToolError:
        raise
    except Exception as error:  # every back end has errors of its own
        raise InputError(f"{shown(url)}: cannot be reached ({type(error).__name__}).") from error
