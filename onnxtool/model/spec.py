"""Tensor specifications: what a model takes and gives, and what the numbers of a row are called."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import ml_dtypes
import numpy as np

from onnxtool.errors import UsageError
from onnxtool.options.shared import Dim as Dim
from onnxtool.report.base import TensorInfo

# ONNX's own names for element types, and what numpy (with ml_dtypes) calls them.
ONNX_TO_NUMPY: Mapping[str, np.dtype | str] = {
    "FLOAT": np.dtype("float32"),
    "DOUBLE": np.dtype("float64"),
    "FLOAT16": np.dtype("float16"),
    "BFLOAT16": np.dtype(ml_dtypes.bfloat16),
    "INT8": np.dtype("int8"),
    "INT16": np.dtype("int16"),
    "INT32": np.dtype("int32"),
    "INT64": np.dtype("int64"),
    "UINT8": np.dtype("uint8"),
    "UINT16": np.dtype("uint16"),
    "UINT32": np.dtype("uint32"),
    "UINT64": np.dtype("uint64"),
    "BOOL": np.dtype("bool"),
    "COMPLEX64": np.dtype("complex64"),
    "COMPLEX128": np.dtype("complex128"),
    "STRING": "string",
}
# What exporters write where they know no name: "?" (Paddle), "None" (Keras), "unk__12" (tf2onnx), ...
_PLACEHOLDER = re.compile(
    r"\?.*|-?\d+|\*|dim|dynamic|(none|null|nan|any|unk|unknown|undefined|dyn)[._:-]*\d*", re.IGNORECASE
)
_ALIASES = {"float": "float32", "double": "float64", "half": "float16", "str": "string", "int": "int64"}
_SHAPE = re.compile(r"^(?:(?P<name>.*):)?(?P<dims>[^:]*)$", re.DOTALL)


def is_placeholder(name: str) -> bool:
    """Whether the name of a dim says only that it is not known, so that two dims of this name need not agree."""
    return not name or _PLACEHOLDER.fullmatch(name.strip()) is not None


@dataclass(frozen=True)
class TensorSpec:
    """One input or output of a model.

    Attributes:
        name: the tensor's name in the model.
        dtype: a numpy dtype, or "string" where numpy has no fixed width; other ONNX types (sequences, maps,
            optionals, float8, int4) keep their ONNX spelling as a str.
        shape: int = fixed, str = symbolic dim, None = unknown dim; None as a whole = unknown rank.
        columns: what the numbers of a row are called in the table that the model was trained on, where that is known.
    """

    name: str
    dtype: np.dtype | str
    shape: tuple[Dim, ...] | None
    columns: tuple[str, ...] = field(default=(), compare=False)

    @property
    def dynamic_dims(self) -> tuple[str, ...]:
        """The names of the symbolic dims, in order."""
        return tuple(dict.fromkeys(d for d in self.shape or () if isinstance(d, str)))

    def has_shape(self, shape: tuple[int, ...]) -> bool:
        """Whether an array of this shape is one of it."""
        return self.shape is None or (
            len(self.shape) == len(shape)
            and all(not isinstance(d, int) or d == size for d, size in zip(self.shape, shape, strict=True))
        )

    def info(self) -> TensorInfo:
        """The plain form that reports carry."""
        return TensorInfo(self.name, dtype_name(self.dtype), self.shape)


def dtype_name(dtype: np.dtype | str) -> str:
    """The name that people type and read: "float32", "bfloat16", "string"."""
    return dtype if isinstance(dtype, str) else dtype.name


def parse_dtype(text: str) -> np.dtype | str:
    """Turn "float32", "int64", "bfloat16", "string" or an alias ("half", "double") into a dtype.

    Raises:
        UsageError: no such dtype.
    """
    name = _ALIASES.get(text.strip().lower(), text.strip().lower())
    for dtype in ONNX_TO_NUMPY.values():
        if dtype_name(dtype) == name:
            return dtype
    known = ", ".join(dtype_name(d) for d in ONNX_TO_NUMPY.values())
    raise UsageError(f"{text!r} is not a dtype. Known: {known}.")


def parse_input_shape(text: str) -> tuple[str | None, tuple[Dim, ...]]:
    """Parse one `--input-shape`: "NAME:1,3,224,224", "NAME:batch,3,?,224" or, for a single input, "1,3,224,224".

    Numbers are fixed dims, words are symbolic (dynamic) dims, "?" is an unnamed dynamic dim; an empty list of
    dims ("NAME:") is a scalar.

    Returns:
        (input name or None, dims).

    Raises:
        UsageError: the text does not have that form or a dim is negative.
    """
    match = _SHAPE.match(text)
    name, dims = (match["name"], match["dims"]) if match else (None, text)
    parsed: list[Dim] = []
    for part in filter(None, (p.strip() for p in re.split(r"[,x]", dims) if dims.strip())):
        if part == "?":
            parsed.append(None)
        elif re.fullmatch(r"\d+", part):
            parsed.append(int(part))
        elif re.fullmatch(r"[A-Za-z_][\w.\-]*", part):
            parsed.append(part)
        else:
            raise UsageError(
                f"--input-shape {text}: {part!r} is not a dimension. Write NAME:1,3,224,224; a word (batch) makes a "
                "dimension dynamic."
            )
    return (name or None), tuple(parsed)


def parse_input_shapes(texts: Iterable[str]) -> dict[str | None, tuple[Dim, ...]]:
    """Parse all `--input-shape` options; the key None stands for the only input.

    Raises:
        UsageError: malformed, or an input named twice.
    """
    shapes: dict[str | None, tuple[Dim, ...]] = {}
    for text in texts:
        name, dims = parse_input_shape(text)
        if name in shapes:
            raise UsageError(f"--input-shape names {name or 'the input'!r} twice.")
        shapes[name] = dims
    return shapes


def apply_input_shapes(
    specs: Iterable[TensorSpec], shapes: Mapping[str | None, tuple[Dim, ...]]
) -> tuple[TensorSpec, ...]:
    """Replace the shapes of `specs` by what the user gave.

    Raises:
        UsageError: an unknown input name, or no name where the model has several inputs, or another rank.
    """
    specs = tuple(specs)
    names = {s.name for s in specs}
    if None in shapes and len(specs) != 1:
        raise UsageError(f"--input-shape needs a name (NAME:1,3,...): the model has inputs {', '.join(sorted(names))}.")
    unknown = [n for n in shapes if n is not None and n not in names]
    if unknown:
        raise UsageError(f"--input-shape: no input {unknown[0]!r}; the model has {', '.join(sorted(names))}.")
    result = []
    for spec in specs:
        dims = shapes.get(spec.name, shapes.get(None))
        if dims is not None and spec.shape is not None and len(dims) != len(spec.shape):
            raise UsageError(f"--input-shape: {spec.name} has {len(spec.shape)} dims, {len(dims)} given.")
        result.append(spec if dims is None else replace(spec, shape=dims))
    return tuple(result)


def shared_dims(specs: Iterable[TensorSpec]) -> dict[str, list[tuple[str, int]]]:
    """The inputs and axes of each dim that several inputs call by one name."""
    found: dict[str, list[tuple[str, int]]] = {}
    for spec in specs:
        for axis, dim in enumerate(spec.shape or ()):
            if isinstance(dim, str) and not is_placeholder(dim):
                found.setdefault(dim, []).append((spec.name, axis))
    return {dim: places for dim, places in found.items() if len({name for name, _ in places}) > 1}


def distinct_dims(specs: Iterable[TensorSpec]) -> tuple[TensorSpec, ...]:
    """The specs with a name of its own for every dynamic dim that has none, or a placeholder.

    First dims stay without a name: they are batches, and usually of one size.
    """
    return tuple(s if s.shape is None else replace(s, shape=_distinct(s.name, s.shape)) for s in specs)


def _distinct(name: str, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    dims: list[Dim] = []
    for axis, dim in enumerate(shape):
        if isinstance(dim, int) or (isinstance(dim, str) and not is_placeholder(dim)):
            dims.append(dim)
        else:
            dims.append(f"{name}[{axis}]" if axis else None)
    return tuple(dims)


KEY = "onnxtool.columns"


def row_width(spec: TensorSpec) -> int | None:
    """Numbers or texts in a row of an input or output; None where that is not fixed."""
    inner = (spec.shape or (None,))[1:]
    fixed = [d for d in inner if isinstance(d, int)]
    return math.prod(fixed) if len(fixed) == len(inner) else None


def write_columns(metadata: MutableMapping[str, str], specs: Iterable[TensorSpec]) -> None:
    """Keep the columns of inputs and outputs, by their names in the model."""
    columns = {s.name: list(s.columns) for s in specs if s.columns and s.columns != (s.name,)}
    if columns:
        metadata[KEY] = json.dumps(columns, ensure_ascii=False, sort_keys=True)


def with_columns(specs: Iterable[TensorSpec], metadata: Mapping[str, str]) -> tuple[TensorSpec, ...]:
    """The specs with the columns that the metadata have for them; a file may hold anything there."""
    found = None
    with suppress(ValueError, RecursionError):
        found = json.loads(metadata.get(KEY, "null"))
    if not isinstance(found, dict):
        return tuple(specs)
    return tuple(_named(spec, found.get(spec.name)) for spec in specs)


def _named(spec: TensorSpec, names: object) -> TensorSpec:
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names) or len(names) != row_width(spec):
        return spec
    return replace(spec, columns=tuple(names))
