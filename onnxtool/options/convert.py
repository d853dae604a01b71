"""The options of `convert`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from onnxtool.options.option import INPUT, OUTPUT, PROOF, SELDOM, option
from onnxtool.options.shared import (
    ATOL,
    CUSTOM_OPS,
    EFFORT,
    EP_LIBRARY,
    FACTORY,
    FACTORY_ARG,
    INPUT_DTYPE,
    INPUT_SHAPE,
    KEEP_COUNTEREXAMPLE,
    PROVIDER,
    PYTHON_PATH,
    RTOL,
    SEED,
    STRICT,
    TRUST,
    VERBOSE,
    WRITTEN,
    Dim,
    Effort,
    Shown,
)

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
        input_dtypes: input name -> dtype, "" likewise.
        sample: real inputs, by name; used in place of random ones. Its shapes and dtypes describe the inputs.
        opset: the ONNX opset to write; None = the newest that the embedded runtime fully supports.
        input_names: names for the inputs, in order; () = the model's own.
        output_names: likewise.
        factory: "file.py:function" or "package.module:Class".
        factory_args: keyword arguments for the factory.
        python_path: folders to import from while loading.
        trust: may load formats that run code.
        seed: of random inputs.
        verbose: 2 or more lets the exporters chatter.
        custom_op_libraries: shared libraries with the runtime's side of custom operators.
        adapter: name of the adapter to use; None = the first that recognises the source.
        exporter: PyTorch: which exporter; auto = torch.export's, then TorchScript's.
        keep_metadata: keep what exporters write into node metadata (PyTorch: stack traces with file paths).
        task: Hugging Face: what the model is for; None = from config.json.
        signature: SavedModel: which signature; None = serving_default or the only one.
        frozen_inputs: frozen .pb graph: names of the input tensors.
        frozen_outputs: frozen .pb graph: names of the output tensors.
        layout: "nchw" transposes a channels-last interface; None leaves it.
        zipmap: classifiers: probabilities as a list of maps instead of a tensor.
        float64: scikit-learn: keep doubles where the runtime can.
        effort: how long inputs are sought on which source and graph differ.
        strict: branches that no input reached make the verdict bad.
        keep_counterexample: .npz file for an input that shows a difference.
    """

    factory: str | None = FACTORY(of_source=True)
    factory_args: Mapping[str, Any] = FACTORY_ARG(of_source=True)
    python_path: tuple[Path, ...] = PYTHON_PATH(of_source=True)
    trust: bool = TRUST(of_source=True)
    input_shapes: Mapping[str, tuple[Dim, ...]] = INPUT_SHAPE(default={}, kind="shapes by name", of_source=True)
    input_dtypes: Mapping[str, np.dtype | str] = INPUT_DTYPE(of_source=True)
    sample: Mapping[str, np.ndarray] | None = option(
        None,
        "Real inputs to verify on, in place of random ones; they give shapes and dtypes too.",
        kind="arrays",
        metavar="FILE.npz",
        role="data",
        of_source=True,
        group=INPUT,
    )
    input_names: tuple[str, ...] = option(
        (), "Names for the inputs.", kind="names", metavar="A,B,...", of_source=True, group=OUTPUT
    )
    output_names: tuple[str, ...] = option(
        (), "Names for the outputs.", kind="names", metavar="A,B,...", of_source=True, group=OUTPUT
    )
    opset: int | None = option(
        None, "Opset to write; the newest that the runtime fully has unless given.", group=OUTPUT
    )
    effort: Effort = EFFORT()
    strict: bool = STRICT()
    keep_counterexample: Path | None = KEEP_COUNTEREXAMPLE()
    seed: int = SEED()
    verbose: int = VERBOSE()
    custom_op_libraries: tuple[Path, ...] = CUSTOM_OPS(of_source=True, place=0)
    exporter: Exporter = option(
        "auto", "auto, dynamo or torchscript.", kind="text", choices=Exporter, complete="exporters", group=SELDOM
    )
    keep_metadata: bool = option(False, "Keep torch's stack traces in the file.", group=SELDOM)
    task: str | None = option(None, "Hugging Face: what the model is for.")
    adapter: str | None = None
    signature: str | None = option(None, "SavedModel: which one.", group=SELDOM, place=2)
    frozen_inputs: tuple[str, ...] = option(
        (), "Frozen graph: its inputs.", "--inputs", kind="names", metavar="A,B,...", group=SELDOM, place=2
    )
    frozen_outputs: tuple[str, ...] = option(
        (), "Frozen graph: its outputs.", "--outputs", kind="names", metavar="A,B,...", group=SELDOM, place=2
    )
    layout: Layout | None = option(
        None,
        "nchw turns image inputs channels-first.",
        kind="text",
        choices=Layout,
        complete="layouts",
        group=OUTPUT,
        place=2,
    )
    zipmap: bool = option(False, "Probabilities as a map, not a tensor.", "--zipmap/--no-zipmap", group=SELDOM, place=2)
    float64: bool = option(False, "Keep doubles where the runtime can.", group=SELDOM, place=2)


@dataclass(frozen=True)
class ConvertCommand(ConvertOptions, Shown):
    """What the command takes besides."""

    provider: tuple[str, ...] = PROVIDER(step=False)
    ep_library: tuple[str, ...] = EP_LIBRARY(step=False)
    output: Path = WRITTEN(place=-1)
    source: Path | None = option(
        None, "The model: a file or folder. None with --factory alone.", argument=True, metavar="SOURCE"
    )
    rtol: float = RTOL(place=-1)
    atol: float = ATOL(place=-1)
    verify_result: bool = option(
        True, "Write without comparing; the file's metadata says so.", "--no-verify", group=PROOF
    )
    keep_failed: Path | None = option(
        None, "Keep a file that fails the comparison.", metavar="FILE", step=False, group=PROOF
    )
    reproducible: bool = option(
        False, "The same bytes from run to run: no measured values in the metadata.", step=False, group=OUTPUT, place=1
    )
    lora: Path | None = option(
        None,
        "Language model: merge the LoRA adapter in this folder.",
        "--adapter",
        metavar="DIR",
        step=False,
        group=SELDOM,
        place=1,
    )
    separate_adapter: bool = option(
        False, "Keep the LoRA weights of --adapter apart, as a file for run --adapter.", step=False
    )
    eval_text: Path | None = option(
        None,
        "Language model: measure the perplexity on this text.",
        "--eval",
        metavar="FILE.txt",
        step=False,
        group=PROOF,
    )
