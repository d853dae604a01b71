"""Weights of nodes that stay float, stored in 8 or 16 bits: a smaller file that runs exactly as fast.

An int8 tensor with one scale for each channel, a Cast and a Mul stand where the float weight was; or a float16 tensor
and a Cast, at next to no error. All of that is constant, so that the runtime computes the float weight once, when it
loads the model, and then runs its float kernels. (A DequantizeLinear would say the same, but the runtime keeps those
for its integer kernels, and runs them every time.)
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.editing import insert, lazy_initializer, made_of
from onnxtool.model.ir.queries import attribute, is_op

_LEAST = 1024  # values; less is not worth two nodes
_TINY = np.float32(1e-20)
# Operator -> {input: axes that have a scale for each index}
_CHANNELS: dict[str, dict[int, tuple[int, ...]]] = {
    "Conv": {1: (0,)},
    "FusedConv": {1: (0,)},
    "ConvTranspose": {1: (1,)},
    "Gather": {0: (0,)},
    "LSTM": {1: (0, 1), 2: (0, 1)},
    "GRU": {1: (0, 1), 2: (0, 1)},
    "RNN": {1: (0, 1), 2: (0, 1)},
}


def store_compactly(model: ir.Model, bits: int = 8) -> int:
    """Store what float weights a model has left in fewer bits.

    Args:
        model: changed in place, with its subgraphs.
        bits: 8 or 16; a weight beyond the range of float16 stays as it is.

    Returns:
        Number of weights.
    """
    done = 0
    for graph, value in [(g, v) for g in model.graphs() for v in g.initializers.values()]:
        axes = _axes(value)
        if axes is None or (bits == 16 and not _fits_half(value)):
            continue
        replacement = _in_half(graph, value) if bits == 16 else _in_bytes(graph, value, axes)
        replacement.type, replacement.shape = value.type, value.shape
        for use in list(value.uses()):
            if use.node is not replacement.producer():
                use.node.replace_input_with(use.idx, replacement)
        del graph.initializers[value.name or ""]
        done += 1
    return done


def compactable(graph: ir.Graph) -> bool:
    """True when there is a float weight to store in 8 bits."""
    return spared(graph) > 0


def spared(graph: ir.Graph) -> int:
    """Bytes, about, that storing float weights in 8 bits would save."""
    values = [value for g in (graph, *graph.subgraphs()) for value in g.initializers.values()]
    return sum(3 * value.const_value.size for value in values if _axes(value) is not None and value.const_value)


def compact_weight(weight: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """(int8, float32 scales of the same rank) with weight ~ int8 * scales; one scale for each index of `axes`."""
    others = tuple(i for i in range(weight.ndim) if i not in axes)
    scales = np.abs(weight).max(axis=others, keepdims=True).astype(np.float32) / np.float32(127)
    scales = np.where(scales > _TINY, scales, np.float32(1.0)).astype(np.float32)
    return np.clip(np.rint(weight / scales), -127, 127).astype(np.int8), scales


def _axes(value: ir.Value) -> tuple[int, ...] | None:
    """The axes of a float32 weight that have scales of their own; None for what is not a weight, or a small one."""
    tensor = value.const_value
    if tensor is None or tensor.dtype != ir.DataType.FLOAT or value.is_graph_input() or value.is_graph_output():
        return None
    uses = list(value.uses())
    if len(tensor.shape) < 2 or tensor.size < _LEAST or not uses:
        return None
    found = {_axes_of_use(use.node, use.idx, len(tensor.shape)) for use in uses}
    # Whoever reads it as anything but weights needs it as it is.
    return next(iter(sorted(a for a in found if a is not None))) if None not in found else None


def _axes_of_use(node: ir.Node, index: int, rank: int) -> tuple[int, ...] | None:
    if is_op(node, "MatMul") and index == 1:
        return (*range(rank - 2), rank - 1)
    if is_op(node, "Gemm") and index == 1:
        return (0,) if attribute(node, "transB", 0) else (1,)
    if is_op(node, "Gather") and attribute(node, "axis", 0) != 0:
        return None
    if is_op(node, *_CHANNELS) or node.op_type == "FusedConv":
        return _CHANNELS[node.op_type].get(index)
    return None


def _fits_half(value: ir.Value) -> bool:
    assert value.const_value is not None
    largest = made_of(value.const_value, lambda weight: np.abs(weight).max(initial=0))
    return float(largest) < float(np.finfo(np.float16).max)


def _in_half(graph: ir.Graph, value: ir.Value) -> ir.Value:
    tensor = value.const_value
    assert tensor is not None
    stored = lazy_initializer(
        graph,
        f"{value.name}_16bit",
        lambda: made_of(tensor, lambda weight: weight.astype(np.float16)),
        tuple(tensor.shape.numpy()),
        ir.DataType.FLOAT16,
    )
    (weight,) = insert(next(iter(graph)), "Cast", [stored], [f"{value.name}_as_float"], {"to": int(ir.DataType.FLOAT)})
    return weight


def _in_bytes(graph: ir.Graph, value: ir.Value, axes: tuple[int, ...]) -> ir.Value:
    tensor = value.const_value
    assert tensor is not None
    shape = tensor.shape.numpy()
    scale_shape = tuple(d if i in axes else 1 for i, d in enumerate(shape))
    name = value.name or "weight"

    def compacted(part: int) -> np.ndarray:
        return made_of(tensor, lambda weight: compact_weight(weight, axes)[part])

    integers = lazy_initializer(graph, f"{name}_8bit", lambda: compacted(0), tuple(shape), ir.DataType.INT8)
    scales = lazy_initializer(graph, f"{name}_8bit_scales", lambda: compacted(1), scale_shape, ir.DataType.FLOAT)
    first = next(iter(graph))
    (unscaled,) = insert(first, "Cast", [integers], [f"{name}_unscaled"], {"to": int(ir.DataType.FLOAT)})
    (weight,) = insert(first, "Mul", [unscaled, scales], [f"{name}_as_float"])
    unscaled.type, unscaled.shape = value.type, value.shape
    return weight
