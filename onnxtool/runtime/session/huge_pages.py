"""Weights in huge pages: a decoder that reads all of them for every token is bound by memory and its page tables."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

_PAGE = 2 << 20
_ADVISE = 14  # MADV_HUGEPAGE: later pages of the region
_COLLAPSE = 25  # MADV_COLLAPSE: those that are there, at once; since Linux 6.1, elsewhere it fails without harm
_MAPS = Path("/proc/self/maps")


def use_huge_pages() -> int:
    """Put this process' large private memory into pages of 2 MB, where Linux lets programs ask for them.

    The runtime offers no such setting, and the C library's has to be there before the process starts. The content of
    the memory does not change. It takes about a second for each gigabyte.

    Returns:
        Bytes of the regions that were taken over; 0 on other systems, and where it is not allowed.
    """
    if sys.platform != "linux":
        return 0
    try:
        regions = [_large(line) for line in _MAPS.read_text().splitlines()]
    except OSError:
        return 0
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    done = 0
    for start, length in regions:
        if length and advise(start, length, _ADVISE) == 0:
            advise(start, length, _COLLAPSE)
            done += length
    return done


def _large(line: str) -> tuple[int, int]:
    """Start and length of the whole huge pages in a line of the process' map; length 0 where it is not such memory."""
    part = line.split()
    if not part[1].startswith("rw") or part[1].endswith("s") or (len(part) > 5 and part[5] != "[heap]"):
        return 0, 0
    low, high = (int(x, 16) for x in part[0].split("-"))
    start, end = -(-low // _PAGE) * _PAGE, high // _PAGE * _PAGE
    return start, max(0, end - start)
