"""`onnxtool optimize`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxtool.cli import completion as complete
from onnxtool.cli import options as o
from onnxtool.cli.output import Output
from onnxtool.runtime.cpu import TARGETS


def command(
    model: Annotated[Path | None, typer.Argument(metavar="MODEL", help="The .onnx file.", show_default=False)] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="OUT.onnx", help="The file to write; replaced as a whole.", show_default=False
        ),
    ] = None,
    level: Annotated[
        str,
        typer.Option(
            "--level",
            autocompletion=complete.levels,
            metavar="basic|extended|all",
            help="basic changes nothing that is computed; extended may round floats differently, with standard "
            "operators only; all also uses the runtime's own fused operators.",
        ),
    ] = "extended",
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--pass",
            autocompletion=complete.passes,
            metavar="NAME",
            help="Run just this pass. Repeatable.",
            show_default=False,
        ),
    ] = None,
    skip: Annotated[
        list[str] | None,
        typer.Option(
            "--skip",
            autocompletion=complete.passes,
            metavar="NAME",
            help="Leave this pass out. Repeatable.",
            show_default=False,
        ),
    ] = None,
    list_passes: Annotated[bool, typer.Option("--list-passes", help="Describe every pass, and exit.")] = False,
    input_shape: o.InputShapeOption = None,
    freeze_initializers: Annotated[
        bool, typer.Option("--freeze-initializers", help="Turn inputs that have a default into constants.")
    ] = False,
    max_folded_size: Annotated[
        str | None,
        typer.Option(
            "--max-folded-size",
            metavar="SIZE",
            help="A folded constant may be larger than what it replaces by this much, such as 64MB. Without it, "
            "folding never makes the file larger.",
            show_default=False,
        ),
    ] = None,
    upgrade_opset: Annotated[
        int | None,
        typer.Option(
            "--upgrade-opset", metavar="N", min=7, help="Lift the operator set to N first.", show_default=False
        ),
    ] = None,
    downgrade_opset: Annotated[
        int | None,
        typer.Option(
            "--downgrade-opset", metavar="N", min=7, help="Lower the operator set to N first.", show_default=False
        ),
    ] = None,
    data: o.DataOption = None,
    rtol: o.RtolOption = 1e-3,
    atol: o.AtolOption = 1e-5,
    seed: o.SeedOption = 0,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            autocompletion=complete.targets,
            metavar="|".join(TARGETS),
            help="Choose the fusions of level all for another kind of processor, by a table, instead of by timing them "
            "here.",
            show_default=False,
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 1 when a pass had to be left out because it was wrong.")
    ] = False,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Do not compare the result with the source.")] = False,
    no_bench: Annotated[bool, typer.Option("--no-bench", help="Do not measure the latency.")] = False,
    compile_to: Annotated[
        Path | None,
        typer.Option(
            "--compile",
            metavar="FILE.onnx",
            help="Also write what --provider compiles of the result (EPContext): it loads faster, there alone.",
            show_default=False,
        ),
    ] = None,
    provider: o.ProviderOption = None,
    ep_library: o.EpLibraryOption = None,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            min=1,
            help="Threads of the runtime. Unless given, one where latency is measured, all cores elsewhere.",
            show_default=False,
        ),
    ] = None,
    custom_op_library: o.CustomOpOption = None,
    report_files: o.ReportOption = None,
    json: o.JsonOption = None,
    html: o.HtmlOption = None,
    verbose: o.VerboseOption = 0,
    quiet: o.QuietOption = False,
) -> None:
    """Make a model smaller and faster, and prove the result equal.

    The result is compared with the source on several sizes of every dynamic dim before it is written. A pass that
    would change the outputs is left out and named; with --strict that is exit 1.
    """
    with Output(json, verbose, quiet, {"html": html}, report_files) as out:
        from onnxtool.errors import UsageError

        if list_passes:
            from onnxtool.optimization.optimize import list_passes as describe

            out.emit(describe())
            return
        if model is None or output is None:
            raise UsageError("optimize needs a MODEL and -o OUT.onnx (or --list-passes).")
        if upgrade_opset is not None and downgrade_opset is not None:
            raise UsageError("--upgrade-opset and --downgrade-opset exclude each other.")

        from onnxtool.cli.parsing import byte_count
        from onnxtool.cli.session import session_options
        from onnxtool.model.spec import parse_input_shapes
        from onnxtool.optimization.optimize import optimize

        out.emit(
            optimize(
                model,
                output,
                level=level,
                passes=only or (),
                skip=skip or (),
                data=data,
                input_shapes=parse_input_shapes(input_shape or ()),
                freeze_initializers=freeze_initializers,
                max_folded_bytes=byte_count("--max-folded-size", max_folded_size),
                opset=upgrade_opset or downgrade_opset,
                rtol=rtol,
                atol=atol,
                seed=seed,
                verify=not no_verify,
                bench=not no_bench,
                strict=strict,
                target=target,
                compiled=compile_to,
                options=session_options(provider, threads, custom_op_library, ep_library),
            )
        )
