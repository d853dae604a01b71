"""Inputs without elements: some kernels of the runtime end the whole process on them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxtool.errors import OnnxToolError
from onnxtool.model import io
from onnxtool.model.ir.queries import all_nodes
from onnxtool.model.operators.table import operator_of
from onnxtool.model.spec import TensorSpec


def is_empty(feeds: Mapping[str, Any]) -> bool:
    """Whether an array has no elements."""
    return any(isinstance(a, np.ndarray) and not a.size for a in feeds.values())


def takes_empty(model: str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model) -> bool:
    """Whether each operator of a model is known to take inputs without elements; others may end the process."""
    if isinstance(model, (str, os.PathLike)):
        try:
            model = io.load(Path(model), in_place=True)
        except (OSError, OnnxToolError):
            return False
    elif isinstance(model, bytes):
        model = onnx.load_from_string(model)
    if isinstance(model, onnx.ModelProto):
        model = io.from_proto(model)
    return all(operator_of(node).runs_empty for node in all_nodes(model))


def empty_sizes(specs: Sequence[TensorSpec]) -> list[dict[str, Any]]:
    """Sizes for `random_feeds` at which inputs are empty: each named dim at 0, and, where dims have no name, the first
    ones or the others.
    """
    names = {dim for spec in specs for dim in spec.shape or () if isinstance(dim, str)}
    found: list[dict[str, Any]] = [{"dims": {name: 0}} for name in sorted(names)]
    nameless = any(spec.shape is None or None in spec.shape for spec in specs)
    return found + ([{"batch": 0}, {"length": 0}] if nameless else [])
