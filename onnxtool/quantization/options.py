"""What the user asked of `quantize`."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from onnxtool.model.image_options import ImageOptions
from onnxtool.quantization.recipe import ActivationType, Fusions, Mode, QuantRecipe, WeightType
from onnxtool.quantization.result_limits import ResultLimits
from onnxtool.runtime.timing.latency import DEFAULT_THREADS


@dataclass(frozen=True)
class QuantizeOptions:
    """What the user asked for.

    Attributes:
        mode: "auto" (the fastest recipe within the accuracy budget, found by measuring), "static" (calibrated Q/DQ,
            needs `data`), "dynamic" (MatMul and Gemm, activations quantized at run time), "float16", or "int8" and
            "int4" (weights of MatMul and Gemm alone, in blocks).
        data: calibration samples: an .npz or .npy file, a folder of them, "file.py:generator", named arrays, a list
            of feeds, or a function that returns feeds (see `calibration.open_data`).
        samples: use at most this many.
        eval_data: labelled samples, likewise.
        labels: the labels, or the name of their array in the `eval_data` file.
        metric: "accuracy", "f1", "auc", "r2", "perplexity", "cer", "wer", "miou", "map" or "retrieval" (see
            `evaluation.metrics`), "file.py:function", or a function of (outputs by name, labels); higher is better.
        per_channel: one weight scale for each output channel.
        activations: integer type of activations (static).
        weights: integer type of weights.
        method: how static ranges are read off the observed values.
        coverage: share of values kept by method "percentile".
        op_types: quantize only these of Conv, Gemm, MatMul.
        exclude: nodes that stay float: names, or glob patterns of node names or output tensors.
        max_drop: the accuracy budget; 0.01 is one point. None: 0.01 in auto; in other modes a loss beyond that is a
            warning, and the file is written.
        time_limit: auto: seconds that all of it may take; what was found by then is written.
        smallest: auto: when nothing beats float, write the smallest within the budget all the same.
        recipe_file: replay the recipe in this file (no data needed, same bytes); where there is no such file, the
            recipe that was found is saved to it.
        keep_io: float16: inputs and outputs stay float32.
        block_size: int8 and int4: weights that share a scale.
        symmetric: int8 and int4: no zero points.
        target: auto: another machine's traits (one of `runtime.cpu.TARGETS`, or a file of `doctor --measure`), to
            choose without timing. auto, static: "tensorrt", to write the form that TensorRT takes.
        fuse: what stays float becomes the runtime's own fused operators (com.microsoft): "attention" (with rotary
            embeddings and SiLU), or "all" (additions with the normalization behind them too); auto tries both.
        attention: static: products of two activations are quantized too; auto tries it where that may be faster.
        images: how pictures become tensors (see `images.parse_options`).
        search_scale: int4: choose each block's scale by its squared error.
        smooth: static, dynamic: share of the outliers in what linear layers read that goes into their weights
            (SmoothQuant); 0.5 is usual, 0 leaves it off; needs `data`. auto: every candidate has it; without it, auto
            tries it where it may help.
        equalize: static: neighbouring convolutions share their range, channel by channel; likewise.
        bias_correction: static, dynamic: biases take back the mean error of rounded weights; needs `data`; likewise.
        compact: weights of nodes that stay float (embeddings, recurrent layers, ...) are stored in so many bits (8 or
            16), and made float by the runtime when it loads the model; auto does so where the budget allows it.
        threads: of the runtime while measuring latency.
        output_kinds: "NAME:KIND" for outputs whose use the graph does not tell: "logits", "embedding", "boxes", "mask",
            "values" or "linear" (see `output_kind.OutputKind`).
        steps: samples are steps of a model with states: so many follow one another, each with the states that the model
            gave for the one before; the first of them starts with zeros, or with what the data has.
        states: "OUTPUT:INPUT" for each state, where the names do not tell.
        limits: auto: what the result has to keep besides the budget; then it need not be faster than float.
    """

    mode: Mode = "auto"
    data: Any = None
    samples: int | None = None
    eval_data: Any = None
    labels: str | np.ndarray | None = None
    metric: Any = "accuracy"
    per_channel: bool = True
    activations: ActivationType = "u8"
    weights: WeightType = "s8"
    method: str = "minmax"
    coverage: float = 0.9999
    op_types: Collection[str] = ()
    exclude: Collection[str] = ()
    max_drop: float | None = None
    time_limit: float = 100.0
    smallest: bool = False
    recipe_file: str | os.PathLike[str] | None = None
    keep_io: bool = False
    block_size: int = 32
    symmetric: bool = True
    search_scale: bool = True
    smooth: float = 0.0
    equalize: bool = False
    bias_correction: bool = False
    compact: int = 0
    attention: bool = False
    fuse: Fusions = ""
    images: ImageOptions | str = ""
    target: str | None = None
    threads: int = DEFAULT_THREADS
    limits: ResultLimits | None = None
    output_kinds: Sequence[str] = ()
    steps: int | None = None
    states: Sequence[str] = ()

    @property
    def recipe(self) -> QuantRecipe:
        """How the model is quantized, as far as it was asked for.

        Raises:
            UsageError: options that do not fit together.
        """
        own = {f.name for f in fields(self)}
        asked: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(QuantRecipe) if f.name in own}
        return QuantRecipe(**asked | {"op_types": tuple(self.op_types), "exclude": tuple(self.exclude)})
