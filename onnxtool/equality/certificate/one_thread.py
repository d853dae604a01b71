"""numpy's matrix products on one thread.

The products of a certificate are small and many. numpy's OpenBLAS waits busily for its other threads: where other
programs hold the processors, a product on two threads took 50 times as long as on one.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module

_NAMES = ("scipy_openblas_{}_num_threads64_", "openblas_{}_num_threads64_", "openblas_{}_num_threads")


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside the block, numpy's OpenBLAS uses one thread, for all of the process; another BLAS stays as it is."""
    found = _openblas()
    if found is None:
        yield
        return
    count, limit = found
    before = count()
    limit(1)
    try:
        yield
    finally:
        limit(before)


@functools.cache
def _openblas() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """How to ask for the number of threads and to set it; the library is one that numpy's own extension has loaded."""
    try:
        loaded = ctypes.CDLL(str(import_module("numpy._core._multiarray_umath").__file__))
    except (ImportError, OSError):
        return None
    for name in _NAMES:
        if hasattr(loaded, name.format("get")) and hasattr(loaded, name.format("set")):
            return getattr(loaded, name.format("get")), getattr(loaded, name.format("set"))
    return None
