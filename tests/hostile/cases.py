"""What a hostile or damaged file is, and what each command may answer to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

MODEL_COMMANDS = (
    *("check", "inspect", "optimize", "quantize", "compare", "run", "convert"),
    *("diff", "bench", "verify"),
)
DATA_COMMANDS = ("compare", "run", "quantize", "bench")

QUICK = ("--limit", "seconds=2")
Codes = dict[str, frozenset[int]]


def codes(*right: int, **exceptions: tuple[int, ...]) -> Codes:
    """Right exit codes for every command, with exceptions by command."""
    return {c: frozenset(exceptions.get(c, right)) for c in MODEL_COMMANDS}


def shown(*right: int, **exceptions: tuple[int, ...]) -> Codes:
    """As `codes`, for what can be read: `inspect` and `diff` may show it, and `verify` finds no digest in it."""
    return codes(*right, **{"inspect": (0, 3), "diff": (0, 1, 3), "verify": (1, 3), "convert": (3, 4), **exceptions})


# Nothing may ever end with 2 (usage), 70 (a bug), or a signal.
UNREADABLE = codes(3)
UNSAFE = codes(5, convert=(3, 5))  # convert looks no further than that it is an ONNX file
LIMIT = codes(3, 6, verify=(1, 3, 6))  # verify finds no digest in what it can read
NO_ARRAY = codes(3, check=(1, 3))
# Readable protobuf that is not a sound model: `inspect` may show it, nothing may be made of it.
INVALID = shown(1, 3, 4)
TOLERATED = shown(1, 3, 4, run=(0, 3), compare=(0, 3), bench=(0, 3))
# Sound by the letter, but what it asks for is beyond time or memory.
EXCESSIVE = shown(1, 3, 4, 6, inspect=(0, 3, 6))
# Odd, but a runtime or a specification may well accept it.
ODD = shown(0, 1, 3, 4)
# Odd, and sound: it must work.
VALID = shown(0, inspect=(0,), diff=(0, 1), verify=(1,), quantize=(0, 1, 4), compare=(0, 3))  # 3: other dims


@dataclass(frozen=True)
class Case:
    """One file.

    Attributes:
        name: unique; also the seed of whatever is random in it.
        write: writes the file (and what belongs to it) into an empty folder and gives its path.
        codes: command -> exit codes that are right.
        data: it is input data for a sound model, not a model.
        options: what the command lines of `convert` get besides.
        limit: what all of them do; two seconds of a file that never ends are as telling as the usual ten, and quicker.
    """

    name: str
    write: Callable[[Path], Path]
    codes: Codes
    data: bool = False
    options: tuple[str, ...] = ()
    limit: tuple[str, ...] = ()

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands that this file is given to."""
        return tuple(self.codes)


def file(name: str, content: bytes) -> Callable[[Path], Path]:
    """A writer of one file."""

    def write(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(content)
        return path

    return write


def unique(cases: Iterable[Case]) -> list[Case]:
    """The cases as a list; names must not repeat."""
    found = list(cases)
    names = [c.name for c in found]
    twice = {n for n in names if names.count(n) > 1}
    assert not twice, twice
    return found
