"""Constants where they belong: Constant nodes and subgraph initializers become initializers of the main graph."""

from __future__ import annotations

import onnx_ir as ir

from onnxtool.model.ir.queries import constant_array, is_op
from onnxtool.optimization.pass_base import Level
from onnxtool.optimization.pass_context import PassContext


class LiftConstants:
    """y = Constant(c) -> the initializer y of the main graph; initializers of subgraphs likewise."""

    name = "lift-constants"
    level = Level.BASIC

    def apply(self, model: ir.Model, context: PassContext) -> int:
        """Turn every Constant with a dense tensor into an initializer."""
        lifted = 0
        for node in context.nodes(model, "Constant"):
            output = node.outputs[0]
            if output.is_graph_output():
                continue  # an initializer as an output is valid, but some runtimes refuse it
            value = _lift(node, context)
            if value is not None:
                for user, index in output.uses():
                    user.replace_input_with(index, value)
                assert node.graph is not None
                node.graph.remove(node, safe=True)
                lifted += 1
        return lifted + _lift_from_subgraphs(model, context)


def _lift(node: ir.Node, context: PassContext) -> ir.Value | None:
    output = node.outputs[0]
    array = constant_array(output)
    if array is None or any(a.is_ref() for a in node.attributes.values()) or not is_op(node, "Constant"):
        return None
    name = output.name or context.unique("constant")
    output.name = context.unique(f"{name}_lifted")
    attribute = node.attributes.get("value")
    if attribute is not None:
        tensor = attribute.as_tensor()  # kept as it is: external data and small types stay untouched
        tensor.name = name
    elif array.dtype.kind in "OUS":
        words = [w if isinstance(w, bytes) else str(w).encode() for w in array.reshape(-1)]
        tensor = ir.StringTensor(words, shape=ir.Shape(array.shape), name=name)
    else:
        # onnxscript once made value_float a double here (numpy's default); get_const_tensor gives float32.
        tensor = ir.tensor(array, name=name)
    value = ir.Value(name=name, const_value=tensor, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape))
    context.model.graph.register_initializer(value)
    return value


def _lift_from_subgraphs(model: ir.Model, context: PassContext) -> int:
    lifted = 0
    for graph in model.graph.subgraphs():
        for value in list(graph.initializers.values()):
            if value.is_graph_output() or value.is_graph_input() or value.const_value is None:
                continue
            graph.initializers.pop(value.name or "")
            if value.name in model.graph.initializers:
                value.name = context.unique(f"{value.name}_lifted")
            model.graph.register_initializer(value)
            lifted += 1
    return lifted
