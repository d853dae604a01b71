"""What a source's own Python code compares with (sizes and values on whose two sides it may differ), and what it asks
of the machine that it runs on.
"""

from __future__ import annotations

import datetime
import dis
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

from onnxtool.errors import OnnxToolError

# Packages whose own comparisons say nothing of the model at hand.
_LIBRARIES = (
    "/torch/", "/numpy/", "/tensorflow/", "/keras/", "/sklearn/", "/onnx", "/scipy/", "/pandas/", "/joblib/",
    "/xgboost/", "/lightgbm/", "/catboost/", "/h5py/", "/google/", "/tf_keras/", "/einops/", "/sympy/",
)  # fmt: skip
_INSTALLED = ("site-packages", "dist-packages")
_READERS = {"COMPARE_OP", "BINARY_OP", "CONTAINS_OP", "CALL", "PRECALL", "CALL_FUNCTION"}
_NAMES = {"LOAD_GLOBAL", "LOAD_FAST", "LOAD_DEREF"}
_BACK = 8  # instructions before a comparison that make its operands
_MOST = 64
_LARGEST_SIZE = 8192
_LOOKUPS = ("/os.py", "<frozen os>", "/_collections_abc.py", "<frozen _collections_abc>")


@dataclass(frozen=True)
class _Names:
    """What names stood for when code was called.

    Attributes:
        owner: self.
        known: globals, arguments and what functions around it hold.
    """

    owner: Any
    known: Mapping[str, Any]


@dataclass(frozen=True)
class CodeRead:
    """What the code of a source tells.

    Attributes:
        sizes: whole numbers from 2 on that it compares with; the likeliest first.
        values: other numbers.
        own: some of it is no part of an installed package.
        machine: where it asks for what changes from run to run or from machine to machine: "the clock (net.py line 7)".
    """

    sizes: list[int]
    values: list[float]
    machine: list[str]
    own: bool = False


def read_code(run: Callable[[], Any]) -> CodeRead:
    """Run a source once and read the code that it ran.

    Constants, attributes (`self.window`), arguments and globals beside comparisons, divisions and calls such as `min`
    count, and the numbers in sets, lists and dicts among these; of code that is not installed, every constant does.

    Args:
        run: one forward pass.
    """
    seen: dict[CodeType, _Names] = {}
    machine: dict[str, None] = {}

    def watch(frame: FrameType, event: str, called: Any) -> None:
        if event == "call" and frame.f_code not in seen and _is_telling(frame.f_code):
            seen[frame.f_code] = _Names(frame.f_locals.get("self"), {**frame.f_globals, **frame.f_locals})
        if event == "c_call" and _is_clock(called) and _is_own(frame.f_code):
            machine[f"the clock ({_place(frame)})"] = None
        if event == "call" and frame.f_locals.get("self") is os.environ and (asker := _asker(frame)) is not None:
            machine[f"an environment variable ({_place(asker)})"] = None

    with suppress(OnnxToolError), _profiled(watch):
        run()
    sizes: dict[int, int] = {}
    values: dict[float, int] = {}
    for code, names in seen.items():
        for number, weight in _numbers(code, names):
            if isinstance(number, int) and 1 < number <= _LARGEST_SIZE:
                sizes[number] = max(weight, sizes.get(number, 0))
            elif isinstance(number, float) and number == number and abs(number) < 1e30:
                values[number] = max(weight, values.get(number, 0))
                if number.is_integer() and 1 < number <= _LARGEST_SIZE:
                    sizes[int(number)] = max(weight, sizes.get(int(number), 0))
            if isinstance(number, int) and weight > 1:
                values.setdefault(float(number), weight - 1)
    ordered = sorted(sizes, key=lambda n: -sizes[n])[:_MOST]
    return CodeRead(
        ordered, sorted(values, key=lambda n: -values[n])[:_MOST], list(machine), own=any(map(_is_own, seen))
    )


