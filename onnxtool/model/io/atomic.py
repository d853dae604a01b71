"""Files that appear as a whole or not at all, and leave nothing behind when the process is killed."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# The process id in the name tells the next run whether anyone still writes there. onnx_ir writes external data in a
# temporary folder of its own beside ours: a dot before our name, and some letters after it.
_TEMPORARY = re.compile(r"\.\.?(?P<name>.+)\.(?P<pid>\d+)-[0-9a-f]{12}\.tmp(\.\w+)?", re.DOTALL)


def write_atomic(path: Path, payload: bytes | Iterable[bytes]) -> None:
    """Write bytes beside `path`, fsync, rename over it, fsync the folder.

    Raises:
        OSError: as the file system gives it; the temporary file is removed.
    """
    path = settled(path)
    with staged(path) as temporary:
        fill(temporary, payload)
        replace(temporary, path)


def settled(path: Path) -> Path:
    """Where writing to `path` really goes: a symbolic link stays and its target is replaced.

    Raises:
        OSError: the link leads back to itself.
    """
    try:
        return path.resolve() if path.is_symlink() else path
    except RuntimeError as error:  # what Python before 3.13 makes of a loop
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from error


@contextmanager
def staged(path: Path) -> Iterator[Path]:
    """A temporary name in the folder of `path`; whatever is still there at the end is removed.

    Temporary files that a killed process left for the same `path` are removed first.
    """
    sweep(path)
    temporary = path.with_name(f".{_short(path.name)}.{os.getpid()}-{secrets.token_hex(6)}.tmp")
    try:
        yield temporary
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _short(name: str) -> str:
    """As much of a name as leaves room for the rest of a temporary one; file systems count bytes, not letters."""
    return os.fsencode(name)[:200].decode(sys.getfilesystemencoding(), "ignore")


def fill(path: Path, payload: bytes | Iterable[bytes]) -> None:
    """Write a new file and bring it to the disk."""
    with open(path, "xb") as file:
        for chunk in (payload,) if isinstance(payload, bytes) else payload:
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


def replace(temporary: Path, path: Path) -> None:
    """Rename over `path`, which keeps its permissions."""
    if path.exists():
        os.chmod(temporary, stat.S_IMODE(path.stat().st_mode))
    os.replace(temporary, path)
    with suppress(OSError):  # some file systems do not allow it on a folder
        sync(path.parent)


def sweep(path: Path) -> None:
    """Remove the temporary files of `path` whose process has ended."""
    with suppress(OSError):
        for entry in os.scandir(path.parent):
            found = _TEMPORARY.fullmatch(entry.name)
            if found and found["name"].lstrip(".") == _short(path.name).lstrip(".") and not _alive(int(found["pid"])):
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        shutil.rmtree(entry.path)
                    else:
                        os.unlink(entry.path)


@contextmanager
def locked(path: Path, flags: int = os.O_RDONLY, *, shared: bool = False) -> Iterator[None]:
    """One writer at a time in a folder, for the instant in which several files are renamed together.

    An advisory lock on the folder itself, so that no lock file is left. Where there is none (Windows, some network
    file systems) the body runs without it.

    Args:
        path: the folder, or a file.
        flags: how it is opened.
        shared: others may hold it too that share it.
    """
    descriptor = None
    with suppress(ImportError, OSError):
        import fcntl

        descriptor = os.open(path, flags, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def sync(path: Path) -> None:
    """Bring a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
