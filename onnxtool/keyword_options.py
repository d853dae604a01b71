"""Options of a public function as one dataclass, whose fields the function also takes as keywords.

Each option is written down once, with its default and what it is for: in the dataclass.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, replace
from textwrap import indent
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from onnxtool.errors import UsageError
from onnxtool.options.option import options_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

P = ParamSpec("P")
R = TypeVar("R")
Options = TypeVar("Options", bound="DataclassInstance")


def options_as_keywords(kind: type[Options]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Show a dataclass's fields in `help()` and `inspect.signature` as keyword arguments.

    For a function that takes them as `**settings`; its docstring says so in a line that begins with "settings:".
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        named = [
            inspect.Parameter(
                option.name,
                inspect.Parameter.KEYWORD_ONLY,
                default={} if option.default is MISSING else option.default,
                annotation=option.type,
            )
            for option in fields(kind)
        ]
        shown: Any = function
        first = [p for p in own if p.kind is not inspect.Parameter.KEYWORD_ONLY]
        shown.__signature__ = signature.replace(parameters=[*first, *named, *own[len(first) :]])
        shown.__doc__ = _with_fields(inspect.getdoc(function) or "", kind)
        return function

    return decorate


def _with_fields(doc: str, kind: type[DataclassInstance]) -> str:
    """A function's docstring, with what is said of the fields below its line on `settings`: by the dataclass, and by
    the option of a field of which it says nothing.
    """
    described = (inspect.getdoc(kind) or "").partition("Attributes:\n")[2]
    for name, option in options_of(kind).items():
        if f"    {name}:" not in described and f"    {name}, " not in described:
            described += f"\n    {name}: {option.help}"
    before, found, after = doc.partition("\n    settings: ")
    own, blank, rest = after.partition("\n\n")
    return f"{before}{found}{own}\n{indent(described, '    ')}{blank}{rest}" if found else doc


def with_settings(options: Options, settings: Mapping[str, Any], command: str) -> Options:
    """`options` with single fields replaced.

    Args:
        options: a dataclass.
        settings: its fields by name.
        command: whose options they are.

    Raises:
        UsageError: no such option.
    """
    known = {f.name for f in fields(options)}
    unknown = sorted(set(settings) - known)
    if unknown:
        raise UsageError(f"{command} has no option {unknown[0]!r}; it has {', '.join(sorted(known))}.")
    return replace(options, **settings)
