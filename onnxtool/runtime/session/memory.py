"""Memory that has been freed goes back to the system before more is taken, and a bound for sessions that have one."""

from __future__ import annotations

import ctypes
import gc
import math
import sys
from functools import cache
from pathlib import Path

import onnxruntime as ort

from onnxtool.model.safety.limits import DEFAULT
from onnxtool.runtime import cpu

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


_WORTHWHILE = 16_000_000  # bytes to give back


@cache
def bounded_memory() -> tuple[tuple[str, str], ...]:
    """Settings of sessions that share one pool of memory: a run that needs more than it has fails.

    It has half of what a call into native code may take, which would end the process, or a quarter of the machine's
    memory where that is less; weights are not counted.
    """
    machine, most = cpu.physical_memory(), DEFAULT.max_memory_bytes // 2
    most = most if machine is None else min(most, machine // 4)
    place = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    exactly = {"max_mem": most, "arena_extend_strategy": 1}  # 1: not more than is asked for
    ort.create_and_register_allocator(place, ort.OrtArenaCfg(exactly))
    return ("session.use_env_allocators", "1"), ("session.use_device_allocator_for_initializers", "1")


def giving_back(options: ort.RunOptions | None = None) -> ort.RunOptions:
    """Options of runs after which the pool of memory keeps nothing that is free; made of those that are given."""
    options = options or ort.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return options


def release_memory(freed: float = math.inf) -> None:
    """Give freed memory back to the system.

    The C library keeps what was freed for its next use, in pieces between what is still in use: after the preparation
    of a model that is as much as its weights, and a session that is loaded next takes its memory beside it.

    Args:
        freed: bytes that may have been, such as of a model. For few nothing is done: looking for what refers to itself
            in circles, as graphs do, takes longer than most of what is done with a small model.
    """
    if freed < _WORTHWHILE:
        return
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc alone
        if trim is not None:
            trim(0)
