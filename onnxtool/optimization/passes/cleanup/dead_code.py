"""Dead code: what no output depends on."""

from __future__ import annotations

import onnx_ir as ir

from onnxtool.model.ir.queries import annotating_names, bodies_of, is_op
from onnxtool.optimization.pass_base import Level, NodeRewrite
from onnxtool.optimization.pass_context import PassContext

# Outputs that may be dropped from the end when nobody reads them, because the operator then computes less.
_OPTIONAL_OUTPUTS = {"Dropout": 1, "MaxPool": 1, "LayerNormalization": 1}


class EliminateDeadCode:
    """y = f(x) that no output depends on -> nothing; graph inputs always stay."""

    name = "eliminate-dead-code"
    level = Level.BASIC

    def apply(self, model: ir.Model, context: PassContext) -> int:  # noqa: ARG002
        """Remove what is unused, in the main graph and all subgraphs."""
        removed, named = _clean(model.graph), annotating_names(model)
        for graph in [model.graph, *model.graph.subgraphs()]:
            for value in list(graph.initializers.values()):
                unused = not value.uses() and not value.is_graph_output() and not value.is_graph_input()
                if unused and value.name not in named:
                    graph.initializers.pop(value.name or "")
                    removed += 1
        return removed


class TidyRewrite(NodeRewrite):
    """A pass that removes what it leaves over, which would look like another reader to itself and to others."""

    def apply(self, model: ir.Model, context: PassContext) -> int:
        """Rewrite every node, then clean up."""
        count = super().apply(model, context)
        if count:
            EliminateDeadCode().apply(model, context)
        return count


def _clean(graph: ir.Graph) -> int:
    removed = 0
    for node in reversed(graph):
        if not any(o.uses() or o.is_graph_output() for o in node.outputs):
            detach_subgraphs(node)
            graph.remove(node, safe=True)
            removed += 1
            continue
        removed += sum(_clean(body) for body in bodies_of(node)) + _trim_outputs(node)
    return removed


def detach_subgraphs(node: ir.Node) -> None:
    """Let the bodies of a dead If or Loop no longer count as users of what they capture."""
    for body in bodies_of(node):
        for inner in list(body.all_nodes()):
            for index in range(len(inner.inputs)):
                inner.replace_input_with(index, None)


def _trim_outputs(node: ir.Node) -> int:
    keep = _OPTIONAL_OUTPUTS.get(node.op_type) if is_op(node, *_OPTIONAL_OUTPUTS) else None
    if keep is None or len(node.outputs) <= keep:
        return 0
    if any(o.uses() or o.is_graph_output() for o in node.outputs[keep:]):
        return 0
    node.resize_outputs(keep)
    return 1
