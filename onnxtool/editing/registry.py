"""All operations: the built-in ones and those of other packages."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache

from onnxtool.editing.operation import Operation
from onnxtool.editing.operations.inputs import IoDtype, Layout, RemoveInput
from onnxtool.editing.operations.interface import AddOutput, RemoveOutput, RenameInput, RenameOutput
from onnxtool.editing.operations.join import Append, Prepend
from onnxtool.editing.operations.metadata import ClearMetadata, NameDim, SetDoc, SetMetadata
from onnxtool.editing.operations.parts import Extract
from onnxtool.editing.operations.postprocess import Postprocess
from onnxtool.editing.operations.preprocess import Preprocess
from onnxtool.editing.operations.set_shape import SetShape
from onnxtool.editing.operations.tokenize import Tokenize
from onnxtool.editing.operations.versions import SetIrVersion, SetOpset
from onnxtool.editing.operations.weights import Chunk, ExternalData, Refit, ReplaceWeight, StripWeights
from onnxtool.errors import UsageError
from onnxtool.installed_extensions import installed_extensions
from onnxtool.report.edit import OperationSummary

ENTRY_POINTS = "onnxtool.edits"

_BUILT_IN: tuple[type[Operation], ...] = (
    SetShape,
    NameDim,
    RenameInput,
    RenameOutput,
    AddOutput,
    RemoveOutput,
    RemoveInput,
    IoDtype,
    Layout,
    Extract,
    Append,
    Prepend,
    Preprocess,
    Postprocess,
    Tokenize,
    SetOpset,
    SetIrVersion,
    SetMetadata,
    ClearMetadata,
    SetDoc,
    ExternalData,
    Chunk,
    StripWeights,
    Refit,
    ReplaceWeight,
)


@cache
def all_operations() -> dict[str, tuple[type[Operation], str]]:
    """Every operation by name, with the package it comes from.

    Raises:
        UsageError: an entry point cannot be loaded or is not an Operation.
    """
    found: dict[str, tuple[type[Operation], str]] = {kind.name: (kind, "onnxtool") for kind in _BUILT_IN}
    for extension in installed_extensions(ENTRY_POINTS):
        kind = extension.load()
        if not (isinstance(kind, type) and issubclass(kind, Operation)) or not kind.name or kind.name in found:
            raise UsageError(f"{extension} is not an Operation, or its name is taken.")
        found[kind.name] = (kind, extension.package)
    return found


def describe_operations() -> tuple[OperationSummary, ...]:
    """Name, form and one line for each operation."""
    return tuple(
        OperationSummary(name, kind.value, (kind.__doc__ or name).strip().splitlines()[0], origin)
        for name, (kind, origin) in all_operations().items()
    )


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
            made.append(known[name][0](text))
        elif not made or not made[-1].modify(name, text):
            near = get_close_matches(name, known, 1)
            if name in MODIFIERS:
                raise UsageError(f"--{name} {text}: it belongs right after {MODIFIERS[name]}.")
            hint = f"did you mean {near[0]!r}?" if near else "To see all of them: onnxtool edit --list-operations"
            raise UsageError(f"there is no operation {name!r}; {hint}")
    return made


# Options that belong to the operation before them.
MODIFIERS = {"connect": "--append or --prepend"}
