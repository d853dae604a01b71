"""Which fusions of level all pay on a kind of processor, where nothing can be timed."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtool.errors import UsageError
from onnxtool.optimization.fusion_selection import FusionChoice, fusion_passes
from onnxtool.options.shared import TARGETS
from onnxtool.report.optimize import FamilyTrial

# The normalizations with a shortcut took 1.2 to 5.6 times as long as Add and normalization at lengths 16, 128 and 512
# on AVX-512 (benchmarks/fused_operators.py), and their kernel is the same plain loop for every processor. Grouped
# attention with a mask took 0.82 to 1.15 times as long as its parts. The others were at 0.5 to 1.05 there, or are what
# the runtime makes by itself at load on every processor.
_NEVER = frozenset(["fuse-skip-layernorm", "fuse-skip-rmsnorm", "fuse-masked-grouped-attention"])
_LEFT_OUT: dict[str, frozenset[str]] = {
    "avx2": _NEVER,
    "avx512": _NEVER,
    "vnni": _NEVER,
    "amx": _NEVER,
    "arm64": _NEVER,
    # Whatever it is: only what saves work on every processor, or costs nothing.
    "generic": _NEVER | {"fuse-packed-attention"},
}
assert set(_LEFT_OUT) == set(TARGETS)


def by_table(names: Sequence[str], target: str) -> FusionChoice:
    """Choose the families for a processor by the table: the same on every machine and in every run.

    Args:
        names: all passes that may run, in order.
        target: one of `options.shared.TARGETS`.

    Raises:
        UsageError: no such target.
    """
    if target not in _LEFT_OUT:
        raise UsageError(f"--target {target}: choose one of {', '.join(TARGETS)}.")
    out = _LEFT_OUT[target]
    trials = tuple(FamilyTrial(n, n not in out, None, f"by the table for {target}") for n in fusion_passes(names))
    return FusionChoice(tuple(n for n in names if n not in out), trials)
