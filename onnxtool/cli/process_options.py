"""What is read off the command line before Typer sees it: options of the whole process, and a bare `--json`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
