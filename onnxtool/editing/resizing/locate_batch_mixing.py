"""The first node at which a batch is no longer one: where the rows mix."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtool.editing.context import EditContext
from onnxtool.editing.element_types import inferred
from onnxtool.editing.resizing.batches import BatchProof, OneByOne, batch_axis
from onnxtool.editing.resizing.resize_context import node_label
from onnxtool.equality.rule.difference import agrees
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.errors import OnnxToolError
from onnxtool.runtime.flatten_outputs import flatten
from onnxtool.runtime.runner import OnnxRunner

_MOST = 4000  # nodes
# Which node is named, and not whether there is a difference: inside, rounding may do more than at the outputs.
_ROUGHLY = Tolerance(1e-2, 1e-2)
_SHAPE_LIKE = 64  # elements; small integer vectors are sizes, which have a right to differ


def first_mixing(after: ir.Model, proof: BatchProof, size: int, context: EditContext) -> str | None:
    """The first node whose output for a batch is not what it gives for each row; None when none can be made out."""
    if after.graph.num_nodes() > _MOST:
        return None
    try:
        watched = _with_all_outputs(after)
        runner = OnnxRunner.open(watched, context.options)
        feeds = proof.case(size).feeds
        whole, rows = flatten(runner.run(feeds)), OneByOne(runner, proof.batch, 1).rows(feeds)
    except (OnnxToolError, MemoryError):
        return None
    for node in watched.graph:
        for value in node.outputs:
            name = value.name or ""
            if name in whole and not _separate(np.asarray(whole[name]), [np.asarray(r[name]) for r in rows]):
                return node_label(node)
    return None


def _with_all_outputs(model: ir.Model) -> ir.Model:
    copied = inferred(model)
    known = set(copied.graph.outputs)
    for node in copied.graph:
        for value in node.outputs:
            if value.name and value not in known and value.uses() and value.dtype is not None:
                value.shape = None
                copied.graph.outputs.append(value)
    return copied


def _separate(actual: np.ndarray, rows: list[np.ndarray]) -> bool:
    """True when the array holds the rows, along whichever axis, one after the other or in turn."""
    if actual.dtype.kind in "iu" and actual.ndim <= 1 and actual.size <= _SHAPE_LIKE:
        return True
    if actual.dtype.kind in "OUS":
        return True
    axis, fits = batch_axis(actual, rows, 1)
    if fits and (all(_close(r, actual) for r in rows) if axis is None else _close(np.concatenate(rows, axis), actual)):
        return True
    first = rows[0]
    if actual.ndim != first.ndim or any(r.shape != first.shape for r in rows):
        return actual.ndim <= 1  # data-dependent sizes
    for axis in range(actual.ndim):
        if actual.shape[axis] == first.shape[axis] * len(rows):
            expected = np.stack(rows, axis + 1).reshape(actual.shape)
            if _close(expected, actual):
                return True
    return False


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape:
        return False
    if a.dtype.kind in "biu":
        return bool((a == b).mean() > 0.999) if a.size else True
    return not a.size or agrees(a, b, _ROUGHLY)
