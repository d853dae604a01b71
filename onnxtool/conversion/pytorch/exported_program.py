"""Exported programs (.pt2). torch.export.load can run code that a file brings, so the file is screened first."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any

import torch

from onnxtool.conversion.pytorch.safety import is_outside
from onnxtool.conversion.quiet import quiet
from onnxtool.conversion.source import Source
from onnxtool.errors import InputError, UnsafeError, UnsupportedError, first_line

# torch.export.load evaluates dim expressions with sympy, which evaluates Python: only these words may occur.
_WORDS = re.compile(r"[A-Za-z_]\w*")
_SYMBOL = re.compile(r"(s|u|f|zf|zuf|z)\d+")
_FUNCTIONS = {
    "Symbol", "Integer", "Float", "Rational", "positive", "negative", "integer", "nonnegative", "real", "True", "False",
    "Add", "Mul", "Pow", "Mod", "Max", "Min", "Eq", "Ne", "Lt", "Le", "Gt", "Ge", "And", "Or", "Not", "Abs", "oo",
    "int_oo", "floor", "ceiling", "FloorDiv", "CleanDiv", "ModularIndexing", "Where", "PythonMod", "CeilToInt",
    "FloorToInt", "CeilDiv", "LShift", "RShift", "PowByNatural", "FloatPow", "FloatTrueDiv", "IntTrueDiv",
    "IsNonOverlappingAndDenseIndicator", "TruncToFloat", "TruncToInt", "RoundToInt", "RoundDecimal", "ToFloat",
    "Identity", "sqrt", "sym_sqrt", "OpaqueUnaryFn_sqrt", "StrictLess", "Unequality", "Equality", "GreaterThan",
    "LessThan", "StrictGreaterThan", "StrictLessThan", "BitwiseFn_bitwise_and", "BitwiseFn_bitwise_or",
}  # fmt: skip
_TARGET = re.compile(r"torch\.ops\.(?!load_library|__)\w+\.\w+(\.\w+)?|torch\._?sym_\w+|_operator\.\w+|math\.\w+")
_MODULES = ("torch", "math", "_operator")


def load_exported_program(source: Source, trust: bool) -> torch.export.ExportedProgram:
    """Load a .pt2 file.

    Raises:
        UnsafeError: it holds pickles or expressions that could run code, and `trust` is not set.
        InputError: damaged, or written by a torch that this one cannot read.
        UnsupportedError: it was exported in training mode.
    """
    if not trust:
        _screen(source)
    try:
        with quiet(0):  # torch logs the whole traceback when it fails
            program = torch.export.load(str(source.path))
    except Exception as error:
        reason = first_line(error).removesuffix(" Please check the warnings above for possible errors.")
        raise InputError(
            f"{source}: this exported program cannot be loaded by torch {torch.__version__} ({reason})."
        ) from error
    for node in program.graph.nodes:
        if _trains(node):
            raise UnsupportedError(
                f"{source}: this program was exported in training mode ({node.name}). "
                "Call model.eval() and export again."
            )
    return program


def _trains(node: Any) -> bool:
    # aten.dropout(input, p, train), aten.batch_norm(input, weight, bias, mean, var, training, ...)
    name = str(node.target)
    if name.startswith("aten.dropout"):
        return len(node.args) > 2 and node.args[2] is True
    if name.startswith("aten.batch_norm"):
        return len(node.args) > 5 and node.args[5] is True
    return False


def _screen(source: Source) -> None:
    names = source.zip_names()
    for name in names:
        inner = name.partition("/")[2]
        if inner.endswith(".json"):
            document = source.json(name)
            if document is None:
                raise InputError(f"{source}: this exported program is damaged at {name!r}, or that part is too large.")
            for key, value in _items(document):
                _screen_item(source, key, value)
        elif inner.endswith((".pt", ".pth", ".pkl")) and source.zip_read(name):
            _screen_tensors(source, name)


def _screen_item(source: Source, key: str, value: Any) -> None:
    bad = None
    if key == "use_pickle" and value:
        bad = "a pickled tensor"
    elif key == "path_name" and isinstance(value, str) and not value.startswith(("weight_", "tensor_")):
        bad = "a pickled object"
    elif key == "expr_str" and isinstance(value, str):
        words = _WORDS.findall(value)
        if "__" in value or any(w not in _FUNCTIONS and not _SYMBOL.fullmatch(w) for w in words):
            bad = f"the expression {value[:60]!r}"
    elif key == "target" and isinstance(value, str) and "." in value and value.startswith(_MODULES):
        bad = None if _TARGET.fullmatch(value) and not is_outside(value) else f"a call of {value[:60]!r}"
    if bad is not None:
        raise UnsafeError(
            f"{source}: this exported program holds {bad}, which can run code when loaded. "
            "Pass --trust if you trust it."
        )


def _screen_tensors(source: Source, name: str) -> None:
    try:
        torch.load(io.BytesIO(source.zip_read(name)), weights_only=True, map_location="cpu")
    except Exception as error:
        raise UnsafeError(
            f"{source}: its part {name!r} holds pickled objects, which can run code when loaded. "
            "Pass --trust if you trust it."
        ) from error


def _items(document: Any) -> Iterator[tuple[str, Any]]:
    stack = [document]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            yield from value.items()
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)
