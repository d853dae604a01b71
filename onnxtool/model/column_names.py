"""What the numbers of a row are called: names of features and classes, kept in the model's own metadata."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import replace

from onnxtool.model.spec import TensorSpec

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
