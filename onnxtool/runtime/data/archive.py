"""Arrays of .npz and .npy files: whole, or a few rows at a time, so that a compressed archive is never unpacked."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from onnxtool.errors import InputError, OnnxToolError, ResourceError
from onnxtool.model.safety.pickle_scan import DAMAGED

# A compressed archive that is larger unpacked than both of these is taken for a bomb.
_UNPACKED_LIMIT = 1 << 30
_RATIO_LIMIT = 200


@dataclass
class Columns:
    """One stored array.

    Attributes:
        shape: of the whole array.
        read: `read(rows)` starts a pass that gives `rows` rows (along the first dim) at a time.
        stacked: each row is one whole feed, so that the row dim is taken off.
    """

    shape: tuple[int, ...]
    read: Callable[[int], Iterator[np.ndarray]]
    stacked: bool = False


def read_npz(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Read all arrays of an .npz file, or the one of an .npy file (key ""). Object arrays are refused.

    Raises:
        InputError: missing, no npz, or holding pickled objects.
    """
    path = Path(path)
    try:
        verify_regular(path)
        _verify_archive(path)
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"": loaded}
        with loaded:
            return {name: _array(loaded, name, path) for name in loaded.files}
    except OnnxToolError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file.") from error
    except Exception as error:  # numpy raises ValueError, BadZipFile, EOFError, OSError, ... on damaged files
        raise InputError(f"{path}: {_why_not_npz(path, error)}.") from error


def read_npy(path: Path) -> np.ndarray:
    """The array of an .npy file.

    Raises:
        InputError: missing, damaged, an .npz file, or holding pickled objects.
    """
    arrays = read_npz(path)
    if "" not in arrays:
        raise InputError(f"{path}: is not an .npy file.")
    return arrays[""]


def _array(archive: Any, name: str, path: Path) -> np.ndarray:
    try:
        array: np.ndarray = archive[name]
    except ValueError as error:
        if "allow_pickle" in str(error):
            raise InputError(f"{path}: array {name!r} {_PICKLED}") from error
        raise
    return array


_PICKLED = (
    "holds pickled objects, which are not loaded: save it with a plain type, such as array.astype(str) or "
    "array.astype(numpy.float32)."
)


def verify_regular(path: Path) -> None:
    """A pipe would keep us waiting, a device may never end."""
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: is not a regular file.")


def _verify_archive(path: Path) -> None:
    """Look at a zip's directory before anything is unpacked.

    Raises:
        InputError: a member that is not an .npy array.
        ResourceError: it would unpack to very much more than it is.
    """
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    for member in members:
        if not member.filename.endswith(".npy"):
            raise InputError(f"{path}: it holds {member.filename!r}, which is not an .npy array.")
    unpacked = sum(member.file_size for member in members)
    if unpacked > _UNPACKED_LIMIT and unpacked > _RATIO_LIMIT * path.stat().st_size:
        raise ResourceError(
            f"{path}: it would unpack to {unpacked / 1e9:.1f} GB, over {_RATIO_LIMIT} times its size; save it with "
            "numpy.savez, uncompressed, if that is right."
        )


def _why_not_npz(path: Path, error: Exception) -> str:
    """Numpy takes whatever is neither .npy nor .npz for a pickle; only what looks like one is called so."""
    try:
        with open(path, "rb") as file:
            head = file.read(6)
    except OSError as unreadable:
        return f"cannot be read ({unreadable.strerror})"
    ours = head.startswith((b"PK", b"\x93NUMPY"))
    if "allow_pickle" in str(error) and (ours or head.startswith(b"\x80")):
        return "holds pickled objects, which are not loaded"
    return "is damaged or cut off" if ours else "is not an .npz or .npy file"


def open_npz(path: Path) -> dict[str, Columns]:
    """The arrays of an .npz file by name.

    Raises:
        InputError: no .npz file, damaged, or holding pickled objects or what is not an array.
        ResourceError: it would unpack to very much more than it is.
    """
    try:
        verify_regular(path)
        _verify_archive(path)
        with zipfile.ZipFile(path) as archive:
            members = [n for n in archive.namelist() if n.endswith(".npy")]
            return {name.removesuffix(".npy"): _member(path, archive, name) for name in members}
    except DAMAGED as error:
        raise InputError(f"{path}: is not an .npz file, or it is damaged ({error}).") from error


def open_npy(path: Path) -> dict[str, Columns]:
    """The lone array of an .npy file, under "".

    Raises:
        InputError: missing, no .npy file, or holding pickled objects.
    """
    try:
        verify_regular(path)
        with open(path, "rb") as file:
            shape, fortran, dtype = _header(file, path)

        def read(rows: int) -> Iterator[np.ndarray]:
            with open(path, "rb") as file:
                _header(file, path)
                yield from _rows(file, shape, fortran, dtype, rows, path)

        return {"": Columns(shape, read)}
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file.") from error
    except (ValueError, OSError, EOFError) as error:
        raise InputError(f"{path}: is not an .npy file, or it is damaged ({error}).") from error


def _member(path: Path, archive: zipfile.ZipFile, name: str) -> Columns:
    with archive.open(name) as file:
        shape, fortran, dtype = _header(file, path)

    def read(rows: int) -> Iterator[np.ndarray]:
        try:
            with zipfile.ZipFile(path) as again, again.open(name) as file:
                _header(file, path)
                yield from _rows(file, shape, fortran, dtype, rows, path)
        except DAMAGED as error:
            raise InputError(f"{path}: {name} is damaged ({error}).") from error

    return Columns(shape, read)


def _header(file: IO[bytes], path: Path) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = reader(file)
    if dtype.hasobject:
        raise InputError(f"{path}: holds pickled objects, which are not loaded.")
    return tuple(int(d) for d in shape), fortran, dtype


def _rows(
    file: IO[bytes], shape: tuple[int, ...], fortran: bool, dtype: np.dtype, rows: int, path: Path
) -> Iterator[np.ndarray]:
    if not shape or fortran:
        # Columns-first arrays have no contiguous rows: there is no way around the whole array.
        count = int(np.prod(shape, dtype=np.int64))
        array = np.frombuffer(_exactly(file, count * dtype.itemsize, path), dtype)
        array = array.reshape(shape, order="F" if fortran else "C")
        if not shape:
            yield array
            return
        for start in range(0, shape[0] - rows + 1, rows):
            yield np.ascontiguousarray(array[start : start + rows])
        return
    row_bytes = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
    for _ in range(shape[0] // rows):
        yield np.frombuffer(_exactly(file, rows * row_bytes, path), dtype).reshape((rows, *shape[1:]))


def _exactly(file: IO[bytes], count: int, path: Path) -> bytes:
    data = file.read(count)
    if len(data) != count:
        raise InputError(f"{path}: the file is cut off.")
    return data
