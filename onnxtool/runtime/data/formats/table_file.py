"""A table's file as bytes or lines: unpacked within limits, decoded, and complained of by line."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from onnxtool.errors import InputError, ResourceError, needs_extra

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

EXTRA = "tables"
COMPRESSIONS = (".gz", ".zst")
# A file that is larger unpacked than both of these is taken for a bomb.
UNPACKED_LIMIT = 1 << 28
RATIO_LIMIT = 200
_LONGEST_LINE = 1 << 24  # letters


@dataclass(frozen=True)
class TableFile:
    """A file that holds a table.

    Attributes:
        label: what messages call it.
        suffix: that of its format, in small letters: ".csv" of "x.CSV.gz".
        compression: ".gz", ".zst" or "".
        content: opens the bytes as they are.
        size: of these bytes.
        decimal: what stands before the decimals of a number.
        path: None of what is no file.
    """

    label: str
    suffix: str
    compression: str
    content: Callable[[], IO[bytes]]
    size: int
    decimal: str = "."
    path: Path | None = None

    @classmethod
    def of(cls, path: Path, decimal: str = ".") -> TableFile:
        """The file at a path; nothing is read yet."""
        suffix, compression = split_suffix(path)
        return cls(str(path), suffix, compression, lambda: open(path, "rb"), path.stat().st_size, decimal, path)

    @classmethod
    def in_memory(cls, content: bytes, suffix: str, label: str) -> TableFile:
        """Bytes that came otherwise, such as the body of a request."""
        return cls(label, suffix, "", lambda: io.BytesIO(content), len(content))

    def open(self) -> IO[bytes]:
        """The bytes, unpacked.

        Raises:
            InputError: they cannot be read.
            MissingExtraError: nothing here unpacks them.
            ResourceError: while reading, they are very much more than the file.
        """
        if not self.compression:
            return self.content()
        if self.compression == ".gz":
            content = self.content()
            unpacked: Any = gzip.GzipFile(fileobj=content)
        else:
            with needs_extra(self.label, "pyarrow", EXTRA):
                import pyarrow
            content = self.content()
            unpacked = pyarrow.CompressedInputStream(content, "zstd")
        most = max(UNPACKED_LIMIT, RATIO_LIMIT * self.size)
        return io.BufferedReader(_Bounded(unpacked, content, most, self.label), 1 << 16)

    def lines(self) -> Iterator[str]:
        """The lines of a text in UTF-8 (or UTF-16 with its mark), each with its end.

        Raises:
            InputError: another encoding, damaged, or a line of more than 16 million letters; names the line.
        """
        number = 0
        try:
            with self.open() as raw:
                buffered: Any = raw if hasattr(raw, "peek") else io.BufferedReader(cast(io.RawIOBase, raw))
                wide = buffered.peek(2)[:2] in (b"\xff\xfe", b"\xfe\xff")
                encoding = "utf-16" if wide else "utf-8-sig"
                text = io.TextIOWrapper(buffered, encoding, errors="surrogateescape", newline="")
                while line := text.readline(_LONGEST_LINE):
                    number += 1
                    if len(line) == _LONGEST_LINE:
                        raise InputError(f"{self.label}, line {number}: it has more than {_LONGEST_LINE} letters.")
                    if not line.isascii():
                        self._check_letters(line, number)
                    yield line
        except (OSError, EOFError, zlib.error, UnicodeError) as error:
            where = f", line {number + 1}" if number else ""
            raise InputError(f"{self.label}{where}: cannot be read ({error}).") from error

    def _check_letters(self, line: str, number: int) -> None:
        try:
            line.encode()
        except UnicodeEncodeError as error:
            byte = ord(line[error.start]) & 0xFF
            raise InputError(
                f"{self.label}, line {number}: byte 0x{byte:02X} is not UTF-8. Save the file as UTF-8."
            ) from error


def split_suffix(path: Path) -> tuple[str, str]:
    """The suffixes of a file's format and of its compression, in small letters: (".csv", ".gz") of "x.csv.gz"."""
    last = path.suffix.lower()
    if last in COMPRESSIONS:
        return Path(path.stem).suffix.lower(), last
    return last, ""


class _Bounded(io.RawIOBase):
    """A stream that is not believed to end: past so many bytes it is refused."""

    def __init__(self, stream: IO[bytes], packed: IO[bytes], most: int, label: str) -> None:
        self._stream, self._packed, self._left, self._most, self._label = stream, packed, most, most, label

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """As of `io.RawIOBase`.

        Raises:
            ResourceError: there is more than the limit.
        """
        view = memoryview(buffer)
        found = self._stream.read(len(view))
        self._left -= len(found)
        if self._left < 0:
            raise ResourceError(
                f"{self._label}: it unpacks to more than {self._most / 1e9:.1f} GB, over {RATIO_LIMIT} times its size; "
                "unpack it first if that is right."
            )
        view[: len(found)] = found
        return len(found)

    def close(self) -> None:
        """Close what is read from, too."""
        self._stream.close()
        self._packed.close()
        super().close()
