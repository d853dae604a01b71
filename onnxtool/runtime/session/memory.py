"""Memory that has been freed goes back to the system before more is taken, and a bound for sessions that have one."""

from __future__ import annotations

import ctypes
import gc
import sys
from functools import cache

import onnxruntime as ort

from onnxtool.runtime import cpu

_MOST = 2 << 30


@cache
def bounded_memory() -> tuple[tuple[str, str], ...]:
    """Settings of sessions that share one pool of memory: a run that needs more than it has fails.

    It has 2 GiB, or a quarter of the machine's memory where that is less; weights are not counted.
    """
    machine = cpu.physical_memory()
    most = _MOST if machine is None else min(_MOST, machine // 4)
    place = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    exactly = {"max_mem": most, "arena_extend_strategy": 1}  # 1: not more than is asked for
    ort.create_and_register_allocator(place, ort.OrtArenaCfg(exactly))
    return ("session.use_env_allocators", "1"), ("session.use_device_allocator_for_initializers", "1")


def giving_back() -> ort.RunOptions:
    """Options of runs after which the shared pool keeps nothing."""
    options = ort.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return options


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
