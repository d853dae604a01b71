"""Weight-only quantization: blocks of 4 or 8 bit weights (the runtime's MatMulNBits), activations as they are.

One weight is in memory at a time: integers are computed when the file is written, from the memory-mapped source.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.editing import insert, lazy_initializer, owning_graph, replace_value
from onnxtool.model.ir.queries import attribute, is_op
from onnxtool.quantization.recipe import QuantRecipe

DOMAIN = "com.microsoft"
_SEARCHED = np.linspace(1.0, 0.75, 11)  # shares of a block's extreme that are tried as its range
_AT_ONCE = 1 << 18  # weights in work at a time: they stay in the processor's cache
_KEEP_BELOW = 1_000_000_000  # bytes of float weights up to which integers, once computed, are kept
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
    packed = np.empty((columns, count, block_size * bits // 8), np.uint8)
    scales = np.empty((columns, count), np.float32)
    zeros = np.empty((columns, count), np.float32)
    width = max(1, _AT_ONCE // (count * block_size))
    for start in range(0, columns, width):
        part = slice(start, min(start + width, columns))
        blocks = _blocked(weight[:, part], count, block_size)
        scale, zero = _best_scales(blocks, bits, symmetric, search)
        integers = _integers(blocks, scale, zero, bits)
        packed[part] = integers if bits == 8 else integers[..., 0::2] | (integers[..., 1::2] << 4)
        scales[part], zeros[part] = scale, zero
    if symmetric:
        return Blocks(packed, scales.reshape(-1), None)
    points = zeros.astype(np.uint8).reshape(-1) if bits == 8 else _pack_zero_points(zeros)
    return Blocks(packed, scales.reshape(-1), points)


def _blocked(weight: np.ndarray, count: int, block_size: int) -> np.ndarray:
    """[rows, columns] -> [columns, blocks, block_size], the last block filled up with zeros."""
    rows, columns = weight.shape
    padded = np.zeros((columns, count * block_size), np.float32)
    padded[:, :rows] = weight.T
    return padded.reshape(columns, count, block_size)


def _best_scales(blocks: np.ndarray, bits: int, symmetric: bool, search: bool) -> tuple[np.ndarray, np.ndarray]:
    scale, zero = _scales(blocks, bits, symmetric, 1.0)
    if not search or bits != 4:
        return scale, zero
    least = _error(blocks, scale, zero, bits)
    for share in _SEARCHED[1:]:
        other_scale, other_zero = _scales(blocks, bits, symmetric, float(share))
        error = _error(blocks, other_scale, other_zero, bits)
        better = error < least
        scale, zero = np.where(better, other_scale, scale), np.where(better, other_zero, zero)
        np.minimum(error, least, out=least)
    return scale, zero


def _error(blocks: np.ndarray, scale: np.ndarray, zero: np.ndarray, bits: int) -> np.ndarray:
    """Squared error of each block."""
    steps = blocks / scale[..., None]
    rounded = np.rint(steps)
    np.maximum(rounded, -zero[..., None], out=rounded)
    np.minimum(rounded, (2**bits - 1) - zero[..., None], out=rounded)
    rounded -= steps
    return np.asarray(np.einsum("cbi,cbi->cb", rounded, rounded) * scale * scale)


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
    if not is_op(node, "MatMul", "Gemm") or len(node.inputs) < 2:
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
        graph: the main graph; changed in place, with its subgraphs.
        nodes: for which `blockable` holds.
        recipe: mode "int4" or "int8", block size, symmetry, search.
    """
    stored: dict[tuple[int, bool], list[ir.Value]] = {}
    nodes = list(nodes)
    weights = [n.inputs[1].const_value for n in nodes if n.inputs[1] is not None]
    keep = sum(w.nbytes for w in weights if w is not None) < _KEEP_BELOW
    for node in nodes:
        source = node.inputs[0]
        weight = node.inputs[1]
        assert source is not None and weight is not None and weight.const_value is not None
        transposed = node.op_type == "Gemm" and bool(attribute(node, "transB", 0))
        key = (id(weight), transposed)
        if key not in stored:
            stored[key] = _store(owning_graph(weight, node), weight, transposed, recipe, keep)
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
        replace_value(node, result)
    graph.opset_imports.setdefault(DOMAIN, 1)


def bits_of(recipe: QuantRecipe) -> int:
    """Bits of a weight-only recipe."""
    return 4 if recipe.mode == "int4" else 8


def _store(graph: ir.Graph, weight: ir.Value, transposed: bool, recipe: QuantRecipe, keep: bool) -> list[ir.Value]:
    """Initializers whose bytes are computed when they are asked for; `keep` keeps them from then on."""
    tensor = weight.const_value
    assert tensor is not None
    shape = tensor.shape.numpy()
    rows, columns = shape[::-1] if transposed else shape
    bits, size = bits_of(recipe), recipe.block_size
    count = -(-rows // size)

    kept: dict[str, np.ndarray] = {}

    def computed(part: str) -> np.ndarray:
        # Scales are small, and asked for right after the integers: not computed once more.
        if part not in kept:
            array = tensor.numpy()
            weights = array.T if transposed else array
            blocks = quantize_blocks(weights, bits, size, symmetric=recipe.symmetric, search=recipe.search_scale)
            kept["scales"] = blocks.scales
            if blocks.zero_points is not None:
                kept["zero points"] = blocks.zero_points
            if part == "integers":
                return blocks.packed
        return kept[part]

    name = weight.name or "weight"
    uint8, float32 = ir.DataType.UINT8, ir.DataType.FLOAT
    shapes = {"integers": (columns, count, size * bits // 8), "scales": (columns * count,)}
    made = [
        lazy_initializer(graph, f"{name}_{bits}bit", lambda: computed("integers"), shapes["integers"], uint8, keep),
        lazy_initializer(graph, f"{name}_scales", lambda: computed("scales"), shapes["scales"], float32),
    ]
    if not recipe.symmetric:
        length = columns * (count if bits == 8 else -(-count // 2))
        made.append(lazy_initializer(graph, f"{name}_zero_points", lambda: computed("zero points"), (length,), uint8))
    return made
