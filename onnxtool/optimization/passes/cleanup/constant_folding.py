"""Constant folding: nodes whose inputs are all constants are computed once, here, also those in loops and branches."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.editing import add_tensor, as_tensor
from onnxtool.model.ir.queries import constant_array, is_op
from onnxtool.model.operators.value_facts import static_shape
from onnxtool.optimization.constant_evaluation import CannotEvaluateError, evaluate, foldable
from onnxtool.optimization.pass_base import Level
from onnxtool.optimization.pass_context import PassContext
from onnxtool.optimization.passes.cleanup.dead_code import EliminateDeadCode
from onnxtool.optimization.type_inference import message_bytes, repeated_constants

_HEADER = 32  # bytes around the values of an initializer
_MAX_COMPUTED_BYTES = 1 << 28
_LARGE = 1 << 20
_PROVENANCE = 640  # bytes that the record of what was done, and the digest, take in the file


class FoldConstants:
    """f(constants) -> a constant, computed by the runtime; the file never grows by it."""

    name = "fold-constants"
    level = Level.BASIC

    def apply(self, model: ir.Model, context: PassContext) -> int:
        """Fold every chain of constant nodes at once; only what other nodes read is stored."""
        known: dict[ir.Value, np.ndarray] = {}
        candidates = []
        for node in context.nodes(model):
            if self._compute(node, known, context):
                candidates.append(node)
        folded = set(candidates)
        count = 0
        # Backwards, so that a node which cannot be folded after all makes its inputs needed in time.
        for node in reversed(candidates):
            needed = [o for o in node.outputs if o.is_graph_output() or any(u.node not in folded for u in o.uses())]
            if not self._store(node, needed, known, context):
                folded.discard(node)
                continue
            count += 1
        for node in reversed(candidates):
            if node in folded and node.graph is not None and not any(o.uses() for o in node.outputs):
                node.graph.remove(node, safe=True)
        return count

    def finish(self, model: ir.Model, context: PassContext) -> int:
        """Write out repeated constants, the smallest first, as long as the file stays smaller than it was."""
        nodes = repeated_constants(model) if context.source_bytes else []
        if not nodes:
            return 0
        room = context.source_bytes - message_bytes(model) - _PROVENANCE
        found = [(array, node) for node in nodes if (array := self._writable(node, context)) is not None]
        count = 0
        for array, node in sorted(found, key=lambda pair: pair[0].nbytes):
            value = node.outputs[0]
            name = value.name or "folded"
            room -= array.nbytes + len(name) + _HEADER - _node_bytes(node)
            if room < 0:
                break
            value.name = context.unique(f"{name}_folded")
            constant = context.initializer(array, name, keep_name=True)
            value.replace_all_uses_with(constant)
            assert node.graph is not None
            node.graph.remove(node, safe=True)
            count += 1
        if count:
            EliminateDeadCode().apply(model, context)  # the shapes that they were made from
        return count

    def _writable(self, node: ir.Node, context: PassContext) -> np.ndarray | None:
        value = node.outputs[0]
        return None if value.is_graph_output() or context.changes_kernel(value) else context.array(value)

    def _compute(self, node: ir.Node, known: dict[ir.Value, np.ndarray], context: PassContext) -> bool:
        if context.refused.get(node, 0) is None or not foldable(node) or is_op(node, "Constant") or not node.outputs:
            return False
        for value in node.inputs:
            if value is not None and value not in known and not context.is_constant(value):
                return False
        if any(v.is_graph_output() for v in node.outputs):
            return False
        if node in context.refused and not _more_room(node, context):
            return False
        shapes = [static_shape(o) for o in node.outputs]
        if any(s is not None and math.prod(s) * 4 > _MAX_COMPUTED_BYTES for s in shapes):
            return False
        if any(context.changes_kernel(o) for o in node.outputs) and not _goes_on(node, known, context):
            context.refused[node] = None  # it would be computed, which takes three times its size, and not stored
            return False
        if self._hopeless(node, known, context):
            return False
        arrays = [None if v is None else known[v] if v in known else context.array(v) for v in node.inputs]
        if any(a is None and v is not None for a, v in zip(arrays, node.inputs, strict=True)):
            return False
        try:
            results = evaluate(node, arrays, context.model.opset_imports)
        except CannotEvaluateError:
            context.refused[node] = None
            return False
        for value, result in zip(node.outputs, results, strict=True):
            if result is not None:
                known[value] = result
        return True

    def _hopeless(self, node: ir.Node, known: dict[ir.Value, np.ndarray], context: PassContext) -> bool:
        """Whether it is a transposed copy of a large weight that others read: it would be made only to be refused."""
        weight = node.inputs[0] if is_op(node, "Transpose") else None
        if weight is None or weight.const_value is None or _goes_on(node, known, context):
            return False
        freed, size = _freed_bytes(node), weight.const_value.nbytes
        if size < _LARGE or context.could_grow(freed, size):
            return False
        array = context.array(weight)
        if array is None or not context.fits_inline(array):
            return False
        context.refused[node] = freed
        return True

    def _store(
        self, node: ir.Node, needed: list[ir.Value], known: dict[ir.Value, np.ndarray], context: PassContext
    ) -> bool:
        if not needed:
            return True
        if any(v not in known for v in needed):
            return False
        if any(context.changes_kernel(v) for v in needed):
            context.refused[node] = None
            return False
        if is_op(node, "ConstantOfShape", "Expand") and not context.fits_inline(known[needed[0]]):
            return False  # already the compact form of this constant
        after = sum(context.stored_bytes(known[v]) for v in needed)
        freed = _freed_bytes(node)
        if not context.may_grow(freed, after):
            context.refused[node] = freed
            return False
        for value in needed:
            name = value.name or "folded"
            value.name = context.unique(f"{name}_folded")
            constant = context.constant(known[value], name, before=node, keep_name=True)
            value.replace_all_uses_with(constant)
        return True


def _node_bytes(node: ir.Node) -> int:
    """What a node of constant inputs takes in the file, with the inputs that only it reads."""
    alone = [v.const_value.nbytes for v in node.inputs if v is not None and v.const_value and len(v.uses()) == 1]
    return int(ir.serde.serialize_node(node).ByteSize()) + sum(alone)


def _goes_on(node: ir.Node, known: dict[ir.Value, np.ndarray], context: PassContext) -> bool:
    """Whether a node that reads this one's result is constant as well."""
    readers = {u.node for o in node.outputs for u in o.uses()}
    return any(
        foldable(r) and all(v is None or v in known or v in node.outputs or context.is_constant(v) for v in r.inputs)
        for r in readers
    )


