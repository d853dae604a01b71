"""Fractions of dynamic sizes, `int(height * 0.7)` or `math.sqrt(length)`, which torch's exporters take for numbers.

Python's `int`, `float` and `math.sqrt` make a number of a size for good; here they give what torch.export follows.
The exporter then computes in float32, where Python has float64: another number is cut off at 10 * 0.7 and its like.
"""

from __future__ import annotations

import ast
import builtins
import math
import operator
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from linecache import getlines
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxscript
import torch

op = onnxscript.opset18
# Of a value of float32 in the graph that stands for a number of Python's: the same in float64.
_EXACT = "onnxtool.size_in_float64"


class _Follows(type):
    """Of a class that stands in for a number's class of Python: instances of that are its own, and so are sizes."""

    def __instancecheck__(cls, value: Any) -> bool:
        plain = cls.__bases__[0]
        return isinstance(value, (plain, torch.SymInt if plain is int else torch.SymFloat))

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, cls.__bases__[0])

    def __call__(cls, *given: Any, **named: Any) -> Any:
        plain = cls.__bases__[0]
        if len(given) == 1 and isinstance(given[0], (torch.SymInt, torch.SymFloat)):
            return math.trunc(given[0]) if plain is int else torch.sym_float(given[0])
        if not torch.jit.is_tracing():
            return plain(*given, **named)
        with warnings.catch_warnings(record=True) as caught:
            number = plain(*given, **named)
        for warning in caught:  # their place is the line of the model
            warnings.warn(warning.message, warning.category, stacklevel=2)
        return number


class _Whole(int, metaclass=_Follows):
    """`int`, which of a size makes a size."""


class _Real(float, metaclass=_Follows):
    """`float`, which of a size makes a number that is followed."""


def square_root(value: Any) -> Any:
    """`math.sqrt`, which of a size makes a number that is followed."""
    return torch.sym_sqrt(value) if isinstance(value, (torch.SymInt, torch.SymFloat)) else _SQRT(value)


_SQRT = math.sqrt


def stand_ins(names: Mapping[str, Any]) -> dict[str, Any]:
    """What stands in for Python's own in the globals of a file, by name."""
    found: dict[str, Any] = {name: square_root for name, value in names.items() if value is _SQRT}
    file = names.get("__file__")
    own = {*names, *(_as_types("".join(getlines(file))) if isinstance(file, str) else ())}
    return found | {name: kind for name, kind in (("int", _Whole), ("float", _Real)) if name not in own}


@cache
def _as_types(source: str) -> frozenset[str]:
    """Which of `int` and `float` a file takes for more than a function: NumPy and torch know Python's own alone.

    What they are asked of (isinstance) and what annotations say is no such use.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:  # it was changed since it was imported
        return frozenset(("int", "float"))
    used, harmless = list[ast.Name](), set[int]()
    for node in ast.walk(tree):
        parts: list[ast.expr | None] = []
        if isinstance(node, ast.Name) and node.id in ("int", "float"):
            used.append(node)
        elif isinstance(node, ast.Call):
            asks = isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "issubclass", "map")
            parts = [node.func, *(node.args if asks else ())]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            parts = [node.returns]
        elif isinstance(node, ast.arg | ast.AnnAssign):
            parts = [node.annotation]
        harmless |= {id(name) for part in parts if part is not None for name in ast.walk(part)}
    return frozenset(name.id for name in used if id(name) not in harmless)


def _in_float64(number: Any) -> Any:
    """A number of Python's, a size (int64) or a value of this file's, as float64."""
    if not isinstance(number, ir.Value):
        return op.Constant(value=ir.tensor(np.float64(number)))
    exact = number.meta.get(_EXACT)
    return op.Cast(number, to=ir.DataType.DOUBLE) if exact is None else exact


def _in_float32(exact: Any) -> Any:
    """What torch's exporter takes for a number of Python's."""
    number = op.Cast(exact, to=ir.DataType.FLOAT)
    number.meta[_EXACT] = exact
    return number


def _is_whole(number: Any) -> bool:
    return number.dtype == ir.DataType.INT64 if isinstance(number, ir.Value) else isinstance(number, int)


def _computed(operator_name: str) -> Callable[..., Any]:
    """A translation in float64; of whole numbers alone in int64, but for quotients."""

    def translation(*numbers: Any) -> Any:
        write = getattr(op, operator_name)
        if operator_name != "Div" and all(map(_is_whole, numbers)):
            return write(*(op.Constant(value_int=n) if isinstance(n, int) else n for n in numbers))
        return _in_float32(write(*map(_in_float64, numbers)))

    return translation


def _rounded(operator_name: str) -> Callable[..., Any]:
    """A translation to a size; of a size it changes nothing."""

    def translation(number: Any, digits: None = None) -> Any:
        if digits is not None:
            raise NotImplementedError("a fraction of a size that is rounded to digits")
        if _is_whole(number):
            return op.Identity(number)
        exact = _in_float64(number)
        whole = getattr(op, operator_name)(exact) if operator_name else exact
        return op.Cast(whole, to=ir.DataType.INT64)

    return translation


TRANSLATIONS: dict[object, Callable[..., Any]] = {
    torch.sym_float: lambda number: _in_float32(_in_float64(number)),
    torch.sym_sqrt: _computed("Sqrt"),
    torch.sym_max: _computed("Max"),
    torch.sym_min: _computed("Min"),
    operator.truediv: _computed("Div"),
    operator.mul: _computed("Mul"),
    operator.add: _computed("Add"),
    operator.sub: _computed("Sub"),
    operator.pow: _computed("Pow"),
    math.trunc: _rounded(""),
    math.ceil: _rounded("Ceil"),
    math.floor: _rounded("Floor"),
    builtins.round: _rounded("Round"),
}
