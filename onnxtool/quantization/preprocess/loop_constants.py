"""Weights that a Loop hands on from step to step, always the same, are read from the outer graph instead.

TensorFlow's loops get their weights this way: as states. To the body they are inputs, of which nobody can tell that
they are constant, and neither is the runtime able to pack them once and for all.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, constant_array, is_op

_BEFORE_STATES = 2  # inputs of a Loop and of its body: number of steps or of this step, condition


def lift_loop_constants(model: ir.Model) -> int:
    """Take constant states out of the Loops of the main graph.

    Args:
        model: changed in place.

    Returns:
        Number of states that became constants of the outer graph.
    """
    return sum(_lift(node) for node in list(model.graph) if is_op(node, "Loop"))


def _lift(loop: ir.Node) -> int:
    body = attribute(loop, "body")
    states = len(loop.inputs) - _BEFORE_STATES
    constant = [k for k in range(states) if _is_constant(loop, body, k)]
    if not constant:
        return 0
    for k in reversed(constant):
        inner, outer = body.inputs[_BEFORE_STATES + k], loop.inputs[_BEFORE_STATES + k]
        passed_on = body.outputs.pop(1 + k).producer()
        if passed_on is not None:
            body.remove(passed_on, safe=True)
        assert outer is not None
        ir.convenience.replace_all_uses_with(inner, outer)  # in subgraphs of the body too
        body.inputs.pop(_BEFORE_STATES + k)
    _without(loop, constant)
    return len(constant)


def _is_constant(loop: ir.Node, body: ir.Graph, k: int) -> bool:
    """True when a state is a constant at first, handed on as it is, and nobody reads it after the loop."""
    outer, inner, handed = loop.inputs[_BEFORE_STATES + k], body.inputs[_BEFORE_STATES + k], body.outputs[1 + k]
    if constant_array(outer) is None or loop.outputs[k].uses() or loop.outputs[k].is_graph_output():
        return False
    if handed is inner:
        return sum(v is inner for v in body.outputs) == 1
    producer = handed.producer()
    if producer is None or handed.uses():
        return False
    return is_op(producer, "Identity") and producer.inputs[0] is inner


def _without(loop: ir.Node, constant: list[int]) -> None:
    """The Loop once more, without some states."""
    graph = loop.graph
    assert isinstance(graph, ir.Graph)
    inputs = [v for i, v in enumerate(loop.inputs) if i - _BEFORE_STATES not in constant]
    kept = [v for k, v in enumerate(loop.outputs) if k not in constant]
    attributes = list(loop.attributes.values())
    loop.attributes.clear()
    new = ir.Node(loop.domain, loop.op_type, inputs, attributes, num_outputs=len(kept), name=loop.name)
    graph.insert_before(loop, new)
    for old, result in zip(kept, new.outputs, strict=True):
        result.type, result.shape = old.type, old.shape
        name = old.name
        ir.convenience.replace_all_uses_with(old, result, replace_graph_outputs=True)
        old.name = None
        result.name = name
    graph.remove(loop, safe=True)
