"""What the user asked of `optimize`."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from onnxtool.model.spec import Dim
from onnxtool.optimization.pass_base import Level

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class OptimizeOptions:
    """What the user asked for.

    Attributes:
        level: "basic" (nothing computed differently), "extended" (floats may round differently) or "all" (the
            runtime's own fused operators too).
        passes: run just these; see `list_passes`.
        skip: leave these out.
        data: inputs to compare on, as an .npz file or named arrays; random ones otherwise.
        input_shapes: dims to freeze, by input name (None: the only input).
        freeze_initializers: graph inputs with a default become constants.
        max_folded_bytes: a folded tensor may be larger than what it replaces by this many bytes; without it,
            folding never makes the file larger.
        opset: convert the model to this version of the standard operators first, with ONNX's own converter.
        rtol: relative tolerance for floats.
        atol: absolute tolerance for floats, as a share of an output's largest value where that is above 1.
        seed: of the random inputs.
        verify: compare; without it the result is written unchecked.
        bench: measure the latency ratio, and at level all which fusions pay; without it all of them stay.
        strict: a pass that had to be dropped makes the report's verdict bad.
        target: choose the fusions of level all for this kind of processor, by a table (see `runtime.cpu.TARGETS`),
            instead of by timing them on this machine.
        compiled: another file to write: the result as the provider has compiled it (EPContext).
    """

    level: Level | str = Level.EXTENDED
    passes: Collection[str] = ()
    skip: Collection[str] = ()
    data: PathLike | Mapping[str, np.ndarray] | None = None
    input_shapes: Mapping[str | None, tuple[Dim, ...]] | None = None
    freeze_initializers: bool = False
    max_folded_bytes: int | None = None
    opset: int | None = None
    rtol: float = 1e-3
    atol: float = 1e-5
    seed: int = 0
    verify: bool = True
    bench: bool = True
    strict: bool = False
    target: str | None = None
    compiled: PathLike | None = None
