"""Weight-only quantization: blocks of 4 or 8 bit weights (the runtime's MatMulNBits), activations as they are.

One weight is in memory at a time: integers are computed when the file is written, from the memory-mapped source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.editing import insert, lazy_initializer, owning_graph, replace_value
from onnxtool.model.ir.queries import attribute, is_op
from onnxtool.quantization.recipe import QuantRecipe

DOMAIN = "com.microsoft"
_SEARCHED = np.linspace(1.0, 0.75, 11)  # shares of a block's extreme that are tried as its range
_AT_ONCE = 1 << 18  # weights in work at a time: they stay in the processor's cache
_KEEP_BELOW = 1_000_000_000  # bytes of float weights up to which blocks, once computed, are kept


@dataclass(frozen=True)
class BlockFormat:
    """How a weight is stored.

    Attributes:
        bits: 4 or 8.
        block: weights of one column that share a scale.
        symmetric: without zero points.
        accuracy_level: 4 rounds the activations to int8 block by block (the fastest kernels), 0 keeps them float32.
        calibrated: rounded by GPTQ, where the store has the moments of the product's inputs.
        search: 4 bits: the scale of least squared error, not that of the block's extreme.
    """

    bits: int
    block: int
    symmetric: bool = True
    accuracy_level: int = 4
    calibrated: bool = False
    search: bool = True

    def __str__(self) -> str:
        points = "" if self.symmetric else ", zero points"
        exact = "" if self.accuracy_level else ", float activations"
        method = " by GPTQ" if self.calibrated else ""
        return f"int{self.bits} in {self.block}s{points}{exact}{method}"


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
    integers = np.empty((columns, count, block_size), np.uint8)
    scales = np.empty((columns, count), np.float32)
    zeros = np.empty((columns, count), np.float32)
    width = max(1, _AT_ONCE // (count * block_size))
    for start in range(0, columns, width):
        part = slice(start, min(start + width, columns))
        blocks = blocked(weight[:, part], block_size)
        scale, zero = best_scales(blocks, bits, symmetric, _SEARCHED if search and bits == 4 else _SEARCHED[:1])
        integers[part] = np.clip(np.rint(blocks / scale[..., None]) + zero[..., None], 0, 2**bits - 1)
        scales[part], zeros[part] = scale, zero
    return packed_blocks(integers, scales, None if symmetric else zeros, bits)


def blocked(weight: np.ndarray, block_size: int) -> np.ndarray:
    """[rows, columns] -> float32 [columns, blocks, block_size], the last block filled up with zeros."""
    rows, columns = weight.shape
    count = -(-rows // block_size)
    padded = np.zeros((columns, count * block_size), np.float32)
    padded[:, :rows] = weight.T
    return padded.reshape(columns, count, block_size)


def packed_blocks(integers: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None, bits: int) -> Blocks:
    """Blocks of integers, uint8 [columns, blocks, block_size]; scales and zero points are [columns, blocks]."""
    if zeros is not None and zeros.shape[1] % 2 and bits == 4:
        zeros = np.pad(zeros, ((0, 0), (0, 1)))
    points = None if zeros is None else _packed(zeros.astype(np.uint8), bits).reshape(-1)
    return Blocks(_packed(integers, bits), scales.reshape(-1), points)


def _packed(integers: np.ndarray, bits: int) -> np.ndarray:
    packed = integers if bits == 8 else integers[..., 0::2] | (integers[..., 1::2] << 4)
    return np.ascontiguousarray(packed, np.uint8)


def best_scales(
    blocks: np.ndarray, bits: int, symmetric: bool, shares: np.ndarray, importance: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Scales and zero points, float32 [columns, blocks], of the least squared error.

    Args:
        blocks: float32 [columns, blocks, block_size].
        bits: 4 or 8.
        symmetric: zero point at the middle.
        shares: of a block's extreme, which are tried as its range.
        importance: float32 [blocks, block_size], what an error in each row weighs; None: all the same.
    """
    scale, zero = _scales(blocks, bits, symmetric, float(shares[0]))
    if len(shares) == 1:
        return scale, zero
    least = _error(blocks, scale, zero, bits, importance)
    for share in shares[1:]:
        other_scale, other_zero = _scales(blocks, bits, symmetric, float(share))
        error = _error(blocks, other_scale, other_zero, bits, importance)
        better = error < least
        scale, zero = np.where(better, other_scale, scale), np.where(better, other_zero, zero)
        np.minimum(error, least, out=least)
    return scale, zero


def _error(
    blocks: np.ndarray, scale: np.ndarray, zero: np.ndarray, bits: int, importance: np.ndarray | None
) -> np.ndarray:
    """Squared error of each block."""
    steps = blocks / scale[..., None]
    rounded = np.rint(steps)
    np.maximum(rounded, -zero[..., None], out=rounded)
    np.minimum(rounded, (2**bits - 1) - zero[..., None], out=rounded)
    rounded -= steps
    if importance is None:
        squared = np.einsum("cbi,cbi->cb", rounded, rounded)
    else:
        squared = np.einsum("cbi,cbi,bi->cb", rounded, rounded, importance)
    return np.asarray(squared * scale * scale)


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


