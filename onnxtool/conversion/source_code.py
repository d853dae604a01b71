"""What a source's own Python code compares with (sizes and values on whose two sides it may differ), and what it asks
of the machine that it runs on.
"""

from __future__ import annotations

import datetime
import dis
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from onnxtool.errors import OnnxToolError

# Packages whose own comparisons say nothing of the model at hand.
_LIBRARIES = (
    "/torch/", "/numpy/", "/tensorflow/", "/keras/", "/sklearn/", "/onnx", "/scipy/", "/pandas/", "/joblib/",
    "/xgboost/", "/lightgbm/", "/catboost/", "/h5py/", "/google/", "/tf_keras/", "/einops/", "/sympy/",
)  # fmt: skip
_INSTALLED = ("site-packages", "dist-packages")
_READERS = {"COMPARE_OP", "BINARY_OP", "CONTAINS_OP", "CALL", "PRECALL", "CALL_FUNCTION"}
_BACK = 8  # instructions before a comparison that make its operands
_MOST = 64
_LARGEST_SIZE = 8192
_LOOKUPS = ("/os.py", "<frozen os>", "/_collections_abc.py", "<frozen _collections_abc>")


@dataclass(frozen=True)
class CodeRead:
    """What the code of a source tells.

    Attributes:
        sizes: whole numbers from 2 on that it compares with; the likeliest first.
        values: other numbers.
        machine: where it asks for what changes from run to run or from machine to machine: "the clock (net.py line 7)".
    """

    sizes: list[int]
    values: list[float]
    machine: list[str]


def read_code(run: Callable[[], Any]) -> CodeRead:
    """Run a source once and read the code that it ran.

    Constants and attributes (`self.window`) beside comparisons, divisions and calls such as `min` count; of code that
    is not installed, every constant does.

    Args:
        run: one forward pass.

    """
    seen: dict[CodeType, Any] = {}
    machine: dict[str, None] = {}

    def watch(frame: FrameType, event: str, called: Any) -> None:
        if event == "call" and frame.f_code not in seen and _is_telling(frame.f_code):
            seen[frame.f_code] = frame.f_locals.get("self")
        if event == "c_call" and _is_clock(called) and _is_own(frame.f_code):
            machine[f"the clock ({_place(frame)})"] = None
        if event == "call" and frame.f_locals.get("self") is os.environ and (asker := _asker(frame)) is not None:
            machine[f"an environment variable ({_place(asker)})"] = None

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        run()
    except OnnxToolError:
        pass
    finally:
        sys.setprofile(before)
    sizes: dict[int, int] = {}
    values: dict[float, int] = {}
    for code, owner in seen.items():
        for number, weight in _numbers(code, owner):
            if isinstance(number, int) and 1 < number <= _LARGEST_SIZE:
                sizes[number] = max(weight, sizes.get(number, 0))
            elif isinstance(number, float) and number == number and abs(number) < 1e30:
                values[number] = max(weight, values.get(number, 0))
                if number.is_integer() and 1 < number <= _LARGEST_SIZE:
                    sizes[int(number)] = max(weight, sizes.get(int(number), 0))
            if isinstance(number, int) and weight > 1:
                values.setdefault(float(number), weight - 1)
    ordered = sorted(sizes, key=lambda n: -sizes[n])[:_MOST]
    return CodeRead(ordered, sorted(values, key=lambda n: -values[n])[:_MOST], list(machine))


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


def _numbers(code: CodeType, owner: Any) -> list[tuple[int | float, int]]:
    found: list[tuple[int | float, int]] = []
    instructions = list(dis.get_instructions(code))
    for place, instruction in enumerate(instructions):
        if instruction.opname not in _READERS:
            continue
        weight = 3 if instruction.opname == "COMPARE_OP" else 2
        for operand in instructions[max(0, place - _BACK) : place]:
            number = operand.argval if operand.opname == "LOAD_CONST" else None
            if operand.opname in ("LOAD_ATTR", "LOAD_METHOD") and owner is not None:
                number = _attribute(owner, operand.argval)
            if isinstance(number, (int, float)) and not isinstance(number, bool):
                found.append((number, weight))
    if not _installed(code.co_filename):
        found += [(c, 1) for c in code.co_consts if isinstance(c, (int, float)) and not isinstance(c, bool)]
    return found


def _attribute(owner: Any, name: str) -> Any:
    """An attribute, or one of the same name in the owner's configuration; never runs code of properties."""
    for holder in (owner, getattr(owner, "__dict__", {}).get("config")):
        value = getattr(holder, "__dict__", {}).get(name)
        if value is not None:
            return value
    return None
