"""What Python's zipfile raises on archives that are damaged, encrypted, or packed in a way that it does not know."""

from __future__ import annotations

import lzma
import zipfile
import zlib

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
