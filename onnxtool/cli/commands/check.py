"""`onnxtool check`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from onnxtool.cli import completion as complete
from onnxtool.cli import options as o
from onnxtool.cli.output import Output


class FailOn(StrEnum):
    """The mildest severity that makes the exit code 1."""

    error = "error"
    warning = "warning"
    note = "note"


def command(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL...", help="Files, folders or patterns such as 'models/*.onnx'.", show_default=False
        ),
    ] = None,
    data: o.DataOption = None,
    select: Annotated[
        list[str] | None,
        typer.Option(
            "--select",
            autocompletion=complete.findings,
            metavar="ID[,ID...]",
            help="Report these findings only: OT301, OT3 or a family such as security.",
            show_default=False,
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            "--ignore",
            autocompletion=complete.findings,
            metavar="ID[,ID...]",
            help="Leave these findings out.",
            show_default=False,
        ),
    ] = None,
    fail_on: Annotated[FailOn, typer.Option("--fail-on", help="Exit 1 from this severity on.")] = FailOn.error,
    explain: Annotated[
        list[str] | None,
        typer.Option(
            "--explain",
            autocompletion=complete.findings,
            metavar="ID",
            help="Say what a finding means ('all' for every one), and end.",
        ),
    ] = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Apply what onnxtool optimize can mend, verified, and check the result.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT.onnx",
            help="Where --fix writes; over MODEL unless given.",
            show_default=False,
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=1, help="How many models to check at a time, when there are several.")
    ] = 1,
    seed: o.SeedOption = 0,
    provider: o.ProviderOption = None,
    ep_library: o.EpLibraryOption = None,
    require_provider: o.RequireProviderOption = False,
    threads: o.ThreadsOption = None,
    custom_op_library: o.CustomOpOption = None,
    report_files: o.ReportOption = None,
    json: o.JsonOption = None,
    junit: o.JunitOption = None,
    sarif: o.SarifOption = None,
    markdown: o.MarkdownOption = None,
    html: o.HtmlOption = None,
    verbose: o.VerboseOption = 0,
    quiet: o.QuietOption = False,
) -> None:
    """Check ONNX files: specification, shapes, a run on the embedded runtime, and what makes models slow or unsafe.

    Exit 0 when all is sound, 1 when there are errors, 3 when a single file cannot be read as an ONNX file.
    """
    with Output(
        json, verbose, quiet, {"junit": junit, "sarif": sarif, "markdown": markdown, "html": html}, report_files
    ) as out:
        from onnxtool.errors import UsageError

        if explain:
            from onnxtool.lint.check import explain as explained

            out.emit(explained(_split(explain)))
            return
        if not models:
            raise UsageError("check needs a MODEL: a file, a folder or a pattern.")
        from onnxtool.cli.session import session_options
        from onnxtool.lint.check import check
        from onnxtool.lint.check_many import check_all
        from onnxtool.report.check import Severity

        how: dict[str, Any] = {
            "data": data,
            "seed": seed,
            "options": session_options(provider, threads, custom_op_library, ep_library),
            "select": _split(select),
            "ignore": _split(ignore),
            "require_provider": require_provider,
            "fail_on": Severity(fail_on.value),
        }
        from onnxtool.generation.bundle import Bundle, is_bundle

        if len(models) == 1 and is_bundle(Path(models[0])) and not fix:
            from onnxtool.generation.verify import with_generation

            folder = Path(models[0])
            out.emit(with_generation(check(Bundle.open(folder).model, **how), folder))
            return
        single = len(models) == 1 and (Path(models[0]).is_file() or not any(c in models[0] for c in "*?["))
        if output is not None and not fix:
            raise UsageError("-o goes with --fix.")
        if single and not Path(models[0]).is_dir():
            checked = _fixed(Path(models[0]), output) if fix else Path(models[0])
            out.emit(check(checked, **how))
        elif fix:
            raise UsageError("--fix takes one model at a time.")
        else:
            out.emit(check_all(models, jobs=jobs, **how))


def _fixed(model: Path, output: Path | None) -> Path:
    """Optimize a model with standard operators only; the result is compared with it before it is written."""
    from onnxtool.optimization.optimize import optimize

    target = output or model
    optimize(model, target, level="extended")
    return target


def _split(values: list[str] | None) -> list[str]:
    return [part for value in values or () for part in value.split(",") if part.strip()]
