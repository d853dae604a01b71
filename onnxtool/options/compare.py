"""The options of `compare`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxtool.options import shared
from onnxtool.options.option import input_option, option, proof_option, seldom_option
from onnxtool.options.session import OptimizationLevel
from onnxtool.options.shared import Decimal, Dim, Effort, Required, Runtime, Shown

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class CompareOptions:
    """What the user asked for.

    Attributes:
        names: how to call the two in the report; their paths unless given.
    """

    data: Any = shared.DATA()
    images: str = shared.IMAGES()
    layers: bool = proof_option(False, "Compare every tensor inside, and name the first that is wrong.")
    bisect: str | os.PathLike[str] | None = seldom_option(
        None, "Cut out the smallest part that differs, and leave it here with its inputs.", metavar="DIR", step=False
    )
    reference: bool = proof_option(False, "Ask ONNX's reference implementation as a third opinion.")
    tolerances: Mapping[str, Any] | None = seldom_option(
        None,
        "Tolerance of one output, ATOL in its units. Repeatable.",
        "--tolerance",
        kind="tolerances",
        metavar="NAME:RTOL,ATOL",
        complete="output_names",
    )
    batches: Sequence[int] = seldom_option(
        (), "Batch sizes of random inputs.", "--batch-sizes", kind="counts", metavar="N[,N...]"
    )
    samples: int | None = input_option(None, "How many random inputs to run on.", low=1)
    top_k: int = seldom_option(5, "Largest elements of a row that -v compares.", metavar="K", low=2)
    edge: bool = seldom_option(False, "Also run on zeros, extremes and an empty batch.")
    rtol: float = shared.RTOL(place=2)
    atol: float = shared.ATOL(place=2)
    effort: Effort = shared.EFFORT(place=2)
    strict: bool = shared.STRICT(place=2)
    require: Required = shared.REQUIRE(place=2)
    keep_counterexample: str | os.PathLike[str] | None = shared.KEEP_COUNTEREXAMPLE(place=2)
    seed: int = shared.SEED(place=2)
    names: tuple[str, str] | None = None


@dataclass(frozen=True)
class CompareCommand(CompareOptions, Runtime, Shown):
    """What the command takes besides."""

    decimal: Decimal = shared.DECIMAL()
    a: Path = option(MISSING, "The reference: an .onnx or framework file, or a URL.", argument=True, metavar="A")
    b: Path | None = option(
        None, "The model to judge, likewise; none with --golden and --record.", argument=True, metavar="[B]"
    )
    quantized: bool = option(False, "B is A quantized: judge it by the accuracy budget of quantize, not equality.")
    record: Path | None = proof_option(None, "Keep A's inputs and outputs here.", metavar="DIR", step=False, place=1)
    golden: Path | None = proof_option(None, "Hold A against what --record kept.", metavar="DIR", step=False, place=1)
    opt_level: OptimizationLevel = seldom_option(
        "all", "The runtime's own graph optimizations at load time.", choices=OptimizationLevel, place=1
    )
    provider_b: tuple[str, ...] = option(
        (),
        "Run B on this provider, A on that of --provider. Repeatable, in order of priority.",
        metavar="NAME[:KEY=VALUE,...]",
    )
    factory: str | None = shared.FACTORY(step=False)
    factory_args: Mapping[str, Any] = shared.FACTORY_ARG(step=False)
    python_path: tuple[Path, ...] = shared.PYTHON_PATH(step=False, place=85)
    trust: bool = shared.TRUST(step=False)
    input_shapes: Mapping[str, tuple[Dim, ...]] = shared.INPUT_SHAPE(default={}, kind="shapes by name", step=False)
    input_dtypes: Mapping[str, np.dtype | str] = shared.INPUT_DTYPE(step=False)
    report_files: tuple[str, ...] = shared.REPORT_FILES()
    junit: Path | None = shared.JUNIT()
    markdown: Path | None = shared.MARKDOWN()
    html: Path | None = shared.HTML()
