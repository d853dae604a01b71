"""Exported programs (.pt2) and their inputs. torch.export.load can run code that a file brings, and TorchScript is a
program itself, which can write files: what a file holds is screened first.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from onnxtool.conversion.graph_interface import described
from onnxtool.conversion.input_plan import InputPlan
from onnxtool.conversion.pytorch.tensors import numpy_dtype
from onnxtool.conversion.quiet import quiet
from onnxtool.conversion.source import Source
from onnxtool.errors import InputError, UnsafeError, UnsupportedError, UsageError, first_line
from onnxtool.model.spec import Dim, TensorSpec
from onnxtool.options.convert import ConvertOptions

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


def plan_program(program: torch.export.ExportedProgram, options: ConvertOptions) -> InputPlan:
    """The inputs of an exported program; its dims are as they were exported.

    Raises:
        UsageError: --input-shape contradicts a dim that was exported as fixed.
    """
    names = program.graph_signature.user_inputs
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    labels = dim_labels(program)
    specs = [
        TensorSpec(str(name), numpy_dtype(nodes[name].meta["val"].dtype), _dims(nodes[name].meta["val"].shape, labels))
        for name in names
        if _is_tensor(nodes, name)
    ]
    final = described(specs, options)
    for old, new in zip(specs, final, strict=True):
        for have, want in zip(old.shape or (), new.shape or (), strict=True):
            if isinstance(have, int) and have != want:
                raise UsageError(
                    f"--input-shape: {new.name} was exported with a fixed dim {have}. Export the program again with "
                    "dynamic_shapes, or convert the module itself."
                )
    constants = [None if _is_tensor(nodes, name) else name for name in names]
    in_spec = program.call_spec.in_spec

    def call(tensors: Sequence[torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        queue = iter(tensors)
        flat = [next(queue) if constant is None else constant for constant in constants]
        args, kwargs = torch.utils._pytree.tree_unflatten(flat, in_spec)
        return tuple(args), dict(kwargs)

    return InputPlan(final, call)


def dim_labels(program: torch.export.ExportedProgram) -> dict[str, str]:
    """Symbol of an exported program ("s40") -> a name for people: "batch" for the first dim, else "dim_1"."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    labels: dict[str, str] = {}
    for first_dim in (True, False):
        for name in program.graph_signature.user_inputs:
            if not _is_tensor(nodes, name):
                continue
            for axis, dim in enumerate(nodes[name].meta["val"].shape):
                symbol = str(dim)
                if isinstance(dim, int) or symbol in labels or (axis == 0) != first_dim:
                    continue
                taken = "batch" in labels.values() or not first_dim
                labels[symbol] = f"dim_{len(labels)}" if taken else "batch"
    return labels


def relabel(expression: str, labels: dict[str, str]) -> str:
    """Replace symbols in a dim expression: "2*s40" -> "2*batch"."""
    return re.sub(r"[A-Za-z_]\w*", lambda match: labels.get(match[0], match[0]), expression)


def _is_tensor(nodes: dict[str, Any], name: Any) -> bool:
    return isinstance(name, str) and isinstance(getattr(nodes.get(name), "meta", {}).get("val"), torch.Tensor)


def _dims(shape: Sequence[Any], labels: dict[str, str]) -> tuple[Dim, ...]:
    return tuple(int(d) if isinstance(d, int) else relabel(str(d), labels) for d in shape)


# aten::save writes a file, aten::from_file reads or makes one; torchvision and others add operators like them.
_OPERATORS = ("save", "from_file", "read_file", "write_file", "load_library")
_NAMESPACES = ("debugprims", "c10d", "_c10d_functional", "symm_mem")
_WORD = re.compile(rb"\b(%s)\b" % "|".join((*_OPERATORS, *_NAMESPACES)).encode())
_OUTSIDE = re.compile(rf"torch\.ops\.(({'|'.join(_NAMESPACES)})\.\w+|\w+\.({'|'.join(_OPERATORS)}))(\.\w+)?")


def refuse_unsafe_script(source: Source) -> None:
    """Look through the code of a TorchScript archive before it is loaded, since loading runs `__setstate__`.

    Raises:
        UnsafeError: it names an operator that reaches files or other processes.
        InputError: damaged, or two entries bear one name, of which torch may take another one than this look.
    """
    names = [n.lower() for n in source.zip_names()]  # torch does not tell upper from lower case
    if len(set(names)) != len(names):
        raise InputError(f"{source}: two entries of the archive have the same name.")
    for name in source.zip_names():
        lower = name.lower()
        if lower.endswith(".py") or ("code/" in lower and not lower.endswith(".debug_pkl")):
            found = _WORD.search(source.zip_read(name))
            if found:
                raise UnsafeError(
                    f"{source}: this TorchScript program reaches outside of it ({found[0].decode()}), which converting "
                    "it would run. Pass --trust if you trust where it comes from."
                )


def is_outside(target: str) -> bool:
    """Whether the target of a node of an exported program ("torch.ops.aten.from_file.default") reaches outside."""
    return _OUTSIDE.fullmatch(target) is not None
