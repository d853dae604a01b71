"""Traits of processors that decide how to quantize for them."""

from __future__ import annotations

from dataclasses import dataclass

from onnxtool.errors import UsageError
from onnxtool.quantization.kernel_table import table_named
from onnxtool.quantization.recipe import ActivationType, Form
from onnxtool.runtime.cpu import features, is_arm

# What a node takes against float, roughly, where nothing can be timed: medians over the models of the benchmarks.
COST = {"static": 0.4, "dynamic": 0.45, "blocks": 0.7}


@dataclass(frozen=True)
class Target:
    """How to quantize for a kind of processor.

    Attributes:
        name: as --target has it.
        activations: the integer type its kernels are fastest with.
        reduced: 7-bit weights, because its u8 x s8 products saturate.
        note: what was chosen and why, for the report; empty when nothing special was.
        form: the Q/DQ form that a provider's parser wants.
    """

    name: str
    activations: ActivationType = "u8"
    reduced: bool = False
    note: str = ""
    form: Form = ""


_SATURATES = (
    "weights have 7 bits: processors without VNNI add u8 x s8 products in 16 bits, which saturate with 8-bit weights"
)
TARGETS = {
    "avx2": Target("avx2", reduced=True, note=_SATURATES),
    "avx512": Target("avx512", reduced=True, note=_SATURATES),
    "vnni": Target("vnni"),
    "amx": Target("amx"),
    "arm64": Target("arm64", activations="s8", note="activations are s8, which ARM kernels are fastest with"),
    "generic": Target("generic", reduced=True, note=_SATURATES),
    "tensorrt": Target("TensorRT", activations="s8", form="tensorrt"),
}


def find_target(name: str | None) -> Target:
    """A target by name, or by a file of `doctor --measure`; None is this machine.

    Raises:
        UsageError: no such target.
    """
    if name is None:
        return this_machine()
    table = table_named(name)
    if table is not None:
        arm = any(f in ("NEON", "DOTPROD", "I8MM") for f in table.features)
        like = this_machine(set(table.features), arm)
        return Target(table.cpu, "s8" if arm else "u8", like.reduced, like.note)
    if name not in TARGETS:
        raise UsageError(
            f"--target {name}: choose one of {', '.join(TARGETS)}, or a .json file of onnxtool doctor --measure."
        )
    return TARGETS[name]


def this_machine(present: set[str] | None = None, arm: bool | None = None) -> Target:
    """The traits of the processor at hand.

    Args:
        present: names of its features; asked of the operating system unless given.
        arm: an ARM processor; asked likewise.
    """
    if is_arm() if arm is None else arm:
        return Target("this machine")  # everything is timed here: u8 stands beside s8 on equal terms
    found = {f.name for f in features() if f.present} if present is None else present
    if not found or found & {"AVX512-VNNI", "AVX-VNNI", "AMX-INT8"}:
        return Target("this machine")
    return Target("this machine", reduced=True, note=_SATURATES)
