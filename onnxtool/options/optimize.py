"""The options of `optimize`."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from onnxtool.options import shared
from onnxtool.options.option import option, proof_option, seldom_option, speed_option
from onnxtool.options.shared import TARGETS, Decimal, Dim, Required, Runtime, Shown, Tolerances

if TYPE_CHECKING:
    import numpy as np

PathLike = str | os.PathLike[str]


class Level(Enum):
    """How far an optimization may go.

    `basic` changes nothing that is computed; `extended` may round floats differently but uses standard operators only;
    `all` may also use the runtime's own fused operators (domain com.microsoft).
    """

    BASIC = "basic"
    EXTENDED = "extended"
    ALL = "all"

    @property
    def rank(self) -> int:
        """0, 1, 2: a level includes the passes of every lower rank."""
        return list(Level).index(self)

    def includes(self, other: Level) -> bool:
        """True when passes of level `other` run at this level."""
        return other.rank <= self.rank


@dataclass(frozen=True)
class OptimizeOptions(Tolerances):
    """What the user asked for.

    Attributes:
        data: inputs to compare on, as an .npz file or named arrays; random ones otherwise.
        input_shapes: dims to freeze, by input name (None: the only input).
        opset: convert the model to this version of the standard operators first, with ONNX's own converter.
        verify: compare; without it the result is written unchecked.
        bench: measure the latency ratio, and at level all which fusions pay; without it all of them stay.
        atol: absolute tolerance for floats, as a share of an output's largest value where that is above 1.
    """

    level: Level | str = speed_option(
        Level.EXTENDED,
        "basic changes nothing that is computed; extended may round floats differently, with standard operators only; "
        "all also uses the runtime's own fused operators.",
        metavar="basic|extended|all",
        complete="levels",
    )
    passes: Collection[str] = seldom_option(
        (), "Run just this pass. Repeatable.", "--pass", metavar="NAME", complete="passes"
    )
    skip: Collection[str] = seldom_option((), "Leave this pass out. Repeatable.", metavar="NAME", complete="passes")
    input_shapes: Mapping[str | None, tuple[Dim, ...]] | None = shared.INPUT_SHAPE(default=None, kind="shapes")
    freeze_initializers: bool = seldom_option(False, "Turn inputs that have a default into constants.")
    max_folded_bytes: int | None = seldom_option(
        None,
        "A folded constant may be larger than what it replaces by this much, such as 64MB. Without it, folding never "
        "makes the file larger.",
        "--max-folded-size",
        kind="size",
        metavar="SIZE",
    )
    opset: int | None = None
    data: PathLike | Mapping[str, np.ndarray] | None = shared.DATA()
    seed: int = shared.SEED(place=2)
    target: str | None = speed_option(
        None,
        "Choose the fusions of level all for another kind of processor, by a table, instead of by timing them here.",
        metavar="|".join(TARGETS),
        complete="targets",
    )
    strict: bool = shared.STRICT(help="Exit 1 when a pass had to be left out because it was wrong.")
    require: Required = shared.REQUIRE()
    verify: bool = proof_option(True, "Do not compare the result with the source.", "--no-verify")
    allow_unproven: bool = proof_option(
        False, "Write the result although no run told anything of some output (exit 1)."
    )
    bench: bool = speed_option(True, "Do not measure the latency.", "--no-bench")
    compiled: PathLike | None = option(
        None,
        "Also write what --provider compiles of the result (EPContext): it loads faster, there alone.",
        "--compile",
        metavar="FILE.onnx",
        step=False,
        place=1,
    )


@dataclass(frozen=True)
class OptimizeCommand(OptimizeOptions, Runtime, Shown):
    """What the command takes besides."""

    decimal: Decimal = shared.DECIMAL()
    model: Path | None = option(None, "The .onnx file.", argument=True, metavar="MODEL")
    output: Path | None = shared.WRITTEN(default=None)
    list_passes: bool = option(False, "Describe every pass, and exit.", step=False)
    upgrade_opset: int | None = option(None, "Lift the operator set to N first.", metavar="N", low=7)
    downgrade_opset: int | None = seldom_option(None, "Lower the operator set to N first.", metavar="N", low=7, place=1)
    threads: int | None = shared.THREADS(
        help="Threads of the runtime. Unless given, one where latency is measured, all cores elsewhere."
    )
    report_files: tuple[str, ...] = shared.REPORT_FILES()
    html: Path | None = shared.HTML()
