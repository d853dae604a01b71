"""Memory that has been freed goes back to the system before more is taken."""

from __future__ import annotations

import ctypes
import gc
import sys


def release_memory(*, collect: bool = True) -> None:
    """Give freed memory back to the system.

    The C library keeps what was freed for its next use, in pieces between what is still in use: after the preparation
    of a model that is as much as its weights, and a session that is loaded next takes its memory beside it.

    Args:
        collect: look for what refers to itself in a circle too, which takes some ten milliseconds.
    """
    if collect:
        gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc alone
        if trim is not None:
            trim(0)
