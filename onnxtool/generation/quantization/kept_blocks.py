"""Weights that come from blocks of few bits go back into such blocks, bit by bit where the runtime has their kernel.

A GGUF file's weights are a scale for each 16 or 32 of them times an integer (Q4_0, Q5_0, Q8_0, Q6_K), or that plus a
minimum (Q4_1, Q5_1, Q4_K, Q5_K). The scale is found again in the float32 values, whatever order the rows were put into
on the way. Those with a minimum have no kernel that is fast; in 8 bits with zero points they are off by at most a
thirtieth of their own step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxtool.generation.quantization.block_weights import WeightPlan, embedding_of, head_of, products
from onnxtool.quantization.algorithms.weight_only import BlockFormat, Blocks, BlockStore, packed_blocks

EXACT = (BlockFormat(4, 32), BlockFormat(8, 32), BlockFormat(8, 16))
NEAR = BlockFormat(8, 32, symmetric=False)
_LOOK = 64  # columns that are tried before all of them
_INTEGER = 2e-3  # a value that is so near an integer is one; float32 rounds a 25-bit product of Q6_K by less
_AT_ONCE = 1 << 20  # weights in work at a time


@dataclass(frozen=True)
class KeptPlan:
    """How to store the weights of a model that was read from blocks.

    Attributes:
        plan: for `write_blocks`, with a `KeptStore`.
        exact: how many weights are kept bit by bit.
        near: how many are rounded to 8 bits.
    """

    plan: WeightPlan
    exact: int
    near: int


def kept_plan(model: ir.Model) -> KeptPlan:
    """Find the blocks that each product's weight, and the embedding, came from."""
    nodes = products(model)
    head = head_of(model, nodes)
    formats: dict[str, BlockFormat] = {}
    seen: dict[str, BlockFormat] = {}
    for node in nodes:
        weight = node.inputs[1]
        assert weight is not None and weight.const_value is not None
        if str(weight.name) not in seen:
            seen[str(weight.name)] = _format(weight.const_value.numpy())
        formats[str(node.name)] = seen[str(weight.name)]
    lookup = embedding_of(model)
    table = None
    if lookup is not None and not lookup[2] and lookup[1].const_value is not None:
        table = _format(lookup[1].const_value.numpy().T)
        seen[str(lookup[1].name)] = table
    of_head = formats.get(str(head.name)) if head is not None else None
    exact = sum(f in EXACT for f in seen.values())
    return KeptPlan(WeightPlan(NEAR, of_head or NEAR, table, formats), exact, len(seen) - exact)


class KeptStore(BlockStore):
    """Blocks as they were, where the format is one that keeps them."""

    def compute(self, name: str, weight: np.ndarray, how: BlockFormat) -> Blocks:
        """The blocks."""
        if how not in EXACT:
            return super().compute(name, weight, how)
        found = exact_blocks(weight, how.bits, how.block)
        assert found is not None  # `kept_plan` has found them
        return found


def exact_blocks(weight: np.ndarray, bits: int, block_size: int) -> Blocks | None:
    """Blocks without zero points that stand for exactly these float32 [K, N] weights; None where there are none."""
    rows, columns = weight.shape
    if rows % block_size:
        return None
    count = rows // block_size
    integers = np.empty((columns, count, block_size), np.uint8)
    scales = np.empty((columns, count), np.float32)
    width = max(1, _AT_ONCE // rows)
    for start in range(0, columns, width):
        part = slice(start, min(start + width, columns))
        blocks = np.ascontiguousarray(weight[:, part].T, np.float32).reshape(-1, block_size)
        found = _exact(blocks, bits)
        if found is None:
            return None
        integers[part], scales[part] = (
            f.reshape(-1, *s) for f, s in zip(found, ((count, block_size), (count,)), strict=True)
        )
    return packed_blocks(integers, scales, None, bits)


def _exact(blocks: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Integers (with the middle added) and scales of [blocks, size] values: the largest is one of few integers."""
    middle = 2 ** (bits - 1)
    largest = np.abs(blocks).max(axis=1)
    scales = np.ones(len(blocks), np.float32)
    steps = np.zeros(blocks.shape, np.float32)
    left = np.flatnonzero(largest > 0)
    for integer in range(middle, 0, -1):
        if not left.size:
            break
        scale = largest[left] / integer
        found = blocks[left] / scale[:, None]
        rounded = np.rint(found)
        fits = np.abs(found - rounded).max(axis=1) < _INTEGER
        turned = rounded.max(axis=1) == middle  # one value more below zero than above: the scale is negative
        rounded[turned] *= -1
        fits &= rounded.max(axis=1) < middle
        scales[left[fits]] = np.where(turned, -scale, scale)[fits]
        steps[left[fits]] = rounded[fits]
        left = left[~fits]
    return None if left.size else ((steps + middle).astype(np.uint8), scales)


def _format(weight: np.ndarray) -> BlockFormat:
    for how in EXACT:
        if exact_blocks(weight[:, :_LOOK], how.bits, how.block) is None:
            continue
        if exact_blocks(weight, how.bits, how.block) is not None:
            return how
    return NEAR
