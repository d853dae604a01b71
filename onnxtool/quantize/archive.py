"""Arrays of .npz and .npy files, read a few rows at a time: a compressed archive is never unpacked as a whole."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from onnxtool.errors import InputError


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


def open_npz(path: Path) -> dict[str, Columns]:
    """The arrays of an .npz file by name.

    Raises:
        InputError: no .npz file, damaged, or holding pickled objects.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = [n for n in archive.namelist() if n.endswith(".npy")]
            return {name.removesuffix(".npy"): _member(path, archive, name) for name in members}
    except (zipfile.BadZipFile, ValueError, OSError, EOFError, NotImplementedError) as error:
        raise InputError(f"{path}: is no .npz file, or it is damaged ({error}).") from error


def open_npy(path: Path) -> dict[str, Columns]:
    """The lone array of an .npy file, under "".

    Raises:
        InputError: missing, no .npy file, or holding pickled objects.
    """
    try:
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
        raise InputError(f"{path}: is no .npy file, or it is damaged ({error}).") from error


def _member(path: Path, archive: zipfile.ZipFile, name: str) -> Columns:
    with archive.open(name) as file:
        shape, fortran, dtype = _header(file, path)

    def read(rows: int) -> Iterator[np.ndarray]:
        try:
            with zipfile.ZipFile(path) as again, again.open(name) as file:
                _header(file, path)
                yield from _rows(file, shape, fortran, dtype, rows, path)
        except (zipfile.BadZipFile, EOFError, OSError) as error:
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
