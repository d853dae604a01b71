"""From how far each tensor is off to the node that is to blame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from onnxtool.equality.layers.graph import LayerGraph, changed_weights
from onnxtool.equality.layers.weight_chain import Explanation, explanations
from onnxtool.model.header import operator_name
from onnxtool.report.layers import Culprit, LayerDifference, Layers, Suspect


@dataclass(frozen=True)
class Measured:
    """How far one tensor of B is from its partner in A; fields as in `LayerDifference`.

    Attributes:
        other: another shape or kind: it cannot be the same tensor.
    """

    max_abs: float
    error: float
    ok: bool
    shape: tuple[int, ...]
    other: bool = False


def judge(
    a: LayerGraph,
    b: LayerGraph,
    measured: Mapping[str, Measured],
    partners: Mapping[str, str],
    by_value: Mapping[str, str],
    passes: int,
) -> Layers:
    """Put the error along the depth together, and find the first wrong tensor.

    Args:
        a, b: the two models.
        measured: by B's tensor, for tensors that have a partner.
        partners: B's tensor -> A's, by name.
        by_value: B's tensor -> A's, for tensors that were known again by their content: these agree.
        passes: runs that it took.
    """
    agreeing = {y for y, m in measured.items() if m.ok} | set(by_value)
    first, reused = first_wrong(b, measured, agreeing)
    changed = changed_weights(a, b)
    culprit = None if first is None else _culprit(a, b, first, {**partners, **by_value}, agreeing, changed)
    tensors = [difference(b, partners[y], y, m, "name", reused=y in reused) for y, m in measured.items()]
    tensors += [
        LayerDifference(x, y, operator_of(b, y), b.order[y], (), 0.0, 0.0, True, "value") for y, x in by_value.items()
    ]
    matched = len(tensors)
    return Layers(
        tensors=tuple(sorted(tensors, key=lambda t: t.depth)),
        unmatched_a=len(a.producers) - matched,
        unmatched_b=len(b.producers) - matched,
        culprit=culprit,
        passes=passes,
        changed=tuple(s for s in b.suspects(b.model.graph, "B", changed) if s.changed_weights),
    )


def first_wrong(b: LayerGraph, measured: Mapping[str, Measured], agreeing: set[str]) -> tuple[str | None, set[str]]:
    """The first tensor of B that is wrong while all that it is made of agrees, and the tensors that only share a name.

    Args:
        b: the model that is judged.
        measured: by B's tensor.
        agreeing: B's tensors that are as they should be.
    """
    wrong = [y for y, m in measured.items() if not m.ok]
    outputs = set(b.output_names(b.model))
    reused = {y for y in wrong if measured[y].other and y not in outputs}
    reused |= _reused(b, [y for y in wrong if y not in outputs | reused], agreeing, set(wrong) - reused)
    blamed = [y for y in sorted(wrong, key=b.order.__getitem__) if y not in reused]
    for tensor in blamed:
        if not b.behind(tensor, agreeing | set(blamed))[1] & set(blamed):
            return tensor, reused
    return None, reused


def operator_of(graph: LayerGraph, tensor: str) -> str:
    """What makes a tensor."""
    node = graph.producers[tensor]
    return operator_name(node.domain, node.op_type)


def _reused(b: LayerGraph, candidates: Iterable[str], agreeing: set[str], wrong: set[str]) -> set[str]:
    """Tensors of which only the name is the same: everything that is made of them agrees in the end.

    A fusion may give the name of an inner tensor to another one: after folding a BatchNormalization, the
    convolution's output is what the normalization's was; after merging projections, whole chains are wider. Looked at
    from the end, so that a chain of such tensors is seen through.
    """
    reused: set[str] = set()
    for tensor in sorted(candidates, key=b.order.__getitem__, reverse=True):
        heirs = b.heirs(tensor, agreeing | (wrong - reused))
        if heirs and heirs <= agreeing:
            reused.add(tensor)
    return reused


def _culprit(
    a: LayerGraph,
    b: LayerGraph,
    tensor: str,
    matches: Mapping[str, str],
    agreeing: set[str],
    changed: set[str],
) -> Culprit:
    agreeing_a = {matches[y] for y in agreeing}
    nodes_b, ends = b.behind(tensor, agreeing)
    nodes_a, _ = a.behind(matches[tensor], agreeing_a)
    theirs = b.suspects(nodes_b, "B", changed)
    ours = a.suspects(nodes_a, "A", changed)
    common = {(s.node, s.operator) for s in theirs} & {(s.node, s.operator) for s in ours}
    suspects = [replace(s, model="A and B") if (s.node, s.operator) in common else s for s in theirs]
    suspects += [s for s in ours if (s.node, s.operator) not in common]
    if not any(s.changed_weights for s in suspects):
        # The tensors it is made of agree within tolerance, not to the last bit: what it grew from is further up.
        above, _ = b.behind(tensor, ())
        suspects += [s for s in b.suspects(above, "A and B", changed) if s.changed_weights]
    explained = explanations(a, b, tensor, matches, agreeing)
    suspects = [
        replace(s, explaining_weights=explained[s.node].weights) if "A" in s.model and s.node in explained else s
        for s in suspects
    ]
    suspects.sort(key=lambda s: (*_explained(s, explained), *_suspicion(s, a, b)))
    return Culprit(matches[tensor], tuple(suspects), tuple(sorted(ends)))


def _explained(suspect: Suspect, explained: Mapping[str, Explanation]) -> tuple[bool, int, int]:
    """The node that explains the change by the fewest numbers first; of two, the one with more weights that could."""
    if not suspect.explaining_weights:
        return True, 0, 0
    return False, explained[suspect.node].changed, -len(suspect.explaining_weights)


def _suspicion(suspect: Suspect, a: LayerGraph, b: LayerGraph) -> tuple[bool, int, bool]:
    """A node that reads a changed weight first; then by how much weight it reads; then B's, which is judged.

    Operators without weights compute what their inputs say: among nodes that became one, the one that brought the
    weight is the likelier.
    """
    weights = [w.size for n in suspect.inputs if (w := b.weights.get(n) or a.weights.get(n)) is not None]
    return not suspect.changed_weights, -sum(weights), suspect.model == "A"


def difference(
    b: LayerGraph, name: str, other: str, measured: Measured, matched_by: str, *, reused: bool
) -> LayerDifference:
    """What the report says of one pair of tensors: `name` of A, `other` of B."""
    return LayerDifference(
        name=name,
        other_name=other,
        operator=operator_of(b, other),
        depth=b.order[other],
        shape=measured.shape,
        max_abs=measured.max_abs,
        error=measured.error,
        ok=measured.ok,
        matched_by=matched_by,
        reused=reused,
    )
