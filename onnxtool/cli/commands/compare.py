"""`onnxtool compare`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from onnxtool.cli import completion as complete
from onnxtool.cli import options as o
from onnxtool.cli.output import Output


class OptLevel(StrEnum):
    """How far the runtime may rewrite a model when it loads it."""

    off = "off"
    basic = "basic"
    extended = "extended"
    all = "all"


def command(
    a: Annotated[
        Path,
        typer.Argument(metavar="A", help="The reference: an .onnx or framework file, or a URL.", show_default=False),
    ],
    b: Annotated[
        Path | None,
        typer.Argument(
            metavar="[B]", help="The model to judge, likewise; none with --golden and --record.", show_default=False
        ),
    ] = None,
    data: o.DataOption = None,
    image: o.ImageOption = "",
    layers: Annotated[
        bool, typer.Option("--layers", help="Compare every tensor inside, and name the first that is wrong.")
    ] = False,
    bisect: Annotated[
        Path | None,
        typer.Option(
            "--bisect",
            metavar="DIR",
            help="Cut out the smallest part that differs, and leave it here with its inputs.",
            show_default=False,
        ),
    ] = None,
    reference: Annotated[
        bool, typer.Option("--reference", help="Ask ONNX's reference implementation as a third opinion.")
    ] = False,
    tolerance: Annotated[
        list[str] | None,
        typer.Option(
            "--tolerance",
            autocompletion=complete.output_names,
            metavar="NAME:RTOL,ATOL",
            help="Tolerance of one output, ATOL in its units. Repeatable.",
            show_default=False,
        ),
    ] = None,
    batch_sizes: Annotated[
        str | None,
        typer.Option("--batch-sizes", metavar="N[,N...]", help="Batch sizes of random inputs.", show_default=False),
    ] = None,
    samples: Annotated[
        int | None, typer.Option("--samples", min=1, help="How many random inputs to run on.", show_default=False)
    ] = None,
    top_k: Annotated[
        int, typer.Option("--top-k", min=2, metavar="K", help="Largest elements of a row that -v compares.")
    ] = 5,
    edge: Annotated[bool, typer.Option("--edge", help="Also run on zeros, extremes and an empty batch.")] = False,
    quantized: Annotated[
        bool,
        typer.Option(
            "--quantized", help="B is A quantized: judge it by the accuracy budget of quantize, not equality."
        ),
    ] = False,
    record: Annotated[
        Path | None,
        typer.Option("--record", metavar="DIR", help="Keep A's inputs and outputs here.", show_default=False),
    ] = None,
    golden: Annotated[
        Path | None,
        typer.Option("--golden", metavar="DIR", help="Hold A against what --record kept.", show_default=False),
    ] = None,
    opt_level: Annotated[
        OptLevel, typer.Option("--opt-level", help="The runtime's own graph optimizations at load time.")
    ] = OptLevel.all,
    rtol: o.RtolOption = 1e-3,
    atol: o.AtolOption = 1e-5,
    effort: o.EffortOption = o.Effort.normal,
    strict: o.StrictOption = False,
    keep_counterexample: o.KeepCounterexampleOption = None,
    seed: o.SeedOption = 0,
    provider: o.ProviderOption = None,
    ep_library: o.EpLibraryOption = None,
    provider_b: Annotated[
        list[str] | None,
        typer.Option(
            "--provider-b",
            metavar="NAME[:KEY=VALUE,...]",
            help="Run B on this provider, A on that of --provider. Repeatable, in order of priority.",
            show_default=False,
        ),
    ] = None,
    threads: o.ThreadsOption = None,
    custom_op_library: o.CustomOpOption = None,
    factory: o.FactoryOption = None,
    factory_arg: o.FactoryArgOption = None,
    pythonpath: o.PythonPathOption = None,
    trust: o.TrustOption = False,
    input_shape: o.InputShapeOption = None,
    input_dtype: o.InputDtypeOption = None,
    report_files: o.ReportOption = None,
    json: o.JsonOption = None,
    junit: o.JunitOption = None,
    markdown: o.MarkdownOption = None,
    html: o.HtmlOption = None,
    verbose: o.VerboseOption = 0,
    quiet: o.QuietOption = False,
) -> None:
    """Run two models on the same inputs and show how far their outputs are apart.

    Exit 0 when every output is within tolerance, 1 when one is not.
    """
    with Output(json, verbose, quiet, {"junit": junit, "markdown": markdown, "html": html}, report_files) as out:
        from onnxtool.cli.convert_options import convert_options, opened
        from onnxtool.cli.parsing import parse_tolerances, whole_numbers
        from onnxtool.cli.session import session_options
        from onnxtool.errors import UsageError
        from onnxtool.runtime.urls import url_of

        options = session_options(provider, threads, custom_op_library, ep_library, opt_level.value)
        batches = whole_numbers("--batch-sizes", batch_sizes)
        limits = parse_tolerances(tolerance or [])
        if (b is None) == (record is None and golden is None) or (record is not None and golden is not None):
            raise UsageError("compare takes two models, or one with --golden DIR or --record DIR.")
        from onnxtool.generation.bundle import is_bundle

        if b is not None and is_bundle(a) and is_bundle(b):
            from onnxtool.generation.verify import compare_bundles

            out.emit(compare_bundles(a, b, eval_text=data, rtol=rtol))
            return
        if record is not None:
            from onnxtool.equality.golden import record as keep

            out.emit(keep(a, record, data=data, batches=batches, seed=seed, rtol=rtol, atol=atol, options=options))
            return
        if b is None or golden is not None:
            from onnxtool.equality.golden import golden as hold

            out.emit(hold(a, golden or "", rtol=rtol, atol=atol, tolerances=limits, options=options))
            return
        from onnxtool.equality.compare import compare
        from onnxtool.runtime.runner import closing

        how = convert_options(
            factory=factory,
            factory_arg=factory_arg,
            pythonpath=pythonpath,
            trust=trust,
            input_shape=input_shape,
            input_dtype=input_dtype,
            seed=seed,
            verbose=verbose,
        )
        left, right = opened(a, b, how), opened(b, a, how)
        names = (url_of(a) or str(a), url_of(b) or str(b))
        with closing(left, right):
            report = compare(
                left,
                right,
                data=data,
                rtol=rtol,
                atol=atol,
                seed=seed,
                options=options,
                names=names,
                tolerances=limits,
                batches=batches,
                samples=samples,
                edge=edge,
                layers=layers,
                bisect=bisect,
                reference=reference,
                top_k=top_k,
                effort=effort.value,
                keep_counterexample=keep_counterexample,
                strict=strict,
                options_b=None
                if provider_b is None
                else session_options(provider_b, threads, custom_op_library, ep_library, opt_level.value),
                images=image,
            )
        if isinstance(left, Path) and isinstance(right, Path):
            from onnxtool.quantization.compare_quantized import judged_by_budget, with_hint

            if quantized:
                report = judged_by_budget(report, a, b, data=data, samples=samples, images=image, threads=threads or 1)
            elif not report.ok:
                report = with_hint(report, a, b)
        elif quantized:
            raise UsageError("--quantized takes two .onnx files.")
        out.emit(report)
