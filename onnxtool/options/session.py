"""How ONNX Runtime runs a model: what every function with a parameter `options` takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

OptimizationLevel = Literal["off", "basic", "extended", "all"]
Spinning = Literal["auto", "never", "runs", "always"]


@dataclass(frozen=True)
class SessionOptions:
    """How a model is run.

    Attributes:
        provider: execution provider with its options as `parse_provider` reads it: "cpu", "cuda:device_id=1",
            "CPUExecutionProvider"; or several in order of priority.
        threads: intra-op threads; None leaves it to the runtime (all cores).
        optimization: the runtime's own graph optimizations at load time. Equality is judged with "off",
            because the runtime's optimizer is itself wrong at times (Pad followed by MaxPool).
        custom_op_libraries: shared libraries with custom operators; loading one runs its code.
        profile_prefix: when given, the runtime writes a profile with this path prefix.
        prepack: rearrange weights for speed; without it they stay where they are, mapped from external data, and take
            no memory of their own.
        spinning: whether threads that wait for work keep their core busy. "never"; "runs": until the run ends, for
            sessions that run in turn or are measured in alternation; "always": as the runtime does by itself; "auto":
            "never" on a machine with other work, where that takes half the time, else "runs".
        outputs_early: compute what hangs off a tensor as soon as the tensor is there, not at the end: tensors can
            then go early; for graphs with an output for each of many tensors.
        optimized_path: when given, the runtime writes its own optimized graph there: which kernels really run.
        lean: take less memory and a little more time: no plan of all allocations in one block.
        ep_libraries: shared libraries with plugin providers, or packages that bring one; loading one runs its code.
        settings: further entries of the session's configuration, such as ("session.intra_op.allow_spinning", "0").
        arena: keep memory for the next run.
        memory_pattern: plan all allocations of a run in one block.
        parallel: run independent nodes at the same time.
        record_placement: note which provider takes which node.
        fold: compute constant nodes when loading, which makes a copy of every weight that is transposed; without it
            they are computed as they come, or spared: a product takes its weight transposed.
    """

    provider: str | tuple[str, ...] = "cpu"
    threads: int | None = None
    optimization: OptimizationLevel = "all"
    custom_op_libraries: tuple[Path, ...] = ()
    profile_prefix: str | None = None
    spinning: Spinning = "auto"
    outputs_early: bool = False
    prepack: bool = True
    optimized_path: Path | None = None
    lean: bool = False
    fold: bool = True
    ep_libraries: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    arena: bool = True
    memory_pattern: bool = True
    parallel: bool = False
    record_placement: bool = False


DEFAULT = SessionOptions()
EXACT = SessionOptions(optimization="off")
