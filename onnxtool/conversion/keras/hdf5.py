"""A look at an HDF5 file's structure before Keras reads it: whole, no reference to other files, no sizes that lie.

HDF5 can take a dataset's bytes from any file of the machine (external storage, external links, virtual datasets), and
a declared dataset takes no room until it is read.
"""

from __future__ import annotations

import io
import zipfile
from types import ModuleType
from typing import Any

from onnxtool.conversion.source import Source
from onnxtool.errors import InputError, OnnxToolError, ResourceError, UnsafeError, one_line
from onnxtool.runtime.worker.isolation import guarded

WEIGHTS = "model.weights.h5"
_UNPACKED_LIMIT = 1 << 30  # bytes; as for archives: beyond this and so many times the file it is taken for a bomb
_RATIO_LIMIT = 200
_COMPRESSED_LIMIT = 1 << 26  # a compressed member is unpacked as a whole


def verify_structure(source: Source, h5py: ModuleType) -> None:
    """Walk over the groups and datasets of an HDF5 file, or of the weights in a `.keras` archive.

    Raises:
        InputError: damaged.
        UnsafeError: it refers to another file.
        ResourceError: its datasets declare very much more than the file holds.
    """
    try:
        with guarded("reading the structure of the HDF5 file", source.size):
            if not source.zip_names():
                with h5py.File(source.path, "r") as file:
                    _walk(source, file, h5py)
            elif WEIGHTS in source.zip_names():
                assert source.path is not None
                with zipfile.ZipFile(source.path) as archive:
                    _walk_member(source, archive, h5py)
    except OnnxToolError:
        raise
    except Exception as error:  # h5py raises OSError, RuntimeError, KeyError, ValueError, ... on damaged files
        text = one_line(error, 200)
        raise InputError(f"{source}: the HDF5 file is damaged or cut off ({text}).") from error


def _walk_member(source: Source, archive: zipfile.ZipFile, h5py: ModuleType) -> None:
    member = archive.getinfo(WEIGHTS)
    if member.compress_type == zipfile.ZIP_STORED:
        with archive.open(member) as stream, h5py.File(stream, "r") as file:
            _walk(source, file, h5py)
    elif member.file_size <= _COMPRESSED_LIMIT:
        with h5py.File(io.BytesIO(archive.read(member)), "r") as file:
            _walk(source, file, h5py)


def _walk(source: Source, file: Any, h5py: ModuleType) -> None:
    declared = 0
    pending, seen = [file], set()
    while pending:
        group = pending.pop()
        for name in group:
            link = group.get(name, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                raise UnsafeError(f"{source}: {name!r} in it is a link to another file, {link.filename!r}.")
            if isinstance(link, h5py.SoftLink):
                continue  # it leads to what is found elsewhere in this file
            item = group[name]
            if item.id in seen:
                continue
            seen.add(item.id)
            if isinstance(item, h5py.Group):
                pending.append(item)
            elif isinstance(item, h5py.Dataset):
                if item.external or item.is_virtual:
                    raise UnsafeError(f"{source}: the dataset {name!r} in it takes its values from other files.")
                declared += item.size * item.dtype.itemsize if item.size else 0
    if declared > max(_UNPACKED_LIMIT, _RATIO_LIMIT * source.size):
        raise ResourceError(f"{source}: its datasets declare {declared} bytes, far more than the file holds.")
