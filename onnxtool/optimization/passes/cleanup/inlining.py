"""Calls and branches that are known beforehand: model-local functions, and If with a constant condition."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from onnxtool.optimization.pass_base import Level, NodeRewrite
from onnxtool.optimization.pass_context import PassContext
from onnxtool.optimization.passes.cleanup.dead_code import detach_subgraphs


class InlineFunctions:
    """f(x) -> the body of the model-local function f."""

    name = "inline-functions"
    level = Level.BASIC

    def apply(self, model: ir.Model, context: PassContext) -> int:
        """Inline everything, or nothing when functions call each other in a circle or need another opset."""
        if not model.functions or _opsets_differ(model):
            return 0
        keys = set(model.functions)
        calls = sum(n.op_identifier() in keys for n in model.graph.all_nodes())
        try:
            InlinePass()(model)
        except ir.passes.PreconditionError:
            return 0
        model.functions.clear()
        context.rename_duplicates()
        return calls + len(keys)


def _opsets_differ(model: ir.Model) -> bool:
    # InlinePass keeps the model's version of each domain, which would change the meaning of the function's nodes.
    return any(
        model.opset_imports.get(domain, version) != version
        for function in model.functions.values()
        for domain, version in function.opset_imports.items()
    )


class InlineConstantIf(NodeRewrite):
    """If(true, A, B) -> A, If(false, A, B) -> B."""

    name = "inline-constant-if"
    level = Level.BASIC
    operators = ("If",)

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """Move the nodes of the branch in front of the If and let its users read them."""
        condition = context.array(node.inputs[0])
        if condition is None or condition.size != 1:
            return 0
        name = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
        branch = node.attributes.get(name)
        if branch is not None and not branch.is_ref():
            return inline_branch(node, branch.as_graph(), context)
        return 0


def inline_branch(node: ir.Node, body: ir.Graph, context: PassContext) -> int:
    """Put the nodes of a branch in the place of its If; the number of Ifs that are gone."""
    graph = node.graph
    assert graph is not None
    if len(body.outputs) != len(node.outputs) or body.inputs:
        return 0
    for value in list(body.initializers.values()):
        body.initializers.pop(value.name or "")
        if value.name in context.model.graph.initializers:
            value.name = context.unique(value.name or "lifted")
        context.model.graph.register_initializer(value)
    results = list(body.outputs)
    body.outputs.clear()
    moved = list(body)
    for inner in moved:
        body.remove(inner)
    graph.insert_before(node, moved)
    for old, new in zip(node.outputs, results, strict=True):
        if not context.replace_uses(old, new):
            copy = context.insert(node, "Identity", [new], base=f"{old.name}_copy")
            copy.type, copy.shape = old.type, old.shape
            context.replace_uses(old, copy)
    detach_subgraphs(node)
    graph.remove(node, safe=True)
    return 1
