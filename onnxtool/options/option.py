"""One option, declared once.

A field of a command's dataclass carries an `Option`. From it come the command line with its help pages, man pages and
completion (`cli/typer_options.py`), the options of a build file's steps and their JSON schema (`workflow/`), and the
refusal of options that do nothing (`cli/commands/quantize.py`). The field's name and type are what Python functions
take; `onnxtool/words.py` makes them of what is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# What is written for an option. The plain ones follow from the type of the field; "text" from any other.
Kind = Literal[
    "flag", "count", "integer", "number", "numbers", "text", "texts", "path", "paths", "choice",
    # A text that is read further: 64MB; 0.01 or 1%; 5%; "1,8"; "A,B"; ID[,ID]; NAME=VALUE; NAME=FILE; ...
    "size", "share", "percentage", "counts", "names", "ids", "arguments", "files", "shapes", "shapes by name", "dtypes",
    "tolerances", "sample", "count or auto",
]  # fmt: skip
# What the command line hands over for each kind, and what a build file holds.
_TYPES: Mapping[Kind, tuple[Any, str]] = {
    **dict.fromkeys(("text", "choice", "percentage", "counts", "names"), (str, "text")),
    "count or auto": (str, "any"),
    **dict.fromkeys(
        ("texts", "ids", "files", "shapes", "shapes by name", "dtypes", "tolerances"), (list[str], "texts")
    ),
    **dict.fromkeys(("path", "sample"), (Path, "text")),
    "paths": (list[Path], "texts"),
    "numbers": (list[float], "texts"),
    "flag": (bool, "flag"),
    "count": (int, "integer"),
    "integer": (int, "integer"),
    "number": (float, "number"),
    "size": (str, "size"),
    "share": (str, "number"),
    "arguments": (list[str], "table"),
}
# What an option names: "data" is a data set or a file, "code" is place:name of Python code.
Role = Literal["", "file", "files", "folders", "data", "code", "operation"]

INPUT, OUTPUT, GENERAL = "Input", "Output", "Options"
PROOF, SPEED, REPORTS, SELDOM = "Accuracy and proof", "Speed", "Reports", "Seldom used"
GROUPS = (INPUT, OUTPUT, GENERAL, PROOF, SPEED, REPORTS, SELDOM)

_PLAIN: Mapping[str, Kind] = {
    "bool": "flag",
    "int": "integer",
    "float": "number",
    **dict.fromkeys(("Path", "PathLike", "str | os.PathLike[str]"), "path"),
    "tuple[float, ...]": "numbers",
    **dict.fromkeys(("tuple[str, ...]", "Sequence[str]", "Collection[str]"), "texts"),
    "tuple[Path, ...]": "paths",
}


@dataclass(frozen=True)
class Option:
    """One option of a command.

    Attributes:
        help: what it does.
        default: value of the field when the option is not given; MISSING where it has to be.
        flags: as they are written ("--output", "-o"); a flag may have an opposite ("--zipmap/--no-zipmap"). () is "--"
            and the field's name. A flag without opposite whose default is True switches off.
        kind: what is written for it.
        group: heading of the help page that it stands under; `SELDOM` is shown by --help-all alone.
        metavar: what stands for its value on the help page.
        choices: the only values it has.
        low, high: limits of a number.
        role: what it names; files decide whether a step of a build is stale.
        complete: function of `cli/completion.py` that knows its values.
        shown: its default as it is written, where that differs from the field's ("5%"); "" shows none.
        argument: it is written without a flag.
        step: a step of a build file takes it too.
        of_source: it says what a model to convert is: in a build file it stands in the model's own table.
        modes: values of the field `mode` with which it does something; () is all.
        needs: fields of which one has to be given as well.
        bundle: whether it is for bundles of language models: "too", "only", or "" for neither.
        place: where it stands in its group: the lowest first, fields of one place in their order.
    """

    help: str
    default: Any = None
    flags: tuple[str, ...] = ()
    kind: Kind = "text"
    group: str = GENERAL
    metavar: str = ""
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    role: Role = ""
    complete: str = ""
    shown: Any = None
    argument: bool = False
    step: bool = True
    of_source: bool = False
    modes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    bundle: Literal["", "too", "only"] = ""
    place: int = 0

    @property
    def flag(self) -> str:
        """Its first flag: "--output"."""
        return self.flags[0].partition("/")[0]

    @property
    def several(self) -> bool:
        """True when an argument takes all the words that follow."""
        return self.kind in ("texts", "paths")

    @property
    def word(self) -> str:
        """Its key in a build file: the flag without dashes."""
        return self.flag.removeprefix("--")

    @property
    def required(self) -> bool:
        """True when it has to be given."""
        return self.default is MISSING

    @property
    def word_type(self) -> Any:
        """What the command line hands over."""
        return _TYPES[self.kind][0]

    @property
    def file_type(self) -> str:
        """What a build file holds."""
        return "texts" if self.role == "operation" else _TYPES[self.kind][1]

    @property
    def written_default(self) -> Any:
        """Its default as it is written; None when there is none to show."""
        if self.shown is not None or self.required:
            return self.shown or None
        if self.kind == "flag":
            return self.default and not self.switches_off
        default = self.default.value if isinstance(self.default, Enum) else self.default
        return None if default == "" or isinstance(default, (tuple, dict)) else default

    @property
    def switches_off(self) -> bool:
        """True for a flag that makes its field False: --no-verify."""
        return self.kind == "flag" and self.default is True and "/" not in self.flags[0]

    def field(self) -> Any:
        """A field of a dataclass with this option."""
        if isinstance(self.default, dict):
            return field(default_factory=dict, metadata={_OPTION: self}, kw_only=True)
        return field(default=self.default, metadata={_OPTION: self}, kw_only=True)


_OPTION = "option"


def option(default: Any, text: str, *flags: str, choices: Any = (), **traits: Any) -> Any:
    """A field with an option; `choices` may be a Literal, the other arguments are as of `Option`."""
    choices = choices if isinstance(choices, tuple) else get_args(choices)
    kind = "choice" if choices else None
    return Option(text, default, flags, choices=choices, **({"kind": kind} | traits)).field()


input_option, output_option = partial(option, group=INPUT), partial(option, group=OUTPUT)
proof_option, speed_option = partial(option, group=PROOF), partial(option, group=SPEED)
seldom_option = partial(option, group=SELDOM)


def shared(default: Any, text: str, *flags: str, **traits: Any) -> Callable[..., Any]:
    """An option of several commands: a function that gives a field with it, changed where a command needs it."""
    declared = Option(text, default, flags, **({"kind": None} | traits))

    def declare(**changes: Any) -> Any:
        return replace(declared, **changes).field()

    return declare


def options_of(kind: type[DataclassInstance]) -> dict[str, Option]:
    """Field -> option of a command's dataclass, in the order of its help page; fields without one are left out."""
    found = {
        f.name: _completed(f.name, str(f.type), f.metadata[_OPTION]) for f in fields(kind) if _OPTION in f.metadata
    }
    return dict(sorted(found.items(), key=lambda item: item[1].place))


def _completed(name: str, annotation: str, declared: Option) -> Option:
    """With the flag and the kind that the field's name and type say, unless the declaration does."""
    flags = declared.flags or (f"--{name.replace('_', '-')}",)
    kind: Kind = declared.kind or _PLAIN.get(annotation.removesuffix(" | None"), "text")
    return replace(declared, flags=flags, kind=kind)
