"""The Typer app. A command's module is imported only when that command is invoked, so that start-up stays fast."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command as build_command

from onnxtool import __version__
from onnxtool.cli import output, plain_values, streams
from onnxtool.errors import ResourceError, UsageError
from onnxtool.model.safety import limits

NO_ISOLATION = "--no-isolation"
LIMIT = "--limit"
HELP_ALL = "--help-all"


@dataclass(frozen=True)
class Given:
    """The arguments, sorted.

    Attributes:
        rest: what Typer gets.
        isolated: False with --no-isolation.
        limits: the values of --limit.
        help_all: with --help-all: the help page shows what is seldom used too.
    """

    rest: tuple[str, ...]
    isolated: bool
    limits: tuple[str, ...]
    help_all: bool = False


def sort(args: Sequence[str]) -> Given:
    """Take the process's own options out, wherever they stand, and give a bare `--json` its value."""
    end = list(args).index("--") if "--" in args else len(args)
    rest: list[str] = []
    limits: list[str] = []
    isolated = True
    pending = list(args[:end])
    while pending:
        argument = pending.pop(0)
        if argument == NO_ISOLATION:
            isolated = False
        elif argument == LIMIT and pending:
            limits.append(pending.pop(0))
        elif argument.startswith(f"{LIMIT}="):
            limits.append(argument.partition("=")[2])
        else:
            rest.append("--help" if argument == HELP_ALL else argument)
    return Given((*expand_json(rest), *args[end:]), isolated, tuple(limits), HELP_ALL in args[:end])


def expand_json(args: Sequence[str]) -> list[str]:
    """Give a bare `--json` its value: it may stand alone (stdout) or be followed by `-` or a name ending in .json."""
    result = []
    for index, argument in enumerate(args):
        following = args[index + 1] if index + 1 < len(args) else ""
        bare = argument == "--json" and not (following == "-" or following.endswith(".json"))
        result.append("--json=-" if bare else argument)
    return result


plain_values.install()

# The commands in the order of their use, each with the line that `onnxtool --help` shows.
COMMANDS = {
    "convert": "Turn a trained model of any framework into a verified ONNX file.",
    "check": "Check an ONNX file: specification, shapes, and a run on the embedded runtime.",
    "inspect": "Show a model's anatomy: inputs, outputs, operators, parameters, compute.",
    "optimize": "Make a model smaller and faster, and hold the result against it.",
    "edit": "Change shapes, inputs, outputs, parts or versions of a model, each change checked.",
    "quantize": "Make a model int8 or float16 within an accuracy budget.",
    "compare": "Run two models on the same inputs and show how far their outputs are apart.",
    "certificate": "Decide by exact arithmetic whether two ONNX files are the same real function.",
    "diff": "Show how two models differ in structure: operators, attributes, weights, inputs.",
    "run": "Run a model once on given or random inputs.",
    "bench": "Measure latency, throughput and memory of models, side by side.",
    "package": "Write folders that run a model elsewhere, each tested against the file.",
    "serve": "Serve models over HTTP (Open Inference Protocol V2), and bundles as OpenAI's API.",
    "view": "Show a model's graph in the browser with Netron, on this machine alone.",
    "verify": "Show whether a file is as onnxtool wrote it, and from what it was made.",
    "build": "Build every model of a file, only what is stale, here or on a cluster.",
    "init": "Write a first build file from what model files are recognised as.",
    "cache": "Show, prune or verify the cache of build.",
    "doctor": "Show versions, execution providers, extras and the CPU's int8 features.",
    "quickstart": "Do the whole job on a bundled real model and show the result.",
}
# Run until they are asked to end, and then end in order: no parent hurries them. They check files in other processes.
_LASTING = ("serve", "view")


def build(name: str) -> Any:
    """The command of this name, imported now, with its own help page."""
    from onnxtool.cli.typer_options import command_class, command_function  # not for the page of the tool itself

    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    no_args_is_help = name not in ("build", "doctor", "quickstart")
    single.command(name, cls=command_class(name), no_args_is_help=no_args_is_help)(command_function(name))
    command: Any = build_command(single)
    command.context_settings["help_option_names"] = ["-h", "--help"]
    for option in command.params:
        # Typer leaves out what click used to call the type of a flag; newer versions of click call it <bool>.
        if getattr(option, "is_flag", False):
            option.metavar = ""
    command.format_help = lambda ctx, formatter: formatter.write(_page(name, ctx))
    return command


def _page(name: str, ctx: Any) -> str:
    from onnxtool.cli.help_pages import page

    given = ctx.find_root().obj
    return page(name, _columns(ctx), everything=isinstance(given, Given) and given.help_all)


def _columns(ctx: Any) -> int:
    columns: int = ctx.terminal_width or shutil.get_terminal_size().columns
    return columns


class LazyGroup(TyperGroup):
    """Knows every command's name and help line, and imports only the one that is invoked."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {name: TyperCommand(name, help=line) for name, line in COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Replace the stub of the invoked command by the real one."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else build(name), rest

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  (click calls it)
        """The help line of every command in full; click's own way cuts them off."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _version(value: bool) -> None:
    if value:
        print(f"onnxtool {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="onnxtool",
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=True,
    # Rich help costs more than everything else that `onnxtool --help` imports; commands' own help keeps it.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    no_isolation: Annotated[  # this one and the next are taken by main(), wherever they stand
        bool, typer.Option(NO_ISOLATION, help="No limits of time and memory on native code; for files you trust.")
    ] = False,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            LIMIT,
            metavar="NAME=N",
            help="Another limit: model-bytes, external-bytes, nodes, depth; seconds and memory-bytes are those of each "
            "native call (loading, running, inferring shapes). Sizes such as 500MB. Repeatable.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Any trained model to an ONNX file that is checked, tested, optimized and quantized.

    Exit codes: 0 done, good - 1 the verdict is bad - 2 usage - 3 bad input - 4 unsupported - 5 unsafe -
    6 out of memory, time or disk - 70 our bug - 130 interrupted.
    """


def main(args: Sequence[str] | None = None) -> None:
    """The console script: run the command line and exit with its code."""
    streams.prepare()
    given = sort(sys.argv[1:] if args is None else args)
    if given.rest and given.rest[0] != "bench":  # which times a framework as its users run it
        # Threads of PyTorch's and scikit-learn's OpenMP wait busily for each other; beside any other work, a second
        # session of our own for one, PyTorch was 10 times slower by that on 2 cores. Read when they are imported.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if given.rest and given.rest[0] not in _LASTING:
        # What is imported and traced stays: to look for garbage in it again and again took a tenth of a conversion.
        gc.set_threshold(50_000, 20, 50)

    def fail(message: str, code: int) -> None:
        output.print_error(message, code, as_json="--json=-" in given.rest)

    try:
        limits.verify_environment()
        if given.limits:
            limits.use(given.limits)
    except UsageError as error:
        fail(str(error), error.exit_code)
        sys.exit(error.exit_code)
    if args is None and given.isolated and given.rest and "--help" not in given.rest and given.rest[0] not in _LASTING:
        from onnxtool.runtime.worker import isolation

        isolation.supervise(fail)
    try:
        app(args=list(given.rest), prog_name="onnxtool", obj=given)
    except OSError as error:  # of what Typer prints itself: help, the version
        said = streams.no_room(error)
        if said is None:
            raise
        fail(said, ResourceError.exit_code)
        sys.exit(ResourceError.exit_code)
    finally:
        streams.finish()
