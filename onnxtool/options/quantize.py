"""The options of `quantize`."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from onnxtool.options import shared
from onnxtool.options.images import ImageOptions
from onnxtool.options.option import (
    REPORTS,
    input_option,
    option,
    proof_option,
    seldom_option,
    speed_option,
)
from onnxtool.options.shared import DEFAULT_THREADS, TARGETS, Decimal, Providers, Shown

if TYPE_CHECKING:
    import numpy as np

Mode = Literal["auto", "static", "dynamic", "float16", "int8", "int4"]
ActivationType = Literal["u8", "s8"]
WeightType = Literal["s8", "u8"]
Fusions = Literal["", "attention", "all"]

_CALIBRATED = ("auto", "static")
_INTEGER = ("auto", "static", "dynamic")
_BLOCKS = ("int8", "int4")


@dataclass(frozen=True)
class ResultLimits:
    """What a result has to keep; None where there is no limit.

    Attributes:
        max_seconds: median latency, seconds.
        max_ratio: latency against the float model.
        max_bytes: size of the file.
        minimise: "latency" or "size": of those that keep all limits, the one with the least is chosen.
    """

    max_seconds: float | None = None
    max_ratio: float | None = None
    max_bytes: int | None = None
    minimise: str = "latency"


@dataclass(frozen=True)
class QuantizeOptions:
    """What the user asked for.

    Attributes:
        data: calibration samples: an .npz or .npy file, a folder of them, a table's file, "file.py:generator", a data
            frame, arrays or columns by name, a list of rows or feeds, or a function that returns feeds (see
            `runtime.data.open_data`).
        eval_data: labelled samples, likewise.
        labels: the labels, or the name of their array in the `eval_data` file.
        metric: "accuracy", "f1", "auc", "r2", "perplexity", "cer", "wer", "miou", "map" or "retrieval" (see
            `evaluation.metrics`), "file.py:function", or a function of (outputs by name, labels); higher is better.
        recipe_file: replay the recipe in this file (no data needed, same bytes); where there is no such file, the
            recipe that was found is saved to it.
        search_scale: int4: choose each block's scale by its squared error.
        limits: auto: what the result has to keep besides the budget; then it need not be faster than float.
    """

    mode: Mode = speed_option(
        "auto",
        "auto: the fastest recipe on this machine that keeps the accuracy budget, found by measuring. static: "
        "calibrated ranges, integer Conv, Gemm and MatMul (needs --data). dynamic: MatMul and Gemm, ranges taken at "
        "run time. float16: half the size. int8, int4: weights of MatMul and Gemm in blocks, activations float.",
        choices=Mode,
        bundle="too",
    )
    data: Any = input_option(
        None,
        "Calibration samples: .npz or .npy (samples along the first dim), a table (.csv, .tsv, .jsonl, .parquet, "
        ".feather), a folder of .npy or .npz files (one sample each), a folder of pictures (see --image), or "
        "file.py:GENERATOR.",
        metavar="PATH",
        role="data",
    )
    images: ImageOptions | str = shared.IMAGES(needs=("data", "eval_data"))
    data_as_is: bool = input_option(
        False,
        "Take --data that would be refused: integers for a float input, samples that are all the same.",
        needs=("data",),
    )
    samples: int | None = input_option(None, "Use at most this many samples.", low=1, needs=("data",))
    eval_data: Any = proof_option(
        None,
        "Labelled samples (.npz or a table), to measure accuracy on.",
        "--eval",
        metavar="PATH",
        role="data",
        bundle="too",
    )
    labels: str | np.ndarray | None = proof_option(None, "The labels in the --eval file.", metavar="NAME")
    metric: Any = proof_option(
        "accuracy",
        "accuracy, f1, auc, r2, perplexity, cer, wer, miou, map, retrieval, or file.py:FUNCTION of (outputs, labels).",
        complete="metrics",
        role="code",
        needs=("eval_data",),
    )
    steps: int | None = option(
        None,
        "Model with states: so many samples of --data follow one another, outputs fed back into states.",
        low=1,
        needs=("data",),
    )
    states: Sequence[str] = option(
        (),
        "With --steps: an output and the input that takes its value next. Repeatable; names tell otherwise.",
        "--state",
        metavar="OUTPUT:INPUT",
        needs=("steps",),
    )
    output_kinds: Sequence[str] = option(
        (),
        "What an output is for: logits, embedding, boxes, mask, values or linear. Repeatable.",
        "--output-kind",
        metavar="NAME:KIND",
        complete="output_names",
    )
    max_drop: float | None = proof_option(
        None,
        "Accuracy that may be lost: 0.01 or 1% is one point. A result that loses more is not written (exit 1). "
        "Default: 0.01 in auto; in other modes a loss of more than that is a warning.",
        kind="share",
        metavar="SHARE",
    )
    confidence: float = proof_option(
        0.95, "Of what is said to be lost at most, by which the budget is judged.", low=0.5, high=0.9999
    )
    time_limit: float = speed_option(
        100.0, "auto: seconds to search for (a bundle: 300).", low=1.0, modes=("auto",), bundle="too"
    )
    smallest: bool = speed_option(
        False, "auto: when nothing beats float, write the smallest within the budget.", modes=("auto",)
    )
    target: str | None = speed_option(
        None,
        f"auto: choose for another machine without timing: {', '.join(TARGETS)}, or by the table that doctor --measure "
        "wrote there. tensorrt (static too): in the form that TensorRT takes.",
        metavar="NAME|FILE.json",
        complete="quantize_targets",
        modes=_CALIBRATED,
    )
    recipe_file: str | os.PathLike[str] | None = seldom_option(
        None,
        "Replay the recipe in this file (same bytes, no data needed); when there is no such file, save the recipe to "
        "it.",
        "--recipe",
        metavar="FILE.json",
        role="file",
    )
    per_channel: bool = seldom_option(
        True, "One weight scale per output channel, or one in all.", "--per-channel/--per-tensor", modes=_INTEGER
    )
    activations: ActivationType = seldom_option(
        "u8", "Integer type of activations.", choices=ActivationType, modes=_CALIBRATED
    )
    weights: WeightType = seldom_option("s8", "Integer type of weights.", choices=WeightType, modes=_INTEGER)
    method: str = seldom_option(
        "minmax",
        "How static ranges are read off the observed values: minmax, percentile, mse, entropy.",
        metavar="NAME",
        complete="range_estimators",
        modes=_CALIBRATED,
    )
    coverage: float = seldom_option(
        0.9999, "Share of values that --method percentile keeps.", "--percentile", modes=_CALIBRATED
    )
    op_types: Collection[str] = seldom_option(
        (),
        "Quantize only this of Conv, Gemm, MatMul (dynamic: LSTM too). Repeatable.",
        "--op",
        metavar="TYPE",
        complete="quantized_operators",
        modes=_INTEGER + _BLOCKS,
    )
    exclude: Collection[str] = seldom_option(
        (),
        "Keep this node float: its name, or a glob of node names or output tensors. Repeatable.",
        metavar="NODE_OR_GLOB",
        complete="node_names",
        modes=_INTEGER + _BLOCKS,
    )
    keep_io: bool = seldom_option(False, "float16: inputs and outputs stay float32.", modes=("float16",))
    block_size: int = seldom_option(32, "int8, int4: weights that share a scale.", modes=_BLOCKS)
    symmetric: bool = seldom_option(
        True, "int8, int4: without or with a zero point for each block.", "--symmetric/--asymmetric", modes=_BLOCKS
    )
    search_scale: bool = seldom_option(
        True, "int4: scales from each block's extreme, without the search for less error.", "--rtn", modes=_BLOCKS
    )
    smooth: float = seldom_option(
        0.0,
        "static, dynamic: move this share of the activations' outliers into the weights of linear layers "
        "(SmoothQuant); 0.5 is usual. Needs --data. auto tries it by itself where accuracy is short.",
        metavar="ALPHA",
        low=0.0,
        high=0.99,
        modes=_INTEGER,
    )
    equalize: bool = seldom_option(
        False,
        "static: give the channels of neighbouring convolutions like ranges. auto tries it by itself.",
        modes=_INTEGER,
    )
    bias_correction: bool = seldom_option(
        False,
        "static, dynamic: take the mean error of rounded weights out of the biases. Needs --data. auto tries it by "
        "itself.",
        modes=_INTEGER,
    )
    compact: int = seldom_option(
        0,
        "Store the weights of nodes that stay float (embeddings, recurrent layers, ...) in 8 or 16 bits: a quarter or "
        "half of the size, the same speed. auto does so where the budget allows it.",
        metavar="BITS",
        shown="",
        modes=_INTEGER + _BLOCKS,
    )
    attention: bool = seldom_option(
        False,
        "static: quantize the products of two activations in attention too. auto tries it by itself.",
        modes=_CALIBRATED,
    )
    fuse: Fusions = seldom_option(
        "",
        "Write what stays float as the runtime's own fused operators: attention (with rotary embeddings and SiLU; "
        "additions stay apart from the normalization behind them), or all (with these too). auto tries both by itself.",
        choices=("attention", "all"),
        modes=_INTEGER + _BLOCKS,
    )
    threads: int = speed_option(DEFAULT_THREADS, "Threads while measuring latency.", low=1, bundle="too")
    limits: ResultLimits | None = None


@dataclass(frozen=True)
class QuantizeCommand(QuantizeOptions, Providers, Shown):
    """What the command takes besides."""

    decimal: Decimal = shared.DECIMAL(needs=("data", "eval_data"))
    model: Path = shared.MODEL()
    output: Path = shared.WRITTEN(bundle="too")
    max_perplexity: float = proof_option(
        0.01,
        "Bundle: by how much its perplexity may rise.",
        kind="percentage",
        metavar="PERCENT",
        shown="1%",
        step=False,
        bundle="only",
    )
    max_size: int | None = proof_option(
        None, "Bundle: the largest model, such as 90MB.", kind="size", metavar="SIZE", step=False, bundle="only"
    )
    html: Path | None = option(
        None, "Write what was tried as a page with a plot.", metavar="FILE.html", group=REPORTS, place=89
    )
    report_files: tuple[str, ...] = shared.REPORT_FILES()