class BlockStore:
    """Computes blocks of weights, and keeps those of a model that is small enough."""

    def __init__(self) -> None:
        self.keep = False
        self._kept: dict[tuple[str, BlockFormat], Blocks] = {}

    def keep_below(self, weights: Iterable[ir.TensorProtocol | None]) -> None:
        """Keep all blocks, once computed, of a model with these float weights, if they are not too large."""
        self.keep = sum(w.nbytes for w in weights if w is not None) < _KEEP_BELOW

    def blocks(self, name: str, weight: Callable[[], np.ndarray], how: BlockFormat) -> Blocks:
        """The blocks of a float32 [K, N] weight; `name` is its own in the model."""
        key = (name, replace(how, accuracy_level=0))
        if key not in self._kept:
            found = self.compute(name, weight(), how)
            if not self.keep:
                self._kept.clear()  # the scales are asked for right after the integers
            self._kept[key] = found
        return self._kept[key]

    def compute(self, name: str, weight: np.ndarray, how: BlockFormat) -> Blocks:  # noqa: ARG002
        """The blocks, rounded to the nearest."""
        return quantize_blocks(weight, how.bits, how.block, symmetric=how.symmetric, search=how.search)


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
    store = BlockStore()
    store.keep_below(n.inputs[1].const_value for n in nodes if n.inputs[1] is not None)
    how = BlockFormat(bits_of(recipe), recipe.block_size, recipe.symmetric, search=recipe.search_scale)
    for node in nodes:
        weight = node.inputs[1]
        assert weight is not None
        transposed = node.op_type == "Gemm" and bool(attribute(node, "transB", 0))
        key = (id(weight), transposed)
        if key not in stored:
            own = f"{len(stored)} {weight.name}"  # subgraphs may have weights of one name
            stored[key] = store_blocks(
                owning_graph(weight, node), weight, how, store, transposed=transposed, known_as=own
            )
        replace_product(node, how, stored[key], transposed=transposed)
    graph.opset_imports.setdefault(DOMAIN, 1)


def bits_of(recipe: QuantRecipe) -> int:
    """Bits of a weight-only recipe."""
    return 4 if recipe.mode == "int4" else 8


def store_blocks(
    graph: ir.Graph,
    weight: ir.Value,
    how: BlockFormat,
    store: BlockStore,
    *,
    transposed: bool = False,
    known_as: str = "",
) -> list[ir.Value]:
    """Initializers for integers, scales and zero points, computed when they are asked for.

    Args:
        graph: where to register them.
        weight: float32 [K, N], or [N, K] when `transposed`.
        how: the format.
        store: computes the blocks.
        transposed: the columns of the product are the weight's rows.
        known_as: how the store knows the weight; by its name unless given.
    """
    tensor = weight.const_value
    assert tensor is not None
    shape = tensor.shape.numpy()
    rows, columns = shape[::-1] if transposed else shape
    count = -(-rows // how.block)
    name = weight.name or "weight"

    def blocks() -> Blocks:
        return store.blocks(known_as or name, lambda: tensor.numpy().T if transposed else tensor.numpy(), how)

    def points() -> np.ndarray:
        found = blocks().zero_points
        assert found is not None
        return found.reshape(columns, -1)

    uint8, float32 = ir.DataType.UINT8, ir.DataType.FLOAT
    packed = (columns, count, how.block * how.bits // 8)
    scales = (columns, count)
    made = [
        lazy_initializer(graph, f"{name}_int{how.bits}", lambda: blocks().packed, packed, uint8),
        lazy_initializer(graph, f"{name}_scales", lambda: blocks().scales.reshape(scales), scales, float32),
    ]
    if not how.symmetric:
        width = count if how.bits == 8 else -(-count // 2)
        made.append(lazy_initializer(graph, f"{name}_zero_points", points, (columns, width), uint8))
    return made


def replace_product(node: ir.Node, how: BlockFormat, stored: list[ir.Value], *, transposed: bool = False) -> None:
    """Put MatMulNBits in the place of a MatMul or Gemm; it keeps the node's name."""
    weight = node.inputs[1]
    assert weight is not None and weight.const_value is not None
    shape = weight.const_value.shape.numpy()
    rows, columns = shape[::-1] if transposed else shape
    attributes = {
        "K": rows,
        "N": columns,
        "bits": how.bits,
        "block_size": how.block,
        "accuracy_level": how.accuracy_level,
    }
    name = f"{node.outputs[0].name or node.name}_blocks"
    (result,) = insert(node, "MatMulNBits", [node.inputs[0], *stored], [name], attributes, DOMAIN)
    product = result.producer()
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is not None:
        (result,) = insert(node, "Add", [result, bias], [f"{name}_biased"])
    old = node.name
    replace_value(node, result)
    assert product is not None
    product.name = old
