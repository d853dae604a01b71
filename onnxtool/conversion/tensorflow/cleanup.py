"""What tf2onnx leaves behind that it need not: Transposes in front of reductions, "None" in its version, sizes of zero
that mean another.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.editing import add_tensor, as_tensor
from onnxtool.model.ir.queries import constant_array

_ALLOWS_ZERO = 14  # the first opset in which Reshape can be told
_REDUCTIONS = {"ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"}


def clean_up(model: ir.Model) -> None:
    """Clean a converted graph up, in place."""
    # tf2onnx adds the commit that it was built from, which a release does not know.
    model.producer_version = (model.producer_version or "").removesuffix(" None")
    newest = model.opset_imports.get("", 0)
    for graph in model.graphs():
        for node in graph:
            if node.op_type in _REDUCTIONS:
                _reduce_before_transposing(graph, node)
            elif node.op_type == "Reshape" and constant_array(node.inputs[1]) is None and newest >= _ALLOWS_ZERO:
                # A computed size of zero is zero to TensorFlow, and to ONNX the size that the tensor had.
                node.attributes["allowzero"] = ir.AttrInt64("allowzero", 1)
        for node in list(graph):
            if node.op_type == "Transpose" and not node.outputs[0].uses() and not node.outputs[0].is_graph_output():
                graph.remove(node, safe=True)


def _reduce_before_transposing(graph: ir.Graph | ir.Function, node: ir.Node) -> None:
    """Transpose, then a reduction that drops the dims which were moved = the reduction alone, over other axes.

    tf2onnx moves Transposes past reductions only where the axes are an attribute, which they are no more in opset 18.
    """
    source = node.inputs[0].producer() if node.inputs and node.inputs[0] is not None else None
    axes = constant_array(node.inputs[1]) if len(node.inputs) > 1 else None
    keeps = node.attributes["keepdims"].as_int() if "keepdims" in node.attributes else 1
    if source is None or source.op_type != "Transpose" or axes is None or keeps or "perm" not in source.attributes:
        return
    perm = list(source.attributes["perm"].as_ints())
    dropped = {int(a) % len(perm) for a in axes.reshape(-1)}
    kept = [perm[axis] for axis in range(len(perm)) if axis not in dropped]
    if kept != sorted(kept) or not isinstance(graph, ir.Graph):
        return
    moved = np.array(sorted(perm[axis] for axis in dropped), np.int64)
    value = add_tensor(graph, as_tensor(moved, f"{node.outputs[0].name}_axes"))
    node.replace_input_with(0, source.inputs[0])
    node.replace_input_with(1, value)
