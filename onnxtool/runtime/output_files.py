"""Files that `run` writes: what the outputs' file is called says its format."""

from __future__ import annotations

import gzip
import io as bytes_io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from onnxtool.errors import UsageError, needs_extra, writing
from onnxtool.model import io
from onnxtool.model.io.atomic import write_atomic
from onnxtool.runtime.data.formats.registry import find_format, suffixes
from onnxtool.runtime.data.formats.table_file import EXTRA, split_suffix

Columns = Mapping[str, Sequence[str]]


def check_output_file(path: Path) -> None:
    """Refuse, before any work is done, what cannot be written.

    Raises:
        MissingExtraError: what writes this format is not installed.
        UsageError: another format, or as `check_output`.
    """
    io.check_output(path)
    form = find_format(path)
    if form is None and path.suffix.lower() not in (".npz", ".npy"):
        known = ", ".join((".npz", ".npy", *suffixes()))
        raise UsageError(f"-o {path}: outputs are written as {known}; end the name with one of these.")
    if form is not None:
        table_bytes(path, {"": np.zeros(0)})  # what is missing shows here


def write_outputs(path: Path, values: Mapping[str, Any], names: Columns = MappingProxyType({})) -> None:
    """Write named arrays in the format that the file's name says, as a whole or not at all.

    Args:
        path: .npz for all of them; .npy for one; of a table's format for `table_columns`.
        values: outputs by name; bfloat16 is written as float32, which holds it exactly.
        names: as of `table_columns`.

    Raises:
        UsageError: the format cannot hold them.
        ResourceError: no space or no permission.
    """
    if path.suffix.lower() == ".npz":
        write_npz(path, values)
        return
    if find_format(path) is not None:
        _write(path, table_bytes(path, values, names))
        return
    arrays = {name: _storable(np.asarray(value)) for name, value in values.items()}
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


def table_columns(values: Mapping[str, Any], names: Columns = MappingProxyType({})) -> dict[str, np.ndarray]:
    """Outputs as columns of a table: a row for each entry of their first dim, which they share.

    Args:
        values: by name.
        names: what the elements of a row of an output are called, where that is known.

    Returns:
        A column [rows] for each element of the other dims, called `name` where there is one, else `name[0,1]` or by its
        own name `name[yes]`; texts are objects.

    Raises:
        UsageError: they do not share it.
    """
    arrays = {name: np.asarray(value) for name, value in values.items()}
    rows = {a.shape[0] if a.ndim else None for a in arrays.values()}
    if len(rows) != 1 or None in rows:
        raise UsageError(
            f"a table needs outputs with the same number of rows, and there are {_listed(arrays)}; write .npz."
        )
    columns: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        flat = _storable(array).reshape(array.shape[0], int(np.prod(array.shape[1:], dtype=int)))
        plain = flat.astype(object) if flat.dtype.kind == "U" else flat
        columns |= dict(zip(_titles(name, array.shape[1:], names.get(name, ())), plain.T, strict=True))
    return columns


def table_bytes(path: Path, values: Mapping[str, Any], names: Columns = MappingProxyType({})) -> bytes:
    """The bytes of a table's file: in the format, and with the compression, that its name says.

    Raises:
        MissingExtraError: what writes it is not installed.
        UsageError: the values are no table.
    """
    try:
        columns = table_columns(values, names)
    except UsageError as error:
        raise UsageError(f"-o {path}: {error}") from error
    form, (suffix, compression) = find_format(path), split_suffix(path)
    assert form is not None
    content = form.write(columns, suffix)
    if compression == ".gz":
        return gzip.compress(content, mtime=0)
    if compression:
        with needs_extra(str(path), "pyarrow", EXTRA):
            import pyarrow
        return bytes(pyarrow.compress(content, "zstd", asbytes=True))
    return content


def _titles(name: str, shape: tuple[int, ...], own: Sequence[str]) -> list[str]:
    places = list(np.ndindex(*shape))
    if len(places) == 1:
        return [name]
    if len(own) == len(places) and len(set(own)) == len(own):
        return [f"{name}[{label}]" for label in own]
    return [f"{name}[{','.join(map(str, place))}]" for place in places]


def _listed(arrays: Mapping[str, np.ndarray]) -> str:
    return ", ".join(f"{name} {list(array.shape)}" for name, array in arrays.items())


def _write(path: Path, payload: bytes) -> None:
    with writing(path):
        write_atomic(path, payload)


def _storable(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "O":
        return array.astype(np.str_)
    return array.astype(np.float32) if array.dtype.kind == "V" else array
