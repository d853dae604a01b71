"""The files of a saved program, found by what they hold: `.json` or `.pdmodel`, and `.pdiparams` beside it."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path

from onnxtool.conversion.source import Source
from onnxtool.errors import InputError

WEIGHTS = ".pdiparams"
# Of Paddle's numbers for element types.
_BYTES = {0: 1, 1: 2, 2: 4, 3: 8, 4: 2, 5: 4, 6: 8, 20: 1, 21: 1, 22: 2, 23: 8, 24: 16}
# Paddle 3: a program of its intermediate representation (PIR), as JSON.
_JSON = (b'"base_code"', b'"magic":"pir"')
# Paddle 2: ProgramDesc, whose first block has the index 0 and no parent (-1).
_PROTOBUF = b"\x08\x00\x10" + b"\xff" * 9 + b"\x01"


@dataclass(frozen=True)
class ProgramFiles:
    """A program and its weights.

    Attributes:
        program: `.json` or `.pdmodel`.
        weights: None for a program without any.
    """

    program: Path
    weights: Path | None

    @property
    def is_json(self) -> bool:
        """Whether Paddle 3 wrote it."""
        return _form(self.program) == ".json"

    @property
    def size(self) -> int:
        """Bytes of both."""
        return sum(file.stat().st_size for file in (self.program, self.weights) if file is not None)

    def link(self, folder: Path) -> str:
        """Make links to both in a folder that holds nothing else, and give their common name without a suffix.

        Paddle reads what it finds beside a program by name: a `.pdiparams.info` is a pickle, which it would load.
        """
        name = folder / "model"
        os.symlink(self.program.resolve(), name.with_suffix(".json" if self.is_json else ".pdmodel"))
        if self.weights is not None:
            os.symlink(self.weights.resolve(), name.with_suffix(WEIGHTS))
        return str(name)


def programs(source: Source) -> list[Path]:
    """The programs that a source stands for: itself, the one beside its weights, or those in a folder."""
    if source.path is None:
        return []
    if source.is_folder:
        candidates = [source.path / name for name in source.names()]
    elif source.suffix == WEIGHTS:
        candidates = [source.path.with_suffix(suffix) for suffix in (".json", ".pdmodel")]
    else:
        candidates = [source.path]
    return [path for path in candidates if path.is_file() and _form(path)]


def find_files(source: Source) -> ProgramFiles:
    """The one program of a source, with its weights.

    Raises:
        InputError: several programs, weights alone, or damaged ones.
    """
    found = programs(source)
    if not found:
        raise InputError(f"{source}: these are weights alone; the program that uses them (.json, .pdmodel) is missing.")
    if len(found) > 1:
        names = ", ".join(path.name for path in found[:6])
        raise InputError(f"{source}: this folder holds several programs ({names}); name the one to convert.")
    weights = found[0].with_suffix(WEIGHTS)
    if not weights.is_file():
        return ProgramFiles(found[0], None)
    if not _is_whole(weights):
        raise InputError(f"{weights}: damaged or cut off.")
    return ProgramFiles(found[0], weights)


def _is_whole(weights: Path) -> bool:
    """Whether the file ends with a tensor: Paddle fills the rest of the last one with what memory holds.

    Source: SerializeToStream and TensorToStream of Paddle. A tensor is the version (4 bytes), the number of levels (8)
    with a size (8) and as many bytes each, again a version (4), the size (4) of a VarType.TensorDesc, that, and data.
    """
    end = weights.stat().st_size
    with open(weights, "rb") as file:
        try:
            while file.tell() < end:
                _, levels = struct.unpack("<IQ", file.read(12))
                for _ in range(min(levels, end)):
                    file.seek(struct.unpack("<Q", file.read(8))[0], os.SEEK_CUR)
                _, size = struct.unpack("<II", file.read(8))
                file.seek(_data_bytes(file.read(min(size, end))), os.SEEK_CUR)
        except (struct.error, KeyError, IndexError, OverflowError, OSError):
            return False
        return file.tell() == end


def _data_bytes(description: bytes) -> int:
    """Bytes of a tensor's data: of the element type (field 1) times the dims (field 2).

    Raises:
        KeyError, IndexError: it is damaged.
    """
    position, total = 0, 1
    while position < len(description):
        key, position = description[position], position + 1
        value = shift = 0
        while True:
            byte, position = description[position], position + 1
            value, shift = value | (byte & 127) << shift, shift + 7
            if byte < 128:
                break
        total *= _BYTES[value] if key == 8 else value
    return total


def _form(path: Path) -> str:
    """The suffix that Paddle gives a file of this content; "" for a file that is no program."""
    try:
        with open(path, "rb") as file:
            head = file.read(256)
    except OSError:
        return ""
    if head[:1] == b"{" and all(mark in head.replace(b" ", b"") for mark in _JSON):
        return ".json"
    return ".pdmodel" if head[:1] == b"\x0a" and _PROTOBUF in head[:32] else ""
