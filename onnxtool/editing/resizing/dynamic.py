"""Fixed dims to dynamic ones: attempts, each tried out at once, until one holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import onnx_ir as ir

from onnxtool.editing.operation import EditContext
from onnxtool.editing.resizing.batches import BatchProof, Fault
from onnxtool.editing.resizing.blame import first_mixing
from onnxtool.editing.resizing.rewrite import Dims, rewrite
from onnxtool.editing.resizing.state import BakedSizeError, Resizing, node_label
from onnxtool.editing.types import inferred
from onnxtool.errors import OnnxToolError, UnsupportedError
from onnxtool.model.domains import input_domains
from onnxtool.model.ir.queries import STANDARD, constant_array, input_specs
from onnxtool.optimization.pass_context import PassContext
from onnxtool.optimization.shape_inference.value_facts import sizes_of
from onnxtool.runtime.probes import find_probes
from onnxtool.runtime.runner import OnnxRunner

_MOST_ATTEMPTS = 24
_MOST_MEASURED = 2000  # tensors

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
    indices = _computed_indices(known, context) if trial is not None else {}
    measured = _measured(known, context) if trial is not None else {}
    first: tuple[ir.Model, Resizing, Fault] | None = None
    baked: BakedSizeError | None = None
    ambiguous: dict[str, int] = {}
    for number, choices in enumerate(_attempts(ambiguous)):
        attempt = base.clone()
        try:
            state = rewrite(attempt, known, dims, choices, indices, measured)
        except BakedSizeError as error:
            baked = baked or error
            ambiguous.update({n: c for n, c in error.ambiguous.items() if not number})
            continue
        fault = trial(attempt) if trial is not None else None
        if fault is None:
            return attempt, state
        if first is None:
            first = attempt, state, fault
            ambiguous.update(state.ambiguous)
        if number >= _MOST_ATTEMPTS:
            break
    if baked is not None:
        raise baked
    assert first is not None
    raise UnsupportedError(_cause(*first, proof, context))


def _measured(known: ir.Model, context: EditContext) -> dict[str, tuple[int, ...]]:
    """The dims that inner tensors have in a run, where all inputs have fixed ones and some dim is not known."""
    specs = input_specs(known)
    values = [v for n in known.graph for v in n.outputs if v.name and v.uses() and v.dtype is not None]
    unknown = [v for v in values if not _is_known(v) and not v.is_graph_output()]
    fixed = all(isinstance(d, int) for s in specs for d in s.shape or (None,))
    if not fixed or not unknown or len(unknown) > _MOST_MEASURED:
        return {}
    watched = known.clone()
    names = {v.name for v in unknown}
    try:
        for node in watched.graph:
            for value in node.outputs:
                if value.name in names:
                    value.shape = None
                    watched.graph.outputs.append(value)
        runner = OnnxRunner.open(watched, context.options)
        outputs = find_probes(runner, specs, context.seed, input_domains(watched), wanted=1)[0].outputs
    except OnnxToolError:
        return {}
    return {n: a.shape for n, a in outputs.items() if n in names and isinstance(a, np.ndarray)}


def _is_known(value: ir.Value) -> bool:
    sizes = sizes_of(value)
    return sizes is not None and all(isinstance(d, int) for d in sizes)


def _computed_indices(known: ir.Model, context: EditContext) -> dict[str, np.ndarray]:
    """Indices that nodes compute, where they are the same for different inputs: exporters compute them from sizes."""
    watched = known.clone()
    wanted = [
        node.inputs[1]
        for node in watched.graph
        if node.op_type in ("GatherND", "ScatterND") and node.domain in STANDARD and len(node.inputs) > 1
    ]
    values = [v for v in dict.fromkeys(wanted) if v is not None and v.producer() is not None and v.dtype is not None]
    values = [v for v in values if constant_array(v) is None and not v.is_graph_output()]
    if not values:
        return {}
    try:
        for value in values:
            value.shape = None
        watched.graph.outputs.extend(values)
        runner = OnnxRunner.open(watched, context.options)
        runs = []
        for seed in (context.seed, context.seed + 1):
            specs = input_specs(watched)
            runs.append(find_probes(runner, specs, seed, input_domains(watched), wanted=1)[0].outputs)
    except OnnxToolError:
        return {}
    names = [v.name or "" for v in values]
    return {n: np.asarray(runs[0][n]) for n in names if np.array_equal(runs[0][n], runs[1][n])}


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
    where = next((s for s in suspects if where and s.startswith(where)), where)
    if where is None and suspects:
        where = suspects[0]
    if where is None and proof is not None:
        mixing = first_mixing(model, proof, fault.size, context)
        where = f"{mixing} mixes the rows" if mixing else None
    elif suspects and where not in suspects:
        where = f"{where}, after {suspects[0]}"
    prefix = f"{where}: " if where else ""
    return f"{prefix}{fault.reason.removesuffix('.')}. Nothing was written."