def _freed_bytes(node: ir.Node) -> int:
    """Bytes of initializers that nobody reads once this node, and the constant nodes that only it needs, are gone."""
    gone, pending, freed = {node}, [node], dict[ir.Value, int]()
    while pending:
        # What several of these nodes read is looked at with each of them, and goes with the last.
        for value in pending.pop().inputs:
            if value is None or not _only_for(gone, value):
                continue
            made_by = value.producer()
            if value.const_value is not None and not value.is_graph_input():
                freed[value] = value.const_value.nbytes
            elif made_by is not None and made_by not in gone and all(_only_for(gone, o) for o in made_by.outputs):
                gone.add(made_by)
                pending.append(made_by)
    return sum(freed.values())


def _more_room(node: ir.Node, context: PassContext) -> bool:
    """Whether a node would free more than when it was refused, or another one would for which this one is needed."""
    seen, pending = {node}, [node]
    while pending:
        current = pending.pop()
        if current not in context.refused:
            continue
        before = context.refused[current]
        if before is not None and _freed_bytes(current) > before:
            return True
        readers = {u.node for o in current.outputs for u in o.uses()} - seen
        seen |= readers
        pending += readers
    return False


def _only_for(nodes: set[ir.Node], value: ir.Value) -> bool:
    return not value.is_graph_output() and all(u.node in nodes for u in value.uses())


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
                output.replace_all_uses_with(value)
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
    else:
        # onnxscript once made value_float a double here (numpy's default); get_const_tensor gives float32.
        tensor = as_tensor(array, name)
    return add_tensor(context.model.graph, tensor)


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
