"""Inputs without elements: some kernels of the runtime end the whole process on them."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxtool.errors import InputError
from onnxtool.model.proto_nodes import all_nodes

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from onnxtool.model.spec import TensorSpec

# The kernels of ONNX Runtime 1.31 that abort on a batch or a sequence of 0; DynamicQuantizeLSTM is one of them. Of 178
# operators run on empty inputs no other did, but for attention without heads and convolutions without channels.
_ABORT = ("GRU", "LSTM")


def aborts_when_empty(model: str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model) -> str:
    """The kind of operator of a model for which an empty input may end the process; "" where there is none.

    Args:
        model: of a file or of bytes it is only asked whether they hold the operator's name.
    """
    if isinstance(model, bytes):
        return _first(model)
    if isinstance(model, (str, os.PathLike)):
        try:
            with open(model, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return next((name for name in _ABORT if content.find(name.encode()) >= 0), "")
        except (OSError, ValueError):  # it is gone, or empty
            return _ABORT[0]
    import onnx

    if isinstance(model, onnx.ModelProto):
        kinds = (node.op_type for graph in (model.graph, *model.functions) for node in all_nodes(graph.node))
    else:
        kinds = (node.op_type for graph in (model.graph, *model.functions.values()) for node in graph.all_nodes())
    return min((name for kind in kinds for name in _ABORT if name in kind), default="")


def _first(content: bytes) -> str:
    return next((name for name in _ABORT if name.encode() in content), "")


def refuse_empty(feeds: Mapping[str, np.ndarray], aborting: str) -> None:
    """Refuse inputs on which the runtime would end the process.

    Args:
        feeds: what a model is to be run on.
        aborting: of `aborts_when_empty`.

    Raises:
        InputError: one of them has no elements.
    """
    empty = next((name for name, a in feeds.items() if isinstance(a, np.ndarray) and not a.size), None)
    if aborting and empty is not None:
        raise InputError(
            f"{empty!r} has shape {list(feeds[empty].shape)}, which holds nothing: the runtime's {aborting} would end "
            "the whole process on it. Give at least one."
        )


def empty_sizes(specs: Sequence[TensorSpec]) -> list[dict[str, Any]]:
    """Sizes for `random_feeds` at which inputs are empty: each named dim at 0, and, where dims have no name, the first
    ones or the others.
    """
    names = {dim for spec in specs for dim in spec.shape or () if isinstance(dim, str)}
    found: list[dict[str, Any]] = [{"dims": {name: 0}} for name in sorted(names)]
    nameless = any(spec.shape is None or None in spec.shape for spec in specs)
    return found + ([{"batch": 0}, {"length": 0}] if nameless else [])
