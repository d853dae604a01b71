"""`onnxtool quantize`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from onnxtool.cli import completion as complete
from onnxtool.cli import options as o
from onnxtool.cli.output import Output
from onnxtool.runtime.cpu import TARGETS


class ModeChoice(StrEnum):
    """Values of --mode."""

    auto = "auto"
    static = "static"
    dynamic = "dynamic"
    float16 = "float16"
    int8 = "int8"
    int4 = "int4"


class ActivationChoice(StrEnum):
    """Values of --activations."""

    u8 = "u8"
    s8 = "s8"


class WeightChoice(StrEnum):
    """Values of --weights."""

    s8 = "s8"
    u8 = "u8"


class FuseChoice(StrEnum):
    """Values of --fuse."""

    attention = "attention"
    all = "all"


def command(
    context: typer.Context,
    model: o.ModelArgument,
    output: o.OutputOption,
    mode: Annotated[
        ModeChoice,
        typer.Option(
            "--mode",
            help="auto: the fastest recipe on this machine that keeps the accuracy budget, found by measuring. "
            "static: calibrated ranges, integer Conv, Gemm and MatMul (needs --data). dynamic: MatMul and Gemm, "
            "ranges taken at run time. float16: half the size. int8, int4: weights of MatMul and Gemm in blocks, "
            "activations float.",
        ),
    ] = ModeChoice.auto,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="PATH",
            show_default=False,
            help="Calibration samples: .npz or .npy (samples along the first dim), a folder of .npy or .npz files "
            "(one sample each), a folder of pictures (see --image), .csv, or file.py:GENERATOR.",
        ),
    ] = None,
    image: o.ImageOption = "",
    samples: Annotated[
        int | None, typer.Option("--samples", min=1, show_default=False, help="Use at most this many samples.")
    ] = None,
    eval_data: Annotated[
        str | None,
        typer.Option(
            "--eval",
            metavar="PATH",
            show_default=False,
            help="Labelled samples (.npz), to measure accuracy on.",
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option("--labels", metavar="NAME", show_default=False, help="The labels' array in the --eval file."),
    ] = None,
    metric: Annotated[
        str,
        typer.Option(
            "--metric",
            autocompletion=complete.metrics,
            help="accuracy, f1, auc, r2, perplexity, cer, wer, miou, map, retrieval, or file.py:FUNCTION of (outputs, "
            "labels).",
        ),
    ] = "accuracy",
    steps: Annotated[
        int | None,
        typer.Option(
            "--steps",
            min=1,
            help="Model with states: so many samples of --data follow one another, outputs fed back into states.",
            show_default=False,
        ),
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="OUTPUT:INPUT",
            help="With --steps: an output and the input that takes its value next. Repeatable; names tell otherwise.",
            show_default=False,
        ),
    ] = None,
    output_kind: Annotated[
        list[str] | None,
        typer.Option(
            "--output-kind",
            autocompletion=complete.output_names,
            metavar="NAME:KIND",
            help="What an output is for: logits, embedding, boxes, mask, values or linear. Repeatable.",
            show_default=False,
        ),
    ] = None,
    max_drop: Annotated[
        str | None,
        typer.Option(
            "--max-drop",
            metavar="SHARE",
            show_default=False,
            help="Accuracy that may be lost: 0.01 or 1% is one point. A result that loses more is not written (exit "
            "1). Default: 0.01 in auto; in other modes a loss of more than that is a warning.",
        ),
    ] = None,
    time_limit: Annotated[
        float, typer.Option("--time-limit", min=1.0, help="auto: seconds to search for (a bundle: 300).")
    ] = 100.0,
    smallest: Annotated[
        bool, typer.Option("--smallest", help="auto: when nothing beats float, write the smallest within the budget.")
    ] = False,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            autocompletion=complete.quantize_targets,
            metavar="NAME|FILE.json",
            show_default=False,
            help=f"auto: choose for another machine without timing: {', '.join(TARGETS)}, or by the table that doctor "
            "--measure wrote there. tensorrt (static too): in the form that TensorRT takes.",
        ),
    ] = None,
    recipe: Annotated[
        Path | None,
        typer.Option(
            "--recipe",
            metavar="FILE.json",
            show_default=False,
            help="Replay the recipe in this file (same bytes, no data needed); when there is no such file, save the "
            "recipe to it.",
        ),
    ] = None,
    per_channel: Annotated[
        bool, typer.Option("--per-channel/--per-tensor", help="One weight scale per output channel, or one in all.")
    ] = True,
    activations: Annotated[ActivationChoice, typer.Option("--activations", help="Integer type of activations.")] = (
        ActivationChoice.u8
    ),
    weights: Annotated[WeightChoice, typer.Option("--weights", help="Integer type of weights.")] = WeightChoice.s8,
    method: Annotated[
        str,
        typer.Option(
            "--method",
            autocompletion=complete.range_estimators,
            metavar="NAME",
            help="How static ranges are read off the observed values: minmax, percentile, mse, entropy.",
        ),
    ] = "minmax",
    percentile: Annotated[
        float, typer.Option("--percentile", help="Share of values that --method percentile keeps.")
    ] = 0.9999,
    op: Annotated[
        list[str] | None,
        typer.Option(
            "--op",
            autocompletion=complete.quantized_operators,
            metavar="TYPE",
            show_default=False,
            help="Quantize only this of Conv, Gemm, MatMul (dynamic: LSTM too). Repeatable.",
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            "--exclude",
            autocompletion=complete.node_names,
            metavar="NODE_OR_GLOB",
            show_default=False,
            help="Keep this node float: its name, or a glob of node names or output tensors. Repeatable.",
        ),
    ] = None,
    keep_io: Annotated[bool, typer.Option("--keep-io", help="float16: inputs and outputs stay float32.")] = False,
    block_size: Annotated[int, typer.Option("--block-size", help="int8, int4: weights that share a scale.")] = 32,
    symmetric: Annotated[
        bool, typer.Option("--symmetric/--asymmetric", help="int8, int4: without or with a zero point for each block.")
    ] = True,
    round_to_nearest: Annotated[
        bool, typer.Option("--rtn", help="int4: scales from each block's extreme, without the search for less error.")
    ] = False,
    smooth: Annotated[
        float,
        typer.Option(
            "--smooth",
            metavar="ALPHA",
            min=0.0,
            max=0.99,
            help="static, dynamic: move this share of the activations' outliers into the weights of linear layers "
            "(SmoothQuant); 0.5 is usual. Needs --data. auto tries it by itself where accuracy is short.",
        ),
    ] = 0.0,
    equalize: Annotated[
        bool,
        typer.Option(
            "--equalize",
            help="static: give the channels of neighbouring convolutions like ranges. auto tries it by itself.",
        ),
    ] = False,
    bias_correction: Annotated[
        bool,
        typer.Option(
            "--bias-correction",
            help="static, dynamic: take the mean error of rounded weights out of the biases. Needs --data. auto tries "
            "it by itself.",
        ),
    ] = False,
    compact: Annotated[
        int,
        typer.Option(
            "--compact",
            metavar="BITS",
            show_default=False,
            help="Store the weights of nodes that stay float (embeddings, recurrent layers, ...) in 8 or 16 bits: a "
            "quarter or half of the size, the same speed. auto does so where the budget allows it.",
        ),
    ] = 0,
    attention: Annotated[
        bool,
        typer.Option(
            "--attention",
            help="static: quantize the products of two activations in attention too. auto tries it by itself.",
        ),
    ] = False,
    fuse: Annotated[
        FuseChoice | None,
        typer.Option(
            "--fuse",
            show_default=False,
            help="Write what stays float as the runtime's own fused operators: attention (with rotary embeddings and "
            "SiLU), or all (additions with the normalization behind them too). auto tries both by itself.",
        ),
    ] = None,
    max_perplexity: Annotated[
        str,
        typer.Option("--max-perplexity", metavar="PERCENT", help="Bundle: by how much its perplexity may rise."),
    ] = "1%",
    max_size: Annotated[
        str | None,
        typer.Option("--max-size", metavar="SIZE", show_default=False, help="Bundle: the largest model, such as 90MB."),
    ] = None,
    threads: Annotated[int, typer.Option("--threads", min=1, help="Threads while measuring latency.")] = 1,
    provider: o.ProviderOption = None,
    ep_library: o.EpLibraryOption = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE.html", show_default=False, help="Write what was tried as a page with a plot."
        ),
    ] = None,
    report_files: o.ReportOption = None,
    json: o.JsonOption = None,
    verbose: o.VerboseOption = 0,
    quiet: o.QuietOption = False,
) -> None:
    """Make a model int8 within an accuracy budget, and show size, latency and error against the float model.

    A bundle (see convert) becomes one of 8 and 4 bits within a budget of perplexity, on the text of --eval.
    Exit 0 when the file was written; 1 when nothing keeps the budget (and, with auto, beats float): nothing is written.
    """
    with Output(json, verbose, quiet, {"html": html}, report_files) as out:
        from onnxtool.cli import unused_options as unused
        from onnxtool.cli.parsing import byte_count, percentage, share
        from onnxtool.generation.bundle import is_bundle

        given = unused.typed(context)
        bundle = is_bundle(model)
        unused.reject_for_bundle(given, bundle=bundle)
        if bundle:
            from onnxtool.generation.quantization.quantize import BUNDLE_SECONDS, quantize_bundle

            out.emit(
                quantize_bundle(
                    model,
                    output,
                    mode=mode.value,
                    max_perplexity=percentage("--max-perplexity", max_perplexity),
                    max_bytes=byte_count("--max-size", max_size),
                    eval_text=None if eval_data is None else Path(eval_data),
                    time_limit=time_limit if "time_limit" in given else BUNDLE_SECONDS,
                    threads=threads,
                )
            )
            return
        if recipe is None or not recipe.exists():  # replaying a recipe, the line that made it may be repeated as it is
            unused.reject_other_modes(mode.value, given, unused.QUANTIZE_MODES)
        unused.reject_alone(given, unused.QUANTIZE_NEEDS)
        from onnxtool.cli.session import session_options
        from onnxtool.quantization.quantize import quantize

        report = quantize(
            model,
            Path(output),
            mode=mode.value,
            data=data,
            samples=samples,
            images=image,
            eval_data=eval_data,
            labels=labels,
            metric=metric,
            per_channel=per_channel,
            activations=activations.value,
            weights=weights.value,
            method=method,
            coverage=percentile,
            op_types=op or (),
            exclude=exclude or (),
            max_drop=share("--max-drop", max_drop),
            time_limit=time_limit,
            smallest=smallest,
            target=target,
            recipe_file=recipe,
            keep_io=keep_io,
            block_size=block_size,
            symmetric=symmetric,
            search_scale=not round_to_nearest,
            smooth=smooth,
            equalize=equalize,
            bias_correction=bias_correction,
            compact=compact,
            attention=attention,
            fuse=fuse.value if fuse is not None else "",
            threads=threads,
            output_kinds=output_kind or (),
            steps=steps,
            states=state or (),
            options=session_options(provider, None, None, ep_library),
        )
        out.emit(report)
