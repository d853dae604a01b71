"""Calls and branches that are known beforehand: functions, conditions that are constant, branches that cannot be taken.

PyTorch's scripted `squeeze` and recurrent cells ask at run time which rank a tensor has, where all but one answer lead
to an operator that fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

import onnx_ir as ir

from onnxtool.model.ir.editing import inline_functions
from onnxtool.model.ir.queries import attribute
from onnxtool.model.operators.layout_rules import axes_of
from onnxtool.model.operators.table import STANDARD, operator_of
from onnxtool.model.operators.value_facts import integers, rank_of
from onnxtool.optimization.pass_base import Level, NodeRewrite
from onnxtool.optimization.pass_context import PassContext
from onnxtool.optimization.passes.cleanup.dead_code import detach_subgraphs


class InlineFunctions:
    """f(x) -> the body of the model-local function f."""

    name = "inline-functions"
    level = Level.BASIC

    def apply(self, model: ir.Model, context: PassContext) -> int:
        """Inline everything, or nothing when functions call each other in a circle or need another opset."""
        keys = set(model.functions)
        calls = sum(n.op_identifier() in keys for n in model.graph.all_nodes())
        if not keys or not inline_functions(model):
            return 0
        context.rename_duplicates()
        return calls + len(keys)


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


_BRANCHES = ("then_branch", "else_branch")
_FOLLOWED = 2000  # nodes behind an If
_DEEPEST = 3  # Ifs in each other whose condition is open
_COMPARED: dict[str, Callable[[int, int], bool]] = {
    "Equal": lambda a, b: a == b,
    "Less": lambda a, b: a < b,
    "Greater": lambda a, b: a > b,
    "LessOrEqual": lambda a, b: a <= b,
    "GreaterOrEqual": lambda a, b: a >= b,
}


class InlinePossibleBranch(NodeRewrite):
    """If(c, A, B) -> A, where what B gives has a rank with which a later operator fails."""

    name = "inline-possible-branch"
    level = Level.BASIC
    operators = ("If",)

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """Follow the rank of each branch's results through the nodes behind the If.

        A run that takes the impossible branch ends with an error in the original, so that every run with a result
        takes the other.
        """
        if node.graph is None or context.is_constant(node.inputs[0]):
            return 0
        bodies = _bodies(node)
        if bodies is None or _ranks(bodies[0]) == _ranks(bodies[1]):
            return 0
        possible = [body for body in bodies if _possible(node, body)]
        if len(possible) == 1:
            return inline_branch(node, possible[0], context)
        return 0


class _ImpossibleError(Exception):
    """An operator fails on what it gets."""


def _bodies(node: ir.Node) -> list[ir.Graph] | None:
    found = [node.attributes.get(name) for name in _BRANCHES]
    bodies = [a.as_graph() for a in found if a is not None and not a.is_ref()]
    whole = len(bodies) == 2 and all(len(b.outputs) == len(node.outputs) for b in bodies)
    return bodies if whole else None


def _ranks(body: ir.Graph) -> list[int | None]:
    return [rank_of(v) for v in body.outputs]


def _possible(node: ir.Node, body: ir.Graph) -> bool:
    """False when the nodes behind an If certainly fail on the ranks that this branch gives."""
    assert node.graph is not None
    trial = _BranchTrial()
    for outer, inner in zip(node.outputs, body.outputs, strict=True):
        trial.note(outer, rank_of(inner))
    nodes = iter(node.graph)
    for before in nodes:
        if before is node:
            break
    return trial.survives(nodes)


class _BranchTrial:
    """What would be known if one branch were taken: ranks, the length of a Shape's result, single integers."""

    def __init__(self, depth: int = 0) -> None:
        self.depth = depth
        self.ranks: dict[ir.Value, int] = {}
        self.lengths: dict[ir.Value, int] = {}
        self.numbers: dict[ir.Value, int] = {}

    def note(self, value: ir.Value, rank: int | None) -> None:
        """Take a value's rank, if it is known, for granted."""
        if rank is not None:
            self.ranks[value] = rank

    def rank(self, value: ir.Value | None) -> int | None:
        """The rank of a value under the assumption."""
        return None if value is None else self.ranks.get(value, rank_of(value))

    def number(self, value: ir.Value | None) -> int | None:
        """A single integer or boolean under the assumption."""
        if value is None or value in self.numbers:
            return None if value is None else self.numbers[value]
        known = integers(value)
        return known[0] if known is not None and len(known) == 1 else None

    def survives(self, nodes: Iterable[ir.Node]) -> bool:
        """False when one of these nodes, which certainly run, fails."""
        try:
            for node in islice(nodes, _FOLLOWED):
                self.follow(node)
        except _ImpossibleError:
            return False
        return True

    def follow(self, node: ir.Node) -> None:
        """What a node that certainly runs makes of it.

        Raises:
            _ImpossibleError: it fails.
        """
        if node.domain not in STANDARD:
            return
        if node.op_type == "If":
            self._branch(node)
        elif any(v in self.ranks or v in self.lengths or v in self.numbers for v in node.inputs if v is not None):
            self._integers(node)
            self._requirements(node)
            self._result(node)

    def _integers(self, node: ir.Node) -> None:
        out, first = node.outputs[0], node.inputs[0]
        if node.op_type == "Shape" and not node.attributes and (rank := self.rank(first)) is not None:
            self.lengths[out] = rank
        elif node.op_type == "Size" and first in self.lengths:
            self.numbers[out] = self.lengths[first]
        elif node.op_type in _COMPARED:
            a, b = self.number(first), self.number(node.inputs[1])
            if a is not None and b is not None:
                self.numbers[out] = int(_COMPARED[node.op_type](a, b))
        elif node.op_type in ("Not", "Cast", "Identity") and (number := self.number(first)) is not None:
            self.numbers[out] = int(not number) if node.op_type == "Not" else number

    def _requirements(self, node: ir.Node) -> None:
        ranks = [self.rank(v) for v in node.inputs]
        first = ranks[0]
        if first is None:
            return
        kind, shape = node.op_type, operator_of(node).shape
        known = [r for r in ranks if r is not None]
        perm = attribute(node, "perm")
        if (
            (shape == "recurrent" and first != 3)
            or (kind in ("Conv", "ConvTranspose") and len(ranks) > 1 and ranks[1] not in (None, first))
            or (kind == "Gemm" and first != 2)
            or (kind == "MatMul" and 0 in known)
            or (kind == "Concat" and len(set(known)) > 1)
            or (kind == "Transpose" and perm is not None and len(perm) != first)
            or (kind in ("Squeeze", "Unsqueeze") and not _axes_fit(node, first))
        ):
            raise _ImpossibleError

    def _result(self, node: ir.Node) -> None:
        kind, out, first = node.op_type, node.outputs[0], self.rank(node.inputs[0])
        shape = operator_of(node).shape
        if kind in ("Squeeze", "Unsqueeze"):
            axes = axes_of(node)
            if axes is not None and first is not None:
                self.note(out, first + len(axes) * (1 if kind == "Unsqueeze" else -1))
        elif shape == "same" or kind in ("Conv", "ConvTranspose", "Transpose", "Concat"):
            self.note(out, first)
        elif shape == "broadcast":
            ranks = [self.rank(v) for v in node.inputs if v is not None]
            self.note(out, max((r for r in ranks if r is not None), default=None) if None not in ranks else None)

    def _branch(self, node: ir.Node) -> None:
        """An If behind the If: the branch that is taken, or what all that can be taken have in common."""
        bodies = _bodies(node)
        if bodies is None or self.depth >= _DEEPEST:
            return
        condition = self.number(node.inputs[0])
        if condition is not None:
            bodies = [bodies[0 if condition else 1]]
        trials = [(body, t) for body in bodies if (t := self._inside(body)) is not None]
        if not trials:
            raise _ImpossibleError
        for index, outer in enumerate(node.outputs):
            found = {t.rank(body.outputs[index]) for body, t in trials}
            if len(found) == 1:
                self.note(outer, found.pop())

    def _inside(self, body: ir.Graph) -> _BranchTrial | None:
        """The same assumption inside a branch; None when the branch fails."""
        trial = _BranchTrial(self.depth + 1)
        trial.ranks, trial.lengths, trial.numbers = dict(self.ranks), dict(self.lengths), dict(self.numbers)
        return trial if trial.survives(body) else None


def _axes_fit(node: ir.Node, rank: int) -> bool:
    axes = axes_of(node)
    if axes is None:
        return True
    full = rank + len(axes) if node.op_type == "Unsqueeze" else rank
    return all(-full <= a < full for a in axes)