def caught_errors(run: Callable[[], Any], library: str) -> list[str]:
    """Where a source's own code goes on after a function of a library raised an error ("net.py line 7").

    Args:
        run: one forward pass; an error that ends it is its caller's.
        library: "torch".
    """
    places: dict[str, None] = {}

    def watch(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_exception" and _is_own(frame.f_code):
            modules = (getattr(called, "__module__", None), type(getattr(called, "__self__", None)).__module__)
            if any((module or "").partition(".")[0] == library for module in modules):
                places[_place(frame)] = None

    with _profiled(watch):
        run()
    return list(places)


@contextmanager
def _profiled(watch: Callable[[FrameType, str, Any], None]) -> Iterator[None]:
    """Inside the block, calls are watched; not where cProfile is, which only it itself can set again."""
    before = sys.getprofile()
    if before is not None and not callable(before):
        yield
        return
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(before)


def _is_clock(called: Any) -> bool:
    """Whether a builtin gives the time or the date."""
    owner = getattr(called, "__self__", None)
    if isinstance(owner, type) and issubclass(owner, datetime.date):
        return getattr(called, "__name__", "") in ("now", "utcnow", "today")
    return getattr(called, "__module__", None) == "time" and getattr(called, "__name__", "") != "sleep"


def _asker(frame: FrameType) -> FrameType | None:
    """The code of the model that looks up an environment variable itself; None where a library does."""
    caller = frame.f_back
    while caller is not None and caller.f_code.co_filename.replace("\\", "/").endswith(_LOOKUPS):
        caller = caller.f_back
    return caller if caller is not None and _is_own(caller.f_code) else None


def _is_own(code: CodeType) -> bool:
    """Whether code is the user's: libraries ask the machine for reasons of their own."""
    return _is_telling(code) and not _installed(code.co_filename)


def _place(frame: FrameType) -> str:
    return f"{Path(frame.f_code.co_filename).name} line {frame.f_lineno}"


def _is_telling(code: CodeType) -> bool:
    name = code.co_filename.replace("\\", "/")
    if name.startswith("<") or "/onnxtool/" in name or ("/lib/python3" in name and not _installed(name)):
        return False
    return not (_installed(name) and any(library in name for library in _LIBRARIES))


def _installed(name: str) -> bool:
    return any(folder in name for folder in _INSTALLED)


def _numbers(code: CodeType, names: _Names) -> list[tuple[int | float, int]]:
    found: list[tuple[int | float, int]] = []
    instructions = list(dis.get_instructions(code))
    for place, instruction in enumerate(instructions):
        if instruction.opname not in _READERS:
            continue
        weight = 3 if instruction.opname == "COMPARE_OP" else 2
        before: Any = None  # what the instruction before stands for
        for operand in instructions[max(0, place - _BACK) : place]:
            value = operand.argval if operand.opname == "LOAD_CONST" else None
            if operand.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                value = _attribute((before, names.owner), operand.argval)
            elif operand.opname in _NAMES:
                value = names.known.get(operand.argval)
            before = value
            found += [(number, weight) for number in _held(value)]
    if not _installed(code.co_filename):
        found += [(number, 1) for constant in code.co_consts for number in _held(constant)]
    return found


def _held(value: Any) -> list[int | float]:
    """A number, or those in a collection: its members, the keys of a dict, and what stands under names in one."""
    if isinstance(value, range):
        return [value.start, value.stop]
    if isinstance(value, dict):
        value = [v if isinstance(k, str) else k for k, v in islice(value.items(), _MOST)]
    elif isinstance(value, np.ndarray):
        value = value.reshape(-1)[:_MOST].tolist()
    members = islice(value, _MOST) if isinstance(value, (tuple, list, set, frozenset)) else (value,)
    return [m for m in members if isinstance(m, (int, float)) and not isinstance(m, bool)]


def _attribute(holders: Sequence[Any], name: str) -> Any:
    """An attribute of one of some objects, of their configuration or of their class; never runs code of properties."""
    for owner in holders:
        own = getattr(owner, "__dict__", {})
        for known in (own, getattr(own.get("config"), "__dict__", {}), *(vars(c) for c in type(owner).__mro__[:-1])):
            value = known.get(name)
            if value is not None:
                return value
    return None
