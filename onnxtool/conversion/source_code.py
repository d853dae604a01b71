"""Numbers that a source's own Python code compares with: sizes and values on whose two sides it may differ."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
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


def numbers_compared(run: Callable[[], Any]) -> tuple[list[int], list[float]]:
    """Run a source once and read the code that it ran.

    Constants and attributes (`self.window`) beside comparisons, divisions and calls such as `min` count; of code that
    is not installed, every constant does.

    Args:
        run: one forward pass.

    Returns:
        Whole numbers from 2 on, and other numbers; the likeliest first.
    """
    seen: dict[CodeType, Any] = {}

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code not in seen and _is_telling(frame.f_code):
            seen[frame.f_code] = frame.f_locals.get("self")

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
    return ordered, sorted(values, key=lambda n: -values[n])[:_MOST]


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
