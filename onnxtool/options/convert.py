"""The options of `convert`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from onnxtool.options import shared
from onnxtool.options.option import input_option, option, output_option, proof_option, seldom_option
from onnxtool.options.shared import Decimal, Dim, Effort, Required, Shown

if TYPE_CHECKING:
    import numpy as np

Exporter = Literal["auto", "dynamo", "torchscript"]
Layout = Literal["nhwc", "nchw"]


@dataclass(frozen=True)
class ConvertOptions:
    """What the user asked for. An adapter reads what concerns it and leaves the rest alone.

    Attributes:
        input_shapes: input name -> dims; the key "" stands for the only input. str = dynamic dim with that name,
            None = unnamed dynamic dim.
        sample: real inputs, used in place of random ones: arrays by name, whose shapes and dtypes describe the inputs,
            or a table.
        verbose: 2 or more lets the exporters chatter.
        custom_op_libraries: shared libraries with the runtime's side of custom operators.
        adapter: name of the adapter to use; None = the first that recognises the source.
    """

    factory: str | None = shared.FACTORY(of_source=True)
    factory_args: Mapping[str, Any] = shared.FACTORY_ARG(of_source=True)
    python_path: tuple[Path, ...] = shared.PYTHON_PATH(of_source=True)
    trust: bool = shared.TRUST(of_source=True)
    input_shapes: Mapping[str, tuple[Dim, ...]] = shared.INPUT_SHAPE(default={}, kind="shapes by name", of_source=True)
    input_dtypes: Mapping[str, np.dtype | str] = shared.INPUT_DTYPE(of_source=True)
    sample: Any = input_option(
        None,
        "Real inputs to verify on, in place of random ones: .npz, which gives shapes and dtypes too, or a table (.csv, "
        ".tsv, .jsonl, .parquet, .feather).",
        kind="sample",
        metavar="FILE",
        role="data",
        of_source=True,
    )
    input_names: tuple[str, ...] = output_option(
        (), "Names for the inputs.", kind="names", metavar="A,B,...", of_source=True
    )
    output_names: tuple[str, ...] = output_option(
        (), "Names for the outputs.", kind="names", metavar="A,B,...", of_source=True
    )
    opset: int | None = output_option(None, "Opset to write; the newest that the runtime fully has unless given.")
    effort: Effort = shared.EFFORT()
    strict: bool = shared.STRICT()
    require: Required = shared.REQUIRE()
    keep_counterexample: Path | None = shared.KEEP_COUNTEREXAMPLE()
    max_flips: int = proof_option(
        0, "Rows of --sample that may come out differently in a file that is written all the same.", metavar="N"
    )
    seed: int = shared.SEED()
    verbose: int = shared.VERBOSE()
    custom_op_libraries: tuple[Path, ...] = shared.CUSTOM_OPS(of_source=True, place=0)
    exporter: Exporter = seldom_option(
        "auto", "auto, dynamo or torchscript.", kind="text", choices=Exporter, complete="exporters"
    )
    keep_metadata: bool = seldom_option(False, "Keep torch's stack traces in the file.")
    task: str | None = option(None, "Hugging Face: what the model is for.")
    adapter: str | None = None
    signature: str | None = seldom_option(None, "SavedModel: which one.", place=2)
    frozen_inputs: tuple[str, ...] = seldom_option(
        (), "Frozen graph: its inputs.", "--inputs", kind="names", metavar="A,B,...", place=2
    )
    frozen_outputs: tuple[str, ...] = seldom_option(
        (), "Frozen graph: its outputs.", "--outputs", kind="names", metavar="A,B,...", place=2
    )
    layout: Layout | None = output_option(
        None, "nchw turns image inputs channels-first.", kind="text", choices=Layout, complete="layouts", place=2
    )
    zipmap: bool = seldom_option(False, "Probabilities as a map, not a tensor.", "--zipmap/--no-zipmap", place=2)


@dataclass(frozen=True)
class ConvertCommand(ConvertOptions, Shown):
    """What the command takes besides."""

    decimal: Decimal = shared.DECIMAL()
    provider: tuple[str, ...] = shared.PROVIDER(step=False)
    ep_library: tuple[str, ...] = shared.EP_LIBRARY(step=False)
    output: Path = shared.WRITTEN(place=-1)
    source: Path | None = option(
        None, "The model: a file or folder. None with --factory alone.", argument=True, metavar="SOURCE"
    )
    rtol: float = shared.RTOL(place=-1)
    atol: float = shared.ATOL(place=-1)
    verify_result: bool = proof_option(True, "Write without comparing; the file's metadata says so.", "--no-verify")
    allow_unproven: bool = proof_option(
        False, "Write the file although no run told anything of an output of numbers (exit 1)."
    )
    keep_failed: Path | None = proof_option(None, "Keep a file that fails the comparison.", metavar="FILE", step=False)
    reproducible: bool = output_option(
        False, "The same bytes from run to run: no measured values in the metadata.", step=False, place=1
    )
    lora: Path | None = seldom_option(
        None, "Language model: merge the LoRA adapter in this folder.", "--adapter", metavar="DIR", step=False, place=1
    )
    separate_adapter: bool = option(
        False, "Keep the LoRA weights of --adapter apart, as a file for run --adapter.", step=False
    )
    eval_text: Path | None = proof_option(
        None, "Language model: measure the perplexity on this text.", "--eval", metavar="FILE.txt", step=False
    )
