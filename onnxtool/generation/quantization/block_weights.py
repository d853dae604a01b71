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
from onnxtool.generation.quantization.gptq import gptq_blocks
from onnxtool.model.ir.editing import insert, new_initializer, remove_unused, replace_value
from onnxtool.model.ir.queries import is_op
from onnxtool.quantization.algorithms.weight_only import (
    DOMAIN,
    BlockFormat,
    Blocks,
    BlockStore,
    blockable,
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
