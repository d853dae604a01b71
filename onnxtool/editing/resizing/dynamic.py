"""Fixed dims to dynamic ones: attempts, each tried out at once, until one holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import onnx_ir as ir

from onnxtool.editing.operation import EditContext
from onnxtool.editing.resizing.batches import BatchProof, Fault
from onnxtool.editing.resizing.blame import first_mixing
from onnxtool.editing.resizing.rewrite import Dims, rewrite
from onnxtool.editing.resizing.state import BakedSizeError, Resizing, node_label
from onnxtool.editing.types import inferred
from onnxtool.errors import UnsupportedError
from onnxtool.optimization.pass_context import PassContext

_MOST_ATTEMPTS = 24

Trial = Callable[[ir.Model], Fault | None]


def make_dynamic(
    model: ir.Model, dims: Dims, trial: Trial | None, proof: BatchProof | None, context: EditContext
) -> tuple[ir.Model, Resizing]:
    """Give inputs dynamic dims, and rewrite what was made for their old size.

    Args:
        model: unchanged; the result is another one.
        dims: input -> axis -> symbol.
        trial: says what is wrong with an attempt; None takes the first one.
        proof: for the name of the node where rows mix; None when no dim is a batch.
        context: how to run.

    Raises:
        UnsupportedError: no attempt holds; the message names the node.
    """
    base = model.clone()
    PassContext(base)  # names of their own for all values
    known = inferred(base)
    first: tuple[ir.Model, Resizing, Fault | None] | None = None
    tried = 0
    ambiguous: dict[str, int] = {}
    for choices in _attempts(ambiguous):
        attempt = base.clone()
        try:
            state = rewrite(attempt, known, dims, choices)
        except BakedSizeError:
            if first is None:
                raise
            continue
        fault = trial(attempt) if trial is not None else None
        if fault is None:
            return attempt, state
        if first is None:
            first = attempt, state, fault
            ambiguous.update(state.ambiguous)
        tried += 1
        if tried >= _MOST_ATTEMPTS:
            break
    assert first is not None and first[2] is not None
    raise UnsupportedError(_cause(*first[:2], first[2], proof, context))


def _attempts(ambiguous: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """The likeliest alternative everywhere; then another one at each node in turn, and at all nodes alike."""
    yield {}
    open_at = dict(ambiguous)  # filled in by the first attempt
    for other in range(1, max(open_at.values(), default=1)):
        yield {name: other for name, count in open_at.items() if count > other}
    for name, count in open_at.items():
        for other in range(1, count):
            yield {name: other}


def _cause(model: ir.Model, state: Resizing, fault: Fault, proof: BatchProof | None, context: EditContext) -> str:
    """One line that names the node."""
    named = next((n for n in model.graph.all_nodes() if fault.node and n.name == fault.node), None)
    where = node_label(named) if named is not None else None
    suspects = list(dict.fromkeys(f"{node_label(n)} {why}" for n, why in state.suspects))
    if where is None and suspects:
        where = suspects[0]
    if where is None and proof is not None:
        mixing = first_mixing(model, proof, fault.size, context)
        where = f"{mixing} mixes the rows" if mixing else None
    elif suspects and where not in suspects and not any(s.startswith(where or "-") for s in suspects):
        where = f"{where}, after {suspects[0]}"
    prefix = f"{where}: " if where else ""
    return f"{prefix}{fault.reason.removesuffix('.')}. Nothing was written."
