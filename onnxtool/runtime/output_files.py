"""Files that `run` writes: what the outputs' file is called says its format."""

from __future__ import annotations

import csv
import io as bytes_io
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onnxtool.errors import ResourceError, UsageError
from onnxtool.model import io
from onnxtool.model.io.atomic import write_atomic

FORMATS = (".npz", ".npy", ".csv")


def check_output_file(path: Path) -> None:
    """Refuse, before any work is done, what cannot be written.

    Raises:
        UsageError: another format, or as `check_output`.
    """
    io.check_output(path)
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"-o {path}: outputs are written as {', '.join(FORMATS)}; end the name with one of these.")


def write_outputs(path: Path, values: Mapping[str, Any]) -> None:
    """Write named arrays in the format that the file's name says, as a whole or not at all.

    Args:
        path: .npz for all of them; .npy for one; .csv with a row for each entry of their first dim, which they share,
            and a column for each element of the rest: `name` or `name[0,1]`.
        values: outputs by name; bfloat16 is written as float32, which holds it exactly.

    Raises:
        UsageError: the format cannot hold them.
        ResourceError: no space or no permission.
    """
    suffix = path.suffix.lower()
    if suffix == ".npz":
        write_npz(path, values)
        return
    arrays = {name: _storable(np.asarray(value)) for name, value in values.items()}
    if suffix == ".csv":
        _write(path, _table(path, arrays).encode())
        return
    if len(arrays) != 1:
        raise UsageError(f"-o {path}: an .npy file holds one array, and there are {_listed(arrays)}; write .npz.")
    buffer = bytes_io.BytesIO()
    np.lib.format.write_array(buffer, next(iter(arrays.values())), allow_pickle=False)
    _write(path, buffer.getvalue())


def write_npz(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write named arrays atomically.

    numpy's own savez cannot take every name (an output called "file"), hence the zip file by hand.

    Raises:
        ResourceError: no space or no permission.
    """
    buffer = bytes_io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, value in arrays.items():
            # A fixed date: the same outputs give the same bytes.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, _storable(np.asarray(value)), allow_pickle=False)
    _write(path, buffer.getvalue())


def _table(path: Path, arrays: Mapping[str, np.ndarray]) -> str:
    rows = {a.shape[0] if a.ndim else None for a in arrays.values()}
    if len(rows) != 1 or None in rows:
        raise UsageError(
            f"-o {path}: a table needs outputs with the same number of rows, and there are {_listed(arrays)}; write "
            ".npz."
        )
    columns = [array.reshape(array.shape[0], int(np.prod(array.shape[1:]))) for array in arrays.values()]
    text = bytes_io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([title for name, array in arrays.items() for title in _titles(name, array.shape[1:])])
    for parts in zip(*columns, strict=True):
        writer.writerow([str(value) for part in parts for value in part])  # str of a float32 has the digits it needs
    return text.getvalue()


def _titles(name: str, shape: tuple[int, ...]) -> Iterator[str]:
    for place in np.ndindex(*shape):
        yield f"{name}[{','.join(map(str, place))}]" if place else name


def _listed(arrays: Mapping[str, np.ndarray]) -> str:
    return ", ".join(f"{name} {list(array.shape)}" for name, array in arrays.items())


def _write(path: Path, payload: bytes) -> None:
    try:
        write_atomic(path, payload)
    except OSError as error:
        raise ResourceError(f"{path}: cannot be written ({error.strerror or error}).") from error


def _storable(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "O":
        return array.astype(np.str_)
    return array.astype(np.float32) if array.dtype.kind == "V" else array
