"""Write a decoder's weights as blocks of 4 or 8 bits: layers, head and embedding each in their own format.

Integers are computed when the file is written, one weight at a time, from the memory-mapped source: a model that is
larger than memory takes no more of it than its largest weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from onnxtool.errors import UnsupportedError
from onnxtool.model.ir.editing import insert, new_initializer, remove_unused, replace_value
from onnxtool.model.ir.queries import is_op
from onnxtool.quantization.algorithms.weight_only import (
    DOMAIN,
    BlockFormat,
    Blocks,
    BlockStore,
    best_scales,
    blockable,
    blocked,
    packed_blocks,
    replace_product,
    store_blocks,
)


@dataclass(frozen=True)
class WeightPlan:
    """The format of each weight of a decoder; None keeps float32.

    Attributes:
        layers: of the products in the layers.
        head: of the product that gives the logits, and of the embedding where both share a weight.
        embedding: of an embedding of its own; where both share a weight, only if the head has an exception.
        exceptions: of single products, by the name of the node.
        smoothed: the model is one whose products' inputs were smoothed.
    """

    layers: BlockFormat | None
    head: BlockFormat | None
    embedding: BlockFormat | None = None
    exceptions: Mapping[str, BlockFormat | None] = field(default_factory=dict)
    smoothed: bool = False

    def format_of(self, name: str, is_head: bool) -> BlockFormat | None:
        """The format of a product's weight."""
        return self.exceptions.get(name, self.head if is_head else self.layers)

    def __str__(self) -> str:
        layers = str(self.layers or "float32")
        head = str(self.head or "float32")
        text = layers if head == layers else f"layers {layers}; head {head}"
        for other in dict.fromkeys(map(str, self.exceptions.values())):
            text += f"; {sum(str(e) == other for e in self.exceptions.values())} products {other}"
        return f"{text}; smoothed" if self.smoothed else text


class CalibratedStore(BlockStore):
    """Blocks rounded by GPTQ, where a format asks for it and the moments are there.

    Attributes:
        moments: of the inputs of the product with a weight, by the weight's name.
    """

    def __init__(self) -> None:
        super().__init__()
        self.moments: Mapping[str, np.ndarray] = {}

    def compute(self, name: str, weight: np.ndarray, how: BlockFormat) -> Blocks:
        """The blocks."""
        if not how.calibrated or name not in self.moments:
            return super().compute(name, weight, how)
        return gptq_blocks(weight, self.moments[name], how.bits, how.block, symmetric=how.symmetric)


def products(model: ir.Model) -> list[ir.Node]:
    """The products with a constant float32 weight, in the order of the graph; the head, if it is one, comes last."""
    return [n for n in model.graph if blockable(n) and n.op_type == "MatMul"]


def head_of(model: ir.Model, nodes: Sequence[ir.Node]) -> ir.Node | None:
    """The product that gives the logits, of all `products`."""
    return nodes[-1] if nodes and _gives_logits(nodes[-1], model) else None


def write_blocks(model: ir.Model, plan: WeightPlan, store: BlockStore) -> dict[str, int]:
    """Replace products and the embedding by their block-quantized forms.

    Args:
        model: a decoder; changed in place.
        plan: the formats.
        store: where blocks are computed.

    Returns:
        How many weights have each format.

    Raises:
        UnsupportedError: the model has no product with float32 weights.
    """
    nodes = products(model)
    if not nodes:
        raise UnsupportedError("the model has no products with float32 weights; is it quantized already?")
    head = head_of(model, nodes)
    embedding = embedding_of(model)
    store.keep_below(v.const_value for v in model.graph.initializers.values())
    counts: dict[str, int] = {}
    made: dict[str, tuple[BlockFormat, list[ir.Value]]] = {}
    for node in nodes:
        how = plan.format_of(str(node.name), node is head)
        counts[str(how or "float32")] = counts.get(str(how or "float32"), 0) + 1
        if how is None:
            continue
        weight = node.inputs[1]
        assert weight is not None and weight.name is not None
        if weight.name not in made:
            made[weight.name] = (how, store_blocks(model.graph, weight, how, store))
        replace_product(node, how, made[weight.name][1])
    if embedding is not None:
        _lookup(model, *embedding, plan, made, store)
    remove_unused(model)
    model.graph.opset_imports.setdefault(DOMAIN, 1)
    return counts


