"""From what is written, on the command line or in a build file, to the values that functions take."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from onnxtool.errors import UsageError
from onnxtool.options.option import Option, options_of

if TYPE_CHECKING:
    import numpy as np
    from _typeshed import DataclassInstance

    from onnxtool.equality.rule.tolerance import Tolerance
    from onnxtool.options.session import OptimizationLevel, SessionOptions
    from onnxtool.options.shared import Dim
    from onnxtool.runtime.data.table import DataTable

Asked = TypeVar("Asked", bound="DataclassInstance")


def read_words(kind: type[Asked], written: Mapping[str, Any], *, dashes: str = "--") -> Asked:
    """The options of a command from what is written for them.

    Args:
        kind: the command's dataclass.
        written: by field; None is not given. Numbers and flags have their type already.
        dashes: what stands before an option's word in messages: nothing in a build file.

    Raises:
        UsageError: a text that cannot be read.
    """
    declared = options_of(kind)
    values = {}
    for name, value in written.items():
        if value is not None:
            option = declared.get(name)
            if option is not None and option.role == "data" and written.get("decimal") == ",":
                from onnxtool.runtime.data.source import DataPath

                value = DataPath(str(value), ",")  # noqa: PLW2901
            values[name] = value if option is None else read_value(option, value, dashes + option.word)
    return kind(**values)


def read_value(option: Option, value: Any, called: str) -> Any:
    """The value of a field, from what is written for its option.

    Raises:
        UsageError: it cannot be read.
    """
    if option.switches_off:
        return not value
    if option.choices and value not in (*option.choices, option.default):
        raise UsageError(f"{called} {value}: must be one of {', '.join(option.choices)}.")
    reader = _READERS.get(option.kind)
    return value if reader is None else reader(called, value)


_OF_SESSION = {"provider", "custom_op_library"}


def taken_by(function: Callable[..., Any], asked: DataclassInstance) -> dict[str, Any]:
    """The options that a function takes as keywords, by name; those of the runtime as one, `options`."""
    keywords = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    known = {f.name for f in fields(asked)}
    taken = {name: getattr(asked, name) for name in keywords if name in known}
    return taken | ({"options": session_options(asked)} if "options" in keywords and known & _OF_SESSION else {})


def part_of(kind: type[Asked], asked: DataclassInstance, **changes: Any) -> Asked:
    """The options of one kind among those of a command."""
    known = {f.name for f in fields(asked)}
    return kind(**{f.name: getattr(asked, f.name) for f in fields(kind) if f.name in known} | changes)


def session_options(asked: Any, optimization: OptimizationLevel = "all", **changes: Any) -> SessionOptions:
    """What --provider, --ep-library, --threads and --custom-op-library ask for, as far as a command has them."""
    from onnxtool.options.session import SessionOptions

    threads = getattr(asked, "threads", None)
    libraries = getattr(asked, "custom_op_library", None) or getattr(asked, "custom_op_libraries", None) or ()
    found: dict[str, Any] = {
        "provider": tuple(getattr(asked, "provider", ())),
        "threads": threads if isinstance(threads, int) else None,
        "optimization": optimization,
        "custom_op_libraries": tuple(_library(path) for path in libraries),
        "ep_libraries": tuple(getattr(asked, "ep_library", ())),
    }
    return SessionOptions(**found | changes)


def _library(path: Path) -> Path:
    """A shared library; that of onnxruntime-extensions by the package's name."""
    from onnxtool.runtime.session.extensions import NAMES, extensions_library

    return extensions_library(f"--custom-op-library {path}") if str(path) in NAMES else path


def byte_count(called: str, value: str | int) -> int:
    """Read "64MB", "1.5 GB" or plain bytes (1 kB is 1000 bytes).

    Raises:
        UsageError: not such a size.
    """
    from onnxtool.model.byte_sizes import parse_bytes

    return value if isinstance(value, int) else parse_bytes(value, f"{called} {value}")


def percentage(called: str, value: str | float) -> float:
    """Read "5%" or "5" as 0.05.

    Raises:
        UsageError: no number from 0 up.
    """
    number = _number(str(value).strip().removesuffix("%"))
    if not 0 <= number < float("inf"):
        raise UsageError(f"{called} {value}: write a percentage, such as 5%.")
    return number / 100


def share(called: str, value: str | float) -> float:
    """Read "0.01" or "1%" as 0.01.

    Raises:
        UsageError: no share from 0 to 1.
    """
    plain = str(value).strip()
    number = _number(plain.removesuffix("%")) / (100 if plain.endswith("%") else 1)
    if not 0 <= number <= 1:
        raise UsageError(f"{called} {value}: write a share from 0 to 1, such as 0.01, or a percentage, such as 1%.")
    return number


