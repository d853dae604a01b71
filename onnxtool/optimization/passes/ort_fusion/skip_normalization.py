"""The runtime's normalizations with the addition of a shortcut built in."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, producer, sole_use
from onnxtool.model.operators.value_facts import set_sizes, sizes_of
from onnxtool.optimization.pass_base import Level, NodeRewrite
from onnxtool.optimization.pass_context import MICROSOFT, PassContext
from onnxtool.optimization.passes.fusion.normalization import rms_norm


@dataclass(frozen=True)
class _Normalized:
    """A normalization over the last dim of a sum."""

    add: ir.Node
    last: ir.Node
    scale: ir.Value
    bias: ir.Value | None
    epsilon: float


class FuseSkipLayerNorm(NodeRewrite):
    """LayerNormalization(a + b) -> the runtime's SkipLayerNormalization(a, b)."""

    name = "fuse-skip-layernorm"
    level = Level.ALL
    operators = ("LayerNormalization",)

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """The sum stays available to others; a constant row that is added first is taken along."""
        found = _of_node(node)
        if found is not None and _fits(found, context):
            _build(found, "SkipLayerNormalization", context)
            return 1
        return 0


class FuseSkipRMSNorm(NodeRewrite):
    """RMSNormalization(a + b), or its parts -> the runtime's SkipSimplifiedLayerNormalization(a, b)."""

    name = "fuse-skip-rmsnorm"
    level = Level.ALL
    operators = ("RMSNormalization", "Mul", "Div")

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """As one operator, or taken apart as exporters write it."""
        found = _of_node(node) if node.op_type == "RMSNormalization" else _of_chain(node, context)
        if found is not None and _fits(found, context):
            _build(found, "SkipSimplifiedLayerNormalization", context)
            return 1
        return 0


def _of_node(node: ir.Node) -> _Normalized | None:
    add, sizes = producer(node.inputs[0], "Add"), sizes_of(node.inputs[0])
    if add is None or sizes is None or attribute(node, "axis", -1) not in (-1, len(sizes) - 1):
        return None
    if len([v for v in node.outputs if v.uses() or v.is_graph_output()]) > 1 or node.inputs[1] is None:
        return None
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    return _Normalized(add, node, node.inputs[1], bias, float(attribute(node, "epsilon", 1e-5)))


def _of_chain(node: ir.Node, context: PassContext) -> _Normalized | None:
    norm = rms_norm(node, context)
    add = producer(norm.source, "Add") if norm is not None else None
    if norm is None or add is None:
        return None
    return _Normalized(add, norm.last, norm.scale_or_ones(context), None, norm.epsilon)


def _fits(found: _Normalized, context: PassContext) -> bool:
    """Two floats of one shape with two or three dims are added, and scale and bias are constant rows."""
    first, second = found.add.inputs[0], found.add.inputs[1]
    sizes = sizes_of(first)
    total = sizes_of(found.add.outputs[0])
    if sizes is None or not sizes == sizes_of(second) == total or len(sizes) not in (2, 3):
        return False
    if any(v is None or v.dtype != ir.DataType.FLOAT or context.is_constant(v) for v in (first, second)):
        return False
    rows = [found.scale, *([found.bias] if found.bias is not None else [])]
    return all(context.is_constant(r) and sizes_of(r) == sizes[-1:] for r in rows)


def _build(found: _Normalized, op_type: str, context: PassContext) -> None:
    add, total = found.add, found.add.outputs[0]
    assert add.graph is not None
    context.model.opset_imports.setdefault(MICROSOFT, 1)
    first, second, row = _rows_taken_along(add, context)
    inputs = [first, second, found.scale]
    if op_type == "SkipLayerNormalization":
        inputs.append(found.bias)
    if row is not None:
        inputs.append(row)
    while inputs[-1] is None:
        inputs.pop()
    name = context.unique(f"{found.last.outputs[0].name}_normalized")
    sum_name = context.unique(f"{total.name}_sum")
    results = [ir.Value(name=name), ir.Value(name=""), ir.Value(name=""), ir.Value(name=sum_name)]
    for value in (results[0], results[3]):
        value.type = ir.TensorType(ir.DataType.FLOAT)
        set_sizes(value, sizes_of(total) or ())
    settings = [ir.AttrFloat32("epsilon", found.epsilon)]
    # In front of the Add, because others that read the sum may come before the normalization.
    add.graph.insert_before(add, ir.Node(MICROSOFT, op_type, inputs, settings, outputs=results, name=name))
    context.bypass(found.last, results[0])
    context.bypass(add, results[3])


def _rows_taken_along(add: ir.Node, context: PassContext) -> tuple[ir.Value | None, ir.Value | None, ir.Value | None]:
    """What is added, and the constant row that is added to one of the two before."""
    for index in (0, 1):
        inner = producer(add.inputs[index], "Add")
        if inner is None or sole_use(inner.outputs[0]) is not add:
            continue
        for side in (0, 1):
            row, data = inner.inputs[side], inner.inputs[1 - side]
            sizes = sizes_of(data)
            if sizes is None or sizes != sizes_of(inner.outputs[0]) or sizes_of(row) != sizes[-1:]:
                continue
            if context.is_constant(row):
                return data, add.inputs[1 - index], row
    return add.inputs[0], add.inputs[1], None
