"""`onnxtool bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxtool.cli import options as o
from onnxtool.cli.output import Output


def command(
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL...",
            help="The .onnx files; ratios are to the first. Or the URL or package folder of a server, and its file.",
            show_default=False,
        ),
    ],
    data: o.DataOption = None,
    batch: Annotated[
        str | None,
        typer.Option("--batch", metavar="N[,N...]", help="Batch sizes, such as 1,8.", show_default=False),
    ] = None,
    threads: Annotated[
        str | None,
        typer.Option("--threads", metavar="N[,N...]", help="Numbers of threads, such as 1,2.", show_default=False),
    ] = None,
    budget: Annotated[
        float, typer.Option("--budget", min=0.0, metavar="SECONDS", help="Time for each model in each setting.")
    ] = 2.0,
    profile: Annotated[bool, typer.Option("--profile", help="Also show the time of each operator and node.")] = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace", metavar="FILE.json", help="Leave the first model's profile as Chrome trace.", show_default=False
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            "--baseline", metavar="FILE.json", help="An earlier --json report; slower is exit 1.", show_default=False
        ),
    ] = None,
    max_regression: Annotated[
        str, typer.Option("--max-regression", metavar="PERCENT", help="How much slower than --baseline is allowed.")
    ] = "5%",
    connections: Annotated[
        str | None,
        typer.Option(
            "--connections", metavar="N[,N...]", help="URL: connections that send without pause.", show_default=False
        ),
    ] = None,
    rate: Annotated[
        list[float] | None,
        typer.Option(
            "--rate", metavar="N", help="URL: requests a second, answered or not. Repeatable.", show_default=False
        ),
    ] = None,
    trust: o.TrustOption = False,
    peer: Annotated[
        list[Path] | None,
        typer.Option(
            "--peer",
            metavar="PATH",
            help="Bundle: the same model elsewhere: its Hugging Face folder, or a GGUF file for llama.cpp. Repeatable.",
            show_default=False,
        ),
    ] = None,
    session_settings: Annotated[
        bool,
        typer.Option(
            "--session-settings", help="Also try spinning, arena, memory pattern, execution mode, graph level, ..."
        ),
    ] = False,
    best: Annotated[
        bool, typer.Option("--best", help="Show the fastest setting that is equal, as JSON and as code.")
    ] = False,
    seed: o.SeedOption = 0,
    provider: o.ProviderOption = None,
    ep_library: o.EpLibraryOption = None,
    require_provider: o.RequireProviderOption = False,
    custom_op_library: o.CustomOpOption = None,
    report_files: o.ReportOption = None,
    json: o.JsonOption = None,
    junit: o.JunitOption = None,
    markdown: o.MarkdownOption = None,
    html: o.HtmlOption = None,
    verbose: o.VerboseOption = 0,
    quiet: o.QuietOption = False,
) -> None:
    """Measure latency, throughput, load time and peak memory of models, side by side.

    Several models take turns in one run; ratios to the first come with 95 % confidence intervals.
    """
    with Output(json, verbose, quiet, {"junit": junit, "markdown": markdown, "html": html}, report_files) as out:
        from contextlib import ExitStack

        from onnxtool.cli.parsing import percentage, whole_numbers
        from onnxtool.cli.session import session_options

        if len(provider or ()) > 1 or session_settings or best:
            from onnxtool.benchmark.matrix import bench_matrix
            from onnxtool.errors import UsageError

            if len(models) > 1:
                raise UsageError("several --provider, --session-settings and --best take one model.")
            sizes = whole_numbers("--batch", batch)
            if len(sizes) > 1 or profile or trace or baseline or require_provider:
                raise UsageError(
                    "several --provider, --session-settings and --best go with one --batch, and without --profile, "
                    "--trace, --baseline and --require-provider."
                )
            out.emit(
                bench_matrix(
                    models[0],
                    provider or ("cpu",),
                    data=data,
                    batch=sizes[0] if sizes else None,
                    threads=whole_numbers("--threads", threads),
                    tune=session_settings,
                    budget=budget,
                    seed=seed,
                    options=session_options(None, None, custom_op_library, ep_library),
                    show_code=best,
                )
            )
            return
        from onnxtool.generation.bundle import is_bundle
        from onnxtool.packaging.manifest import is_package
        from onnxtool.runtime.urls import url_of

        url, packaged = url_of(models[0]), is_package(models[0])
        if url is not None or packaged:
            from onnxtool.benchmark.load_test import bench_endpoint
            from onnxtool.errors import UsageError

            if len(models) > 2:
                raise UsageError("bench URL takes one file beside it: the one that it serves.")
            sizes, counts = whole_numbers("--batch", batch), whole_numbers("--threads", threads)
            with ExitStack() as stack:
                if url is None:
                    from onnxtool.packaging.folder_runner import serve_package

                    url = stack.enter_context(serve_package(models[0], trust=trust))
                out.emit(
                    bench_endpoint(
                        url,
                        models[1] if len(models) > 1 else None,
                        data=data,
                        batch=sizes[0] if sizes else None,
                        connections=whole_numbers("--connections", connections) or (1, 4),
                        rates=rate or (),
                        budget=budget,
                        seed=seed,
                        options=session_options(provider, counts[0] if counts else None, custom_op_library, ep_library),
                    )
                )
            return
        if is_bundle(models[0]):
            from onnxtool.generation.bench import bench_bundles

            counts, sizes = whole_numbers("--threads", threads), whole_numbers("--batch", batch)
            out.emit(bench_bundles(models, peers=peer or (), threads=counts, batches=sizes))
            return
        from onnxtool.benchmark.bench import bench

        options = session_options(provider, None, custom_op_library, ep_library)
        out.emit(
            bench(
                models,
                data=data,
                batches=whole_numbers("--batch", batch),
                threads=whole_numbers("--threads", threads),
                budget=budget,
                seed=seed,
                options=options,
                require_provider=require_provider,
                profiled=profile,
                trace=trace,
                baseline=baseline,
                max_regression=percentage("--max-regression", max_regression),
            )
        )
