"""All operations: the built-in ones and those of other packages."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import NamedTuple

from onnxtool.editing import operations
from onnxtool.editing.operation import Operation
from onnxtool.errors import UsageError
from onnxtool.installed_extensions import installed_extensions
from onnxtool.options.edit import EditCommand
from onnxtool.options.option import options_of
from onnxtool.report.edit import OperationSummary

ENTRY_POINTS = "onnxtool.edits"


class KnownOperation(NamedTuple):
    """An operation, with what `--list-operations` says of it."""

    kind: type[Operation]
    summary: OperationSummary


@cache
def all_operations() -> dict[str, KnownOperation]:
    """Every operation by name: those of this package in the order of the options that declare them.

    Raises:
        UsageError: an entry point cannot be loaded or is not an Operation.
    """
    kinds = _built_in()
    found: dict[str, KnownOperation] = {}
    for option in options_of(EditCommand).values():
        if option.role == "operation" and (kind := kinds.get(option.word)):
            found[option.word] = KnownOperation(
                kind, OperationSummary(option.word, option.metavar, _told(kind), "onnxtool")
            )
    for extension in installed_extensions(ENTRY_POINTS):
        kind = extension.load()
        if not (isinstance(kind, type) and issubclass(kind, Operation)) or not kind.name or kind.name in found:
            raise UsageError(f"{extension} is not an Operation, or its name is taken.")
        found[kind.name] = KnownOperation(kind, OperationSummary(kind.name, kind.value, _told(kind), extension.package))
    return found


def _built_in() -> dict[str, type[Operation]]:
    """Those of the modules in `operations`."""
    modules = [import_module(f"{operations.__name__}.{m.name}") for m in iter_modules(operations.__path__)]
    classes = [c for m in modules for c in vars(m).values() if isinstance(c, type) and issubclass(c, Operation)]
    return {c.name: c for c in classes if c.name}


def _told(kind: type[Operation]) -> str:
    return (kind.__doc__ or kind.name).strip().splitlines()[0]


def describe_operations() -> tuple[OperationSummary, ...]:
    """Name, form and one line for each operation."""
    return tuple(known.summary for known in all_operations().values())


def parse_operations(given: Sequence[tuple[str, str]]) -> list[Operation]:
    """Make operations of (name, text) pairs, in order; options that belong to one join it.

    Raises:
        UsageError: an unknown name, or a text that does not have the operation's form.
    """
    made: list[Operation] = []
    known = all_operations()
    for name, text in given:
        if made and made[-1].name == name and made[-1].merge(text):
            continue
        if name in known:
            made.append(known[name].kind(text))
        elif not made or not made[-1].modify(name, text):
            near = get_close_matches(name, known, 1)
            if name in MODIFIERS:
                raise UsageError(f"--{name} {text}: it belongs right after {MODIFIERS[name]}.")
            hint = f"did you mean {near[0]!r}?" if near else "To see all of them: onnxtool edit --list-operations"
            raise UsageError(f"there is no operation {name!r}; {hint}")
    return made


# Options that belong to the operation before them.
MODIFIERS = {"connect": "--append or --prepend"}
