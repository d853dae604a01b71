"""The files of a saved program, found by what they hold: `.json` or `.pdmodel`, and `.pdiparams` beside it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from onnxtool.conversion.source import Source
from onnxtool.errors import InputError

WEIGHTS = ".pdiparams"
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
        InputError: several programs, or weights alone.
    """
    found = programs(source)
    if not found:
        raise InputError(f"{source}: these are weights alone; the program that uses them (.json, .pdmodel) is missing.")
    if len(found) > 1:
        names = ", ".join(path.name for path in found[:6])
        raise InputError(f"{source}: this folder holds several programs ({names}); name the one to convert.")
    weights = found[0].with_suffix(WEIGHTS)
    return ProgramFiles(found[0], weights if weights.is_file() else None)


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
