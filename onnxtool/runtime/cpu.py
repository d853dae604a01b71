"""What the processor can do for int8, asked of the operating system."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from onnxtool.report.doctor import CpuFeature

# Feature -> (names in /proc/cpuinfo or sysctl, what it means for quantized models).
_X86 = {
    "AVX2": ({"avx2"}, "fast float kernels; int8 gains little"),
    "AVX512": ({"avx512f"}, "wider float and int8 kernels"),
    "AVX-VNNI": ({"avx_vnni"}, "int8 dot products, 256 bit"),
    "AVX512-VNNI": ({"avx512_vnni"}, "int8 dot products, 512 bit: uint8 x int8 is fastest"),
    "AMX-INT8": ({"amx_int8"}, "int8 tiles: large matrix products"),
    "AVX512-BF16": ({"avx512_bf16"}, "bfloat16 dot products"),
}
_ARM = {
    "NEON": ({"asimd", "neon"}, "float and int8 kernels"),
    "DOTPROD": ({"asimddp", "FEAT_DotProd"}, "int8 dot products: int8 x int8 is fast"),
    "I8MM": ({"i8mm", "FEAT_I8MM"}, "int8 matrix products"),
    "BF16": ({"bf16", "FEAT_BF16"}, "bfloat16 dot products"),
}
_BUSY = 1.25  # times the cores, of the load average: our own threads are in it


def is_arm(machine: str | None = None) -> bool:
    """True on 32 and 64 bit ARM."""
    return (machine or platform.machine()).lower().startswith(("arm", "aarch"))


def features(flags: set[str] | None = None, machine: str | None = None) -> tuple[CpuFeature, ...]:
    """The instruction sets that matter for int8 on this kind of processor.

    Args:
        flags: the processor's own names for what it can do; read from the operating system unless given.
        machine: "x86_64", "aarch64", ...; this machine's unless given.
    """
    known = _ARM if is_arm(machine) else _X86
    flags = read_flags() if flags is None else flags
    return tuple(
        CpuFeature(name, bool(names & flags) if flags else None, meaning) for name, (names, meaning) in known.items()
    )


def read_flags() -> set[str]:
    """Feature flags in the operating system's spelling; empty when it does not tell."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        return parse_cpuinfo(cpuinfo.read_text(errors="replace"))
    if sys.platform == "darwin":
        return _darwin_flags()
    if sys.platform == "win32":
        return _windows_flags()
    return set()


def parse_cpuinfo(text: str) -> set[str]:
    """The flags ("flags" on x86, "Features" on ARM) of the first processor in /proc/cpuinfo."""
    match = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", text, re.MULTILINE)
    return set(match[1].split()) if match else set()


def _darwin_flags() -> set[str]:
    # x86: one list of upper-case names; Apple silicon: one sysctl for each feature.
    if not is_arm():
        text = _sysctl("machdep.cpu.features") + " " + _sysctl("machdep.cpu.leaf7_features")
        return {name.lower().replace("avx512vnni", "avx512_vnni") for name in text.split()}
    found = {name for name in ("FEAT_DotProd", "FEAT_I8MM", "FEAT_BF16") if _sysctl(f"hw.optional.arm.{name}") == "1"}
    return found | {"neon"}


def _sysctl(name: str) -> str:
    try:
        done = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def _windows_flags() -> set[str]:
    import ctypes

    # PF_* numbers of IsProcessorFeaturePresent in winnt.h; Windows has none for VNNI.
    numbers = {"avx2": 40, "avx512f": 41, "neon": 19, "asimddp": 43}
    present: Callable[[int], int] = ctypes.windll.kernel32.IsProcessorFeaturePresent  # type: ignore[attr-defined,unused-ignore]
    return {name for name, number in numbers.items() if present(number)}


def model_name() -> str:
    """What the processor calls itself."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        match = re.search(
            r"^(?:model name|Model|Hardware)\s*:\s*(.+)$", cpuinfo.read_text(errors="replace"), re.MULTILINE
        )
        if match:
            return match[1].strip()
    if sys.platform == "darwin":
        return _sysctl("machdep.cpu.brand_string")
    return platform.processor() or platform.machine()


def usable_cores() -> int:
    """Logical cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else (os.cpu_count() or 1)


def busy() -> bool:
    """More wants to run than there are cores; False where the system does not tell."""
    try:
        return os.getloadavg()[0] > _BUSY * usable_cores()
    except (AttributeError, OSError):
        return False


def physical_memory() -> int | None:
    """Bytes of physical memory; None when the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
