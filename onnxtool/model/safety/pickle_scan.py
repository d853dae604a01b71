"""What a pickle would import, read off its opcodes without running them.

For the refusal's message only: a pickle is refused whatever it names, because names can be computed and any import runs
code.
"""

from __future__ import annotations

import bz2
import io
import lzma
import pickletools
import zipfile
import zlib
from collections.abc import Callable, Iterator

DAMAGED: tuple[type[Exception], ...] = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    KeyError,
    OSError,
    ValueError,
    EOFError,
    NotImplementedError,
    RuntimeError,
)


_MOST = 16 << 20  # bytes looked at, after unpacking
_SEVERAL = 10  # pickles in a row: torch before 1.6 wrote five

_UNPACKERS: dict[bytes, tuple[str, Callable[[bytes], bytes]]] = {
    b"\x1f\x8b": ("gzip", lambda data: zlib.decompressobj(31).decompress(data, _MOST)),
    b"\x78": ("zlib", lambda data: zlib.decompressobj().decompress(data, _MOST)),
    b"BZh": ("bz2", lambda data: bz2.BZ2Decompressor().decompress(data, _MOST)),
    b"\xfd7zXZ\0": ("xz", lambda data: lzma.LZMADecompressor().decompress(data, _MOST)),
    b"\x5d\0\0": ("lzma", lambda data: lzma.LZMADecompressor(lzma.FORMAT_ALONE).decompress(data, _MOST)),
}


def unpacked(data: bytes) -> tuple[str, bytes] | None:
    """How a file (or its beginning) is compressed ("" for not at all), and what is inside; None when damaged."""
    for magic, (name, unpack) in _UNPACKERS.items():
        if data.startswith(magic):
            try:
                return name, unpack(data)
            except (OSError, EOFError, zlib.error, lzma.LZMAError):
                return None
    return "", data[:_MOST]


def pickled_imports(data: bytes) -> list[str] | None:
    """Names ("posix.system") that the pickles in a file would import; None when it holds no pickle.

    Args:
        data: the file: a pickle, compressed or not, or a zip archive with pickles (`torch.save`, object arrays).
    """
    found: dict[str, None] = {}
    pickles = 0
    for stream in _pickles(data):
        names, sound = _imports(stream)
        pickles += sound
        found.update(dict.fromkeys(names))
    return list(found) if pickles else None


def _pickles(data: bytes) -> Iterator[bytes]:
    if data.startswith(b"PK\x03\x04"):
        yield from _members(data)
        return
    inside = unpacked(data)
    if inside is not None:
        yield inside[1]


def _members(data: bytes) -> Iterator[bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.infolist():
                if member.filename.endswith((".pkl", ".npy")):
                    with archive.open(member) as file:
                        content = file.read(_MOST)
                    # An object array is a pickle behind numpy's header, which ends with a newline.
                    yield content.partition(b"\n")[2] if content.startswith(b"\x93NUMPY") else content
    except DAMAGED:
        return


def _imports(stream: bytes) -> tuple[list[str], bool]:
    """The names, and whether it is a pickle at all."""
    names: list[str] = []
    source = io.BytesIO(stream)
    ended = False
    for _ in range(_SEVERAL):
        if not _one(source, names):
            break
        ended = True
    # Protocols from 2 on begin with their number; a pickle that is cut off still tells what it names.
    return names, ended or (stream[:1] == b"\x80" and bool(names))


def _one(source: io.BytesIO, names: list[str]) -> bool:
    """Read one pickle up to its STOP; False when it ends before that or is none."""
    strings: list[str] = []
    memo: list[str] = []
    try:
        for opcode, argument, _ in pickletools.genops(source):
            if opcode.name in ("GLOBAL", "INST"):
                names.append(str(argument).replace(" ", "."))
            elif opcode.name == "STACK_GLOBAL":
                names.append(".".join(strings[-2:]))
            elif opcode.name == "MEMOIZE":
                memo.append(strings[-1] if strings else "")
            elif opcode.name in ("BINGET", "LONG_BINGET") and isinstance(argument, int) and argument < len(memo):
                strings.append(memo[argument])
            elif isinstance(argument, str):
                strings.append(argument)
        return True
    except Exception:  # pickletools raises whatever damaged bytes lead it to
        return False
