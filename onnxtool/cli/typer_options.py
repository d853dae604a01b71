"""The command line of a command, from the one declaration of its options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from enum import Enum, StrEnum
from importlib import import_module
from typing import Annotated, Any, Union

import typer
from typer.core import TyperCommand

from onnxtool.cli.output import Output
from onnxtool.options.option import Option, options_of

_FORMS = ("junit", "sarif", "markdown", "html")
_OPERATIONS = "onnxtool.operations"


def options_class(name: str) -> Any:
    """The dataclass of a command's options."""
    return getattr(import_module(f"onnxtool.options.{name}"), f"{name.title()}Command")


def command_function(name: str) -> Callable[..., None]:
    """What Typer makes the command of: a function with a parameter for each option, which runs the command's own
    with all of them as one object.
    """
    run, kind = import_module(f"onnxtool.cli.commands.{name}").command, options_class(name)
    declared = options_of(kind)

    def command(context: typer.Context, **written: Any) -> None:
        from onnxtool.words import read_words

        values = {name: value.value if isinstance(value, Enum) else value for name, value in written.items()}
        if _OPERATIONS in context.meta:
            values["operations"] = tuple(context.meta[_OPERATIONS])
        forms = {form: written[form] for form in _FORMS if form in written}
        reports = written.get("report_files")
        with Output(written["json"], written["verbose"], written["quiet"], forms, reports) as out:
            out.given = typed(context, declared)
            run(read_words(kind, values), out)

    parameters = [inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    parameters += [_parameter(field, option) for field, option in declared.items()]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    command.__doc__ = run.__doc__
    return command


def command_class(name: str) -> type[TyperCommand] | None:
    """How the line is read, where that is not Typer's way."""
    return OrderedCommand if any(o.role == "operation" for o in options_of(options_class(name)).values()) else None


def _parameter(field: str, option: Option) -> inspect.Parameter:
    kind: Any = _choices(field, option) if option.kind == "choice" else option.word_type
    default = option.written_default
    if option.required:
        default = inspect.Parameter.empty
    elif default is None:
        kind = Union[kind, None]  # noqa: UP007  (a value, not an annotation)
    annotation: Any = Annotated[kind, _typer_info(option)]
    return inspect.Parameter(field, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _choices(field: str, option: Option) -> Any:
    return StrEnum(field, {choice: choice for choice in option.choices})


def _typer_info(option: Option) -> Any:
    traits: dict[str, Any] = {"help": option.help, "metavar": option.metavar or None}
    if option.argument:
        return typer.Argument(**traits)
    if option.kind in ("integer", "number"):
        traits |= {"min": option.low, "max": option.high}
    if option.complete:
        traits["autocompletion"] = _completing(option.complete)
    return typer.Option(*option.flags, count=option.kind == "count", **traits)


def _completing(name: str) -> Callable[[str], list[str]]:
    """What `completion` knows by this name, imported when the shell asks."""

    def complete(incomplete: str) -> list[str]:
        from onnxtool.cli import completion

        return completion.completions(name, incomplete)

    return complete


def typed(context: typer.Context, declared: Mapping[str, Option]) -> dict[str, str]:
    """The fields whose options the user wrote on the line, and how each is called ("--keep-io")."""
    found = {}
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if name in declared and source is not None and source.name == "COMMANDLINE":
            found[name] = name.upper() if declared[name].argument else parameter.opts[-1]
    return found


class OrderedCommand(TyperCommand):
    """Remembers in which order the operations stood on the command line, which click's parser knows and drops."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Note the operations as (name, text) pairs, then parse as usual."""
        operations = {name for name, o in options_of(options_class(self.name or "")).items() if o.role == "operation"}
        values, _, order = self.make_parser(ctx).parse_args(args=list(args))
        taken: dict[str, int] = {}
        given: list[tuple[str, str]] = []
        for parameter in order:
            name = parameter.name or ""
            if name not in operations:
                continue
            value = values.get(name)
            if isinstance(value, (list, tuple)):
                text = value[taken.get(name, 0)]
                taken[name] = taken.get(name, 0) + 1
            else:
                text = ""
            option, text = name.replace("_", "-"), str(text)
            if option == "operation":
                option, _, text = text.partition("=")
            given.append((option, text))
        ctx.meta[_OPERATIONS] = given
        return super().parse_args(ctx, args)
