"""Weight-only quantization: blocks of 4 or 8 bit weights (the runtime's MatMulNBits), activations as they are.

One weight is in memory at a time: integers are computed when the file is written, from the memory-mapped source.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxtool.quantize.edit import attribute, insert, is_standard, lazy_initializer, take_place
from onnxtool.quantize.recipe import QuantRecipe

DOMAIN = "com.microsoft"
_SEARCHED = np.linspace(1.0, 0.75, 11)  # shares of a block's extreme that are tried as its range
_COMPUTE_INT8 = 4  # accuracy_level: activations rounded to int8 block by block, the fastest kernels


@dataclass(frozen=True)
class Blocks:
    """Block-quantized weights in MatMulNBits' layout.

    Attributes:
        packed: uint8 [columns, blocks, block_size * bits / 8]; with 4 bits the even row is in the low half.
        scales: float32 [columns * blocks].
        zero_points: uint8, packed like the weights; None when symmetric.
    """

    packed: np.ndarray
    scales: np.ndarray
    zero_points: np.ndarray | None


def quantize_blocks(weight: np.ndarray, bits: int, block_size: int, *, symmetric: bool, search: bool) -> Blocks:
    """Quantize a [rows, columns] weight in blocks of `block_size` rows.

    Args:
        weight: float32 [K, N].
        bits: 4 or 8.
        block_size: rows that share a scale; the last block is filled up with zeros.
        symmetric: zero point at the middle.
        search: try smaller ranges for each block and keep the one of least squared error.

    Source of the search: Nahshan et al. 2021, "Loss aware post-training quantization", section 3, per block.
    """
    rows, columns = weight.shape
    count = -(-rows // block_size)
    padded = np.zeros((columns, count * block_size), np.float32)
    padded[:, :rows] = weight.T
    blocks = padded.reshape(columns, count, block_size)
    scale, zero = _best_scales(blocks, bits, symmetric, search)
    integers = _integers(blocks, scale, zero, bits)
    if bits == 8:
        return Blocks(integers, scale.reshape(-1), None if symmetric else zero.astype(np.uint8).reshape(-1))
    packed = np.asarray(integers[..., 0::2] | (integers[..., 1::2] << 4), np.uint8)
    return Blocks(packed, scale.reshape(-1), None if symmetric else _pack_zero_points(zero))


def _best_scales(blocks: np.ndarray, bits: int, symmetric: bool, search: bool) -> tuple[np.ndarray, np.ndarray]:
    best_error: np.ndarray | None = None
    best: tuple[np.ndarray, np.ndarray] | None = None
    for share in _SEARCHED if search and bits == 4 else _SEARCHED[:1]:
        scale, zero = _scales(blocks, bits, symmetric, float(share))
        restored = (_integers(blocks, scale, zero, bits).astype(np.float32) - zero[..., None]) * scale[..., None]
        error = ((restored - blocks) ** 2).sum(axis=-1)
        if best is None or best_error is None:
            best, best_error = (scale, zero), error
            continue
        better = error < best_error
        best = (np.where(better, scale, best[0]), np.where(better, zero, best[1]))
        best_error = np.minimum(error, best_error)
    assert best is not None
    return best


def _scales(blocks: np.ndarray, bits: int, symmetric: bool, share: float) -> tuple[np.ndarray, np.ndarray]:
    top = 2**bits - 1
    middle = 2 ** (bits - 1)
    if symmetric:
        # The integer range has one value more below zero: the larger end of the block takes it.
        index = np.abs(blocks).argmax(axis=-1)
        extreme = np.take_along_axis(blocks, index[..., None], -1)[..., 0] * share
        scale = extreme / -middle
        zero = np.full(scale.shape, float(middle), np.float32)
    else:
        low = np.minimum(blocks.min(axis=-1), 0) * share
        high = np.maximum(blocks.max(axis=-1), 0) * share
        scale = (high - low) / top
        zero = np.clip(np.rint(-low / np.where(scale == 0, 1, scale)), 0, top).astype(np.float32)
    return np.where(scale == 0, 1, scale).astype(np.float32), zero


def _integers(blocks: np.ndarray, scale: np.ndarray, zero: np.ndarray, bits: int) -> np.ndarray:
    steps = np.rint(blocks / scale[..., None]) + zero[..., None]
    return np.asarray(np.clip(steps, 0, 2**bits - 1), np.uint8)


def _pack_zero_points(zero: np.ndarray) -> np.ndarray:
    columns, count = zero.shape
    even = np.zeros((columns, count + count % 2), np.uint8)
    even[:, :count] = zero.astype(np.uint8)
    return np.asarray(even[:, 0::2] | (even[:, 1::2] << 4), np.uint8).reshape(-1)


def blockable(node: ir.Node) -> bool:
    """True for a MatMul or Gemm with a constant float32 matrix as weights."""
    if not is_standard(node, "MatMul", "Gemm") or len(node.inputs) < 2:
        return False
    weight = node.inputs[1]
    tensor = None if weight is None or weight.is_graph_input() else weight.const_value
    plain = node.op_type == "MatMul" or (
        not attribute(node, "transA", 0)
        and attribute(node, "alpha", 1.0) == 1.0
        and attribute(node, "beta", 1.0) == 1.0
    )
    return tensor is not None and tensor.dtype == ir.DataType.FLOAT and len(tensor.shape) == 2 and plain


def make_blocks(graph: ir.Graph, nodes: Iterable[ir.Node], recipe: QuantRecipe) -> None:
    """Replace MatMul and Gemm nodes by MatMulNBits.

    Args:
        graph: the main graph; changed in place.
        nodes: for which `blockable` holds.
        recipe: mode "int4" or "int8", block size, symmetry, search.
    """
    stored: dict[tuple[int, bool], list[ir.Value]] = {}
    for node in list(nodes):
        source = node.inputs[0]
        weight = node.inputs[1]
        assert source is not None and weight is not None and weight.const_value is not None
        transposed = node.op_type == "Gemm" and bool(attribute(node, "transB", 0))
        key = (id(weight), transposed)
        if key not in stored:
            stored[key] = _store(graph, weight, transposed, recipe)
        shape = weight.const_value.shape.numpy()
        rows, columns = shape[::-1] if transposed else shape
        attributes = {
            "K": rows,
            "N": columns,
            "bits": bits_of(recipe),
            "block_size": recipe.block_size,
            "accuracy_level": _COMPUTE_INT8,
        }
        name = node.outputs[0].name or str(node.name)
        (result,) = insert(node, "MatMulNBits", [source, *stored[key]], [f"{name}_product"], attributes, DOMAIN)
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        if bias is not None:
            (result,) = insert(node, "Add", [result, bias], [f"{name}_biased"])
        take_place(node, result)
    graph.opset_imports.setdefault(DOMAIN, 1)


def bits_of(recipe: QuantRecipe) -> int:
    """Bits of a weight-only recipe."""
    return 4 if recipe.mode == "int4" else 8


def _store(graph: ir.Graph, weight: ir.Value, transposed: bool, recipe: QuantRecipe) -> list[ir.Value]:
    """Initializers whose bytes are computed when they are asked for, and not kept."""
    tensor = weight.const_value
    assert tensor is not None
    shape = tensor.shape.numpy()
    rows, columns = shape[::-1] if transposed else shape
    bits, size = bits_of(recipe), recipe.block_size
    count = -(-rows // size)

    def blocks() -> Blocks:
        array = tensor.numpy()
        return quantize_blocks(
            array.T if transposed else array, bits, size, symmetric=recipe.symmetric, search=recipe.search_scale
        )

    name = weight.name or "weight"
    made = [
        lazy_initializer(
            graph, f"{name}_{bits}bit", lambda: blocks().packed, (columns, count, size * bits // 8), ir.DataType.UINT8
        ),
        lazy_initializer(graph, f"{name}_scales", lambda: blocks().scales, (columns * count,), ir.DataType.FLOAT),
    ]
    if not recipe.symmetric:
        length = columns * (count if bits == 8 else -(-count // 2))
        made.append(
            lazy_initializer(graph, f"{name}_zero_points", lambda: _zero_points(blocks()), (length,), ir.DataType.UINT8)
        )
    return made


def _zero_points(blocks: Blocks) -> np.ndarray:
    assert blocks.zero_points is not None
    return blocks.zero_points
