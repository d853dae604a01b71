"""What the user asked of `convert`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from onnxtool.model.spec import Dim


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

    input_shapes: Mapping[str, tuple[Dim, ...]] = field(default_factory=dict)
    input_dtypes: Mapping[str, np.dtype | str] = field(default_factory=dict)
    sample: Mapping[str, np.ndarray] | None = None
    opset: int | None = None
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    factory: str | None = None
    factory_args: Mapping[str, Any] = field(default_factory=dict)
    python_path: tuple[Path, ...] = ()
    trust: bool = False
    seed: int = 0
    verbose: int = 0
    custom_op_libraries: tuple[Path, ...] = ()
    adapter: str | None = None
    exporter: Literal["auto", "dynamo", "torchscript"] = "auto"
    keep_metadata: bool = False
    task: str | None = None
    signature: str | None = None
    frozen_inputs: tuple[str, ...] = ()
    frozen_outputs: tuple[str, ...] = ()
    layout: Literal["nhwc", "nchw"] | None = None
    zipmap: bool = False
    float64: bool = False
    effort: Literal["quick", "normal", "thorough"] = "normal"
    strict: bool = False
    keep_counterexample: Path | None = None