def _gives_logits(node: ir.Node, model: ir.Model) -> bool:
    """Nothing but operations on single elements stands between the node and the logits."""
    value, logits = node.outputs[0], model.graph.outputs[0]
    for _ in range(8):
        if value is logits:
            return True
        readers = value.consumers()
        if len(readers) != 1 or not is_op(readers[0], "Mul", "Div", "Tanh", "Cast", "Add"):
            return False
        value = readers[0].outputs[0]
    return False


def embedding_of(model: ir.Model) -> tuple[ir.Node, ir.Value, bool] | None:
    """The lookup of the input ids: its node, its weight, and whether it reads the weight transposed."""
    ids = next((i for i in model.graph.inputs if i.name == "input_ids"), None)
    for node in model.graph:
        if not is_op(node, "Gather") or node.inputs[1] is not ids or node.inputs[0] is None:
            continue
        table = node.inputs[0]
        source = table.producer()
        if source is not None and is_op(source, "Transpose") and source.inputs[0] is not None:
            return (node, source.inputs[0], True) if source.inputs[0].const_value is not None else None
        return (node, table, False) if table.const_value is not None else None
    return None


def _lookup(
    model: ir.Model,
    node: ir.Node,
    table: ir.Value,
    transposed: bool,
    plan: WeightPlan,
    made: Mapping[str, tuple[BlockFormat, list[ir.Value]]],
    store: BlockStore,
) -> None:
    """Look tokens up in the head's blocks where both share a weight, else in blocks of the embedding's own."""
    assert table.const_value is not None
    shared = transposed and str(table.name) in made
    if shared and plan.embedding is not None and made[str(table.name)][0] != plan.head:
        # The head went to fewer bits alone: a lookup costs next to nothing, its error goes through all layers.
        how = plan.embedding
        stored = store_blocks(model.graph, table, how, store, known_as=f"{table.name}_table")
        size = table.const_value.shape.numpy()[0]
    elif shared:
        how, stored = made[str(table.name)]
        size = table.const_value.shape.numpy()[0]
    elif plan.embedding is not None and not transposed and table.const_value.dtype == ir.DataType.FLOAT:
        how = plan.embedding
        size = table.const_value.shape.numpy()[1]
        stored = store_blocks(model.graph, table, how, store, transposed=True, known_as=f"{table.name}_table")
    else:
        return
    count = -(-size // how.block)
    integers, *rest = stored
    assert integers.shape is not None
    rows = integers.shape.numpy()[0]
    width = count * how.block * how.bits // 8
    shape = new_initializer(model.graph, "embedding_rows", np.asarray([rows, width], np.int64))
    name = node.outputs[0].name
    (flat,) = insert(node, "Reshape", [integers, shape], [f"{name}_rows"])
    attributes = {"bits": how.bits, "block_size": how.block, "gather_axis": 0, "quantize_axis": 1}
    (result,) = insert(
        node, "GatherBlockQuantized", [flat, node.inputs[1], *rest], [f"{name}_blocks"], attributes, DOMAIN
    )
    if count * how.block != size:
        cut = [
            new_initializer(model.graph, f"embedding_{k}", np.asarray([v], np.int64))
            for k, v in (("start", 0), ("end", size), ("axis", -1))
        ]
        (result,) = insert(node, "Slice", [result, *cut], [f"{name}_cut"])
    replace_value(node, result)


_SHARES = np.linspace(1.0, 0.7, 10)  # of a block's range, from which the one of least error is taken
_DAMPING = 0.01  # of the mean of the diagonal, so that the matrix can be inverted
_AT_ONCE = 64  # rows whose error goes to the rest in one product
_COLUMNS = 4096  # columns in work at a time


def gptq_blocks(weight: np.ndarray, moments: np.ndarray, bits: int, block_size: int, *, symmetric: bool) -> Blocks:
    """Quantize a [K, N] weight in blocks of `block_size` rows, so that its product with typical inputs changes least.

    GPTQ: rows are rounded one after the other, and the rows that follow make up for the error. Scales are
    those of the original weight, so that the rows can be taken in the order of how much their inputs weigh.

    Args:
        weight: float32 [K, N].
        moments: float [K, K], the sum over calibration tokens of the product of each two inputs.
        bits: 4 or 8.
        block_size: rows that share a scale.
        symmetric: zero point at the middle.

    Returns:
        Blocks in MatMulNBits' layout.

    Source: Frantar et al. 2023, "GPTQ: accurate post-training quantization for generative pre-trained transformers",
    algorithm 1, with static groups and the rows in descending order of the moments' diagonal.
    """
    rows, columns = weight.shape
    count = -(-rows // block_size)
    order, feedback = _feedback(moments)
    importance = np.zeros((count, block_size), np.float32)  # an error is large where the inputs are
    importance.reshape(-1)[:rows] = np.diag(moments) / max(float(np.diag(moments).mean()), 1e-30)
    shares = _SHARES if bits < 8 else _SHARES[:1]
    integers = np.zeros((columns, count * block_size), np.uint8)
    scales = np.empty((columns, count), np.float32)
    zeros = np.empty((columns, count), np.float32)
    for start in range(0, columns, _COLUMNS):
        part = slice(start, min(start + _COLUMNS, columns))
        own = np.ascontiguousarray(weight[:, part], np.float32)
        scale, zero = best_scales(blocked(own, block_size), bits, symmetric, shares, importance)
        scales[part], zeros[part] = scale, zero
        integers[part, :rows] = _rounded(own, scale.T, zero.T, order, feedback, bits, block_size).T
    return packed_blocks(integers.reshape(columns, count, block_size), scales, None if symmetric else zeros, bits)


def _feedback(moments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The order of the rows, and for each (in that order) how its error goes to the rows after it."""
    matrix = np.asarray(moments, np.float64)
    diagonal = np.diag(matrix)
    order = np.argsort(-diagonal, kind="stable")
    matrix = matrix[np.ix_(order, order)]
    unused = np.diag(matrix) <= 0
    matrix[unused, unused] = 1.0
    matrix[np.diag_indices(len(matrix))] += _DAMPING * max(float(diagonal.mean()), 1e-12)
    # With H = R Rᵀ, R upper triangular, the upper Cholesky factor of the inverse of H is the inverse of R.
    upper = np.linalg.inv(np.linalg.cholesky(matrix[::-1, ::-1])[::-1, ::-1])
    return order, np.asarray(upper / np.diag(upper)[:, None], np.float32)


def _rounded(
    weight: np.ndarray,
    scale: np.ndarray,
    zero: np.ndarray,
    order: np.ndarray,
    feedback: np.ndarray,
    bits: int,
    block_size: int,
) -> np.ndarray:
    """Integers, uint8 [K, columns]; `weight` is used up."""
    rows = len(order)
    rest = weight[order]
    found = np.empty(weight.shape, np.uint8)
    top = 2**bits - 1
    for start in range(0, rows, _AT_ONCE):
        end = min(start + _AT_ONCE, rows)
        errors = np.empty((end - start, weight.shape[1]), np.float32)
        for row in range(start, end):
            block = order[row] // block_size
            step, point = scale[block], zero[block]
            integer = np.clip(np.rint(rest[row] / step) + point, 0, top)
            found[order[row]] = integer
            errors[row - start] = rest[row] - (integer - point) * step
            rest[row + 1 : end] -= feedback[row, row + 1 : end, None] * errors[row - start]
        rest[end:] -= feedback[start:end, end:].T @ errors
    return found