def count_or_auto(called: str, value: str | int) -> int | None:
    """Read "4" as 4 and "auto" as None.

    Raises:
        UsageError: neither, or less than 1.
    """
    if value == "auto":
        return None
    text = str(value)
    if not text.isdecimal() or not 1 <= int(text[:9]) <= 256:
        raise UsageError(f"{called} {text[:40]}: must be auto, or a whole number from 1 to 256.")
    return int(text)


def counts(called: str, value: str | int) -> tuple[int, ...]:
    """Read "1,8" as (1, 8), each once.

    Raises:
        UsageError: something that is not a whole number from 1 up.
    """
    parts = [p.strip() for p in str(value).split(",")]
    if not all(p.isascii() and p.isdigit() and 0 < int(p) < 1 << 20 for p in parts):
        raise UsageError(f"{called} {value}: write whole numbers from 1 up, with commas between them.")
    return tuple(dict.fromkeys(int(p) for p in parts))


def tolerances(called: str, value: str | Iterable[str]) -> dict[str, Tolerance]:
    """Read each "NAME:rtol,atol" as the tolerance of an output.

    Raises:
        UsageError: another form.
    """
    from onnxtool.equality.rule.tolerance import Tolerance

    found = {}
    for text in texts(value):
        name, separator, numbers = text.rpartition(":")
        pair = [_number(n) for n in numbers.split(",")]
        if not separator or not name or len(pair) != 2 or not (pair[0] >= 0 and pair[1] >= 0):
            raise UsageError(f"{called} {text}: write NAME:rtol,atol, such as logits:1e-2,1e-4.")
        found[name] = Tolerance(pair[0], pair[1], absolute=True)
    return found


def _number(text: str) -> float:
    """-1 where there is none; "nan" is none to the comparisons above."""
    try:
        return float(text)
    except ValueError:
        return -1.0


def texts(value: str | Iterable[Any]) -> tuple[Any, ...]:
    """One text or several as several."""
    return (value,) if isinstance(value, (str, int)) else tuple(value)


def _names(_called: str, value: str) -> tuple[str, ...]:
    names = tuple(n.strip() for n in value.split(",") if n.strip())
    if not names:
        raise UsageError("a list of names is empty.")
    return names


def _ids(_called: str, value: str | Iterable[str]) -> tuple[str, ...]:
    return tuple(part for text in texts(value) for part in text.split(",") if part.strip())


def _arguments(called: str, value: Mapping[str, Any] | Iterable[str]) -> dict[str, Any]:
    """NAME=VALUE, the value read as JSON where it is JSON ("3", "true", "[1,2]", "null"), else as text."""
    if isinstance(value, Mapping):
        return dict(value)
    found = {}
    for text in value:
        name, equals, part = text.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"{called} {text}: write NAME=VALUE.")
        try:
            found[name] = json.loads({"True": "true", "False": "false", "None": "null"}.get(part, part))
        except ValueError:
            found[name] = part
    return found


def _files(called: str, value: Iterable[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in value:
        # Input names may hold "=" less likely than file names do; the first one separates.
        name, separator, file = text.partition("=")
        if not (name and separator and file):
            raise UsageError(f"{called} {text}: write NAME=FILE.npy.")
        if name in pairs:
            raise UsageError(f"{called} names {name!r} twice.")
        pairs[name] = file
    return pairs


def _shapes(_called: str, value: str | Iterable[str]) -> dict[str | None, tuple[Dim, ...]]:
    from onnxtool.model.spec import parse_input_shapes

    return parse_input_shapes(texts(value))


def _dtypes(_called: str, value: str | Iterable[str]) -> dict[str, Any]:
    from onnxtool.model.spec import parse_dtype

    return {name: parse_dtype(dtype) for name, _, dtype in (text.rpartition(":") for text in texts(value))}


def _sample(_called: str, value: str | os.PathLike[str]) -> Mapping[str, np.ndarray] | DataTable:
    from onnxtool.runtime.data.open_data import open_sample

    return open_sample(value)


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "texts": lambda _called, value: texts(value),
    "numbers": lambda _called, value: tuple(value),
    "paths": lambda _called, value: tuple(map(Path, texts(value))),
    "size": byte_count,
    "share": share,
    "percentage": percentage,
    "counts": counts,
    "count or auto": count_or_auto,
    "names": _names,
    "ids": _ids,
    "arguments": _arguments,
    "files": _files,
    "shapes": _shapes,
    "shapes by name": lambda called, value: {name or "": dims for name, dims in _shapes(called, value).items()},
    "dtypes": _dtypes,
    "tolerances": tolerances,
    "sample": _sample,
}
