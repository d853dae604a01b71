"""The safetensors format: a JSON header of names, types, shapes and places, then the bytes. Nothing in it is code.

Source: github.com/huggingface/safetensors, README, "Format".
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import onnx_ir as ir

from onnxtool.errors import InputError, UsageError, writing
from onnxtool.model.io import write_atomic
from onnxtool.model.io.tensor_bytes import pieces

STORED: Mapping[str, str] = {  # ONNX's names of element types that a file may have here, and the format's
    "FLOAT": "F32",
    "DOUBLE": "F64",
    "FLOAT16": "F16",
    "BOOL": "BOOL",
    **{f"{'U' * u}INT{b}": f"{'U' if u else 'I'}{b}" for u in (0, 1) for b in (8, 16, 32, 64)},
}
_TYPES = {short: ir.DataType[name] for name, short in STORED.items()}
_MOST_HEADER = 100_000_000  # bytes, as in the format's own reader
_MOST_RANK = 64


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of a file.

    Attributes:
        name: in the file and in the model.
        tensor: its values, which stay on the disk until they are asked for.
        shape: dims.
        dtype: element type.
        size: bytes.
    """

    name: str
    tensor: ir.TensorProtocol
    shape: tuple[int, ...]
    dtype: ir.DataType
    size: int

    @classmethod
    def of(cls, name: str, tensor: ir.TensorProtocol) -> TensorEntry:
        """A model's own weight."""
        return cls(name, tensor, tuple(int(d) for d in tensor.shape if isinstance(d, int)), tensor.dtype, tensor.nbytes)

    def digest(self) -> str:
        """SHA-256 of the bytes, in hex, read a few MB at a time."""
        found = hashlib.sha256()
        for piece in pieces(self.tensor):
            found.update(piece)
        return found.hexdigest()


def write_file(path: Path, entries: Sequence[TensorEntry]) -> None:
    """Write tensors as a whole or not at all.

    Raises:
        UsageError: the folder does not exist, or the name is a folder's.
        ResourceError: no space, no permission.
    """
    header: dict[str, Any] = {}
    at = 0
    for entry in entries:
        header[entry.name] = {
            "dtype": STORED[entry.dtype.name],
            "shape": list(entry.shape),
            "data_offsets": [at, at + entry.size],
        }
        at += entry.size
    text = json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)

    def payload() -> Iterator[bytes]:
        yield struct.pack("<Q", len(text)) + text
        for entry in entries:
            yield from pieces(entry.tensor)

    if path.is_dir() or not path.parent.exists():
        raise UsageError(f"{path}: is a folder, or lies in one that does not exist.")
    with writing(path):
        write_atomic(path, payload())


def open_file(path: Path) -> dict[str, TensorEntry]:
    """The tensors of a file, by name; their values stay on the disk.

    Raises:
        InputError: missing, damaged, or a size in it that is not true.
    """
    try:
        total = path.stat().st_size
        with open(path, "rb") as file:
            head = file.read(8)
            length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
            if not 2 <= length <= min(_MOST_HEADER, total - 8):
                raise InputError(f"{path}: is not a safetensors file.")
            header = json.loads(file.read(length).decode("utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not a safetensors file.") from error
    if not isinstance(header, dict):
        raise InputError(f"{path}: is not a safetensors file.")
    start = 8 + length
    return {name: _entry(path, name, item, start, total) for name, item in header.items() if name != "__metadata__"}


def _entry(path: Path, name: str, item: Any, start: int, total: int) -> TensorEntry:
    wrong = InputError(f"{path}: the entry {name[:80]!r} is damaged.")
    if not isinstance(item, dict):
        raise wrong
    kind, shape, offsets = item.get("dtype"), _whole(item.get("shape")), _whole(item.get("data_offsets"))
    if shape is None or offsets is None or kind not in _TYPES or len(offsets) != 2 or len(shape) > _MOST_RANK:
        raise wrong
    dtype = _TYPES[kind]
    size = prod(shape) * dtype.bitwidth // 8
    if offsets[1] - offsets[0] != size or start + offsets[1] > total:
        raise wrong
    place = path.resolve()
    tensor = ir.ExternalTensor(
        place.name, start + offsets[0], size, dtype, shape=ir.Shape(shape), name=name, base_dir=place.parent
    )
    return TensorEntry(name, tensor, tuple(shape), dtype, size)


def _whole(numbers: Any) -> list[int] | None:
    """A list of sizes; None for anything else."""
    good = isinstance(numbers, list) and all(type(n) is int and 0 <= n < 1 << 62 for n in numbers)
    return numbers if good else None
