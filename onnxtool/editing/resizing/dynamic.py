"""Fixed dims to dynamic ones: attempts, each tried out at once, until one holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod

import numpy as np
import onnx_ir as ir

from onnxtool.editing.context import EditContext
from onnxtool.editing.element_types import inferred
from onnxtool.editing.resizing.batches import BatchProof, Fault
from onnxtool.editing.resizing.positions import Axes, GoesOnError
from onnxtool.editing.resizing.resize_context import MOST_SEEN, BakedSizeError, Resizing, hangs_on, node_label
from onnxtool.editing.resizing.rewrite import Dims, rewrite
from onnxtool.errors import OnnxToolError, UnsupportedError
from onnxtool.model.domains import input_domains
from onnxtool.model.ir.editing import inlined
from onnxtool.model.ir.queries import constant_array, input_specs, walk
from onnxtool.model.operators.table import STANDARD
from onnxtool.model.operators.value_facts import static_shape
from onnxtool.model.randomness import is_random
from onnxtool.optimization.pass_context import PassContext
from onnxtool.runtime.probes import find_probes

_MOST_ATTEMPTS = 40
_MOST_MEASURED = 2000  # tensors
_MOST_DIMS = 16  # of a tensor

Trial = Callable[[ir.Model, Resizing], Fault | None]


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
    base = inlined(model)  # so that numbers in functions are seen
    _fix_defaults(base)
    PassContext(base)  # names of their own for all values
    known = inferred(base)
    indices = _computed_constants(known, context) if trial is not None else {}
    measured = _measured(known, context) if trial is not None else {}
    first: tuple[ir.Model, Resizing, Fault] | None = None
    baked: BakedSizeError | None = None
    order = {n.name or n.outputs[0].name or "": i for i, n in enumerate(walk(base.graph))}
    search = _DimSearch(order)
    for choices in search:
        try:
            attempt, state = _attempt(base, known, dims, choices, indices, measured)
        except BakedSizeError as error:
            baked = baked or error
            search.failed(choices, error.ambiguous, error.node)
            continue
        fault = trial(attempt, state) if trial is not None else None
        if fault is None:
            return attempt, state
        first = first or (attempt, state, fault)
        search.failed(choices, state.ambiguous, fault.node)
    if first is None:
        assert baked is not None
        raise baked
    raise UnsupportedError(_cause(*first, proof))


def _attempt(
    base: ir.Model,
    known: ir.Model,
    dims: Dims,
    choices: Mapping[str, int],
    indices: Mapping[str, np.ndarray],
    measured: Mapping[str, tuple[int, ...]],
) -> tuple[ir.Model, Resizing]:
    """A rewritten model; from the start again, where constants have to go on for readers that were passed."""
    origins: dict[tuple[str, int], Axes] = {}
    while True:
        attempt = base.clone()
        try:
            return attempt, rewrite(attempt, known, dims, choices, indices, measured, origins)
        except GoesOnError as found:
            if found.origins.keys() <= origins.keys():
                raise UnsupportedError("constants that go on with a size do not lead to what needs it.") from found
            origins |= found.origins


def _fix_defaults(model: ir.Model) -> None:
    """Shapes that a caller may override are constants from now on; before IR 4 every constant was an input too."""
    kept = []
    for value in model.graph.inputs:
        default = model.graph.initializers.get(value.name or "")
        tensor = default.const_value if default is not None else None
        shape = tensor is not None and tensor.dtype.is_integer() and len(tensor.shape) < 2 and tensor.size <= _MOST_DIMS
        if tensor is None or (model.ir_version >= 4 and not shape):
            kept.append(value)
    model.graph.inputs[:] = kept
    model.ir_version = max(model.ir_version, 4)


class _DimSearch:
    """Which alternatives to take next: the attempt that got furthest, with another one at its last open node.

    Args:
        order: node name -> its place in the graph.
    """

    def __init__(self, order: Mapping[str, int]) -> None:
        self._order = order
        self._queue: list[tuple[tuple[int, int, int], dict[str, int]]] = [((0, 0, 0), {})]
        self._seen: set[tuple[tuple[str, int], ...]] = set()

    def __iter__(self) -> Iterator[dict[str, int]]:
        for _ in range(_MOST_ATTEMPTS):
            if not self._queue:
                return
            self._queue.sort(key=lambda item: item[0])
            yield self._queue.pop(0)[1]

    def failed(self, choices: dict[str, int], ambiguous: Mapping[str, int], node: str) -> None:
        """Note how far an attempt got, and what else could be tried."""
        reached = self._order.get(node, len(self._order))
        open_at = [n for n in ambiguous if n not in choices and self._order.get(n, 0) <= reached]
        open_at.sort(key=lambda n: -self._order.get(n, 0))
        for back, name in enumerate(open_at):
            for other in range(1, ambiguous[name]):
                self._add((-reached, back, other), {**choices, name: other})
        for other in range(1, max((ambiguous[n] for n in open_at), default=1)):  # layers that are all alike
            self._add((-reached, 1, other), {**choices, **{n: other for n in open_at if ambiguous[n] > other}})

    def _add(self, rank: tuple[int, int, int], choices: dict[str, int]) -> None:
        key = tuple(sorted(choices.items()))
        if key not in self._seen:
            self._seen.add(key)
            self._queue.append((rank, choices))


def _measured(known: ir.Model, context: EditContext) -> dict[str, tuple[int, ...]]:
    """The dims that inner tensors have in a run, where all inputs have fixed ones and some dim is not known."""
    specs = input_specs(known)
    values = [v for n in known.graph for v in n.outputs if v.name and v.uses() and v.dtype is not None]
    unknown = [v for v in values if static_shape(v) is None and not v.is_graph_output()]
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
        runner = context.runner(watched)
        outputs = find_probes(runner, specs, context.seed, input_domains(watched), wanted=1)[0].outputs
    except OnnxToolError:
        return {}
    return {n: a.shape for n, a in outputs.items() if n in names and isinstance(a, np.ndarray)}


def _computed_constants(known: ir.Model, context: EditContext) -> dict[str, np.ndarray]:
    """What nodes compute of constants alone, and indices that are the same in two runs: they are made of sizes."""
    watched = known.clone()
    moving = set(watched.graph.inputs)
    for node in watched.graph:
        if hangs_on(node, moving) or is_random(node):
            moving |= set(node.outputs)
    still = [
        v for n in watched.graph for v in n.outputs if v not in moving and prod(static_shape(v) or (0,)) <= MOST_SEEN
    ]
    indices = [
        node.inputs[1]
        for node in watched.graph
        if node.op_type in ("GatherND", "ScatterND") and node.domain in STANDARD and len(node.inputs) > 1
    ]
    values = [v for v in dict.fromkeys([*still, *indices]) if v is not None and v.producer() is not None]
    values = [v for v in values if v.dtype is not None and constant_array(v) is None and not v.is_graph_output()]
    if not values:
        return {}
    try:
        for value in values:
            value.shape = None
        watched.graph.outputs.extend(values)
        runner = context.runner(watched)
        runs = []
        for seed in (context.seed, context.seed + 1):
            specs = input_specs(watched)
            runs.append(find_probes(runner, specs, seed, input_domains(watched), wanted=1)[0].outputs)
    except OnnxToolError:
        return {}
    names = [v.name or "" for v in values]
    return {
        n: a
        for n in names
        if isinstance(a := runs[0][n], np.ndarray) and np.array_equal(a, runs[1][n], equal_nan=a.dtype.kind == "f")
    }


def _cause(model: ir.Model, state: Resizing, fault: Fault, proof: BatchProof | None) -> str:
    """One line that names the node."""
    named = next((n for n in model.graph.all_nodes() if fault.node and n.name == fault.node), None)
    drawn = next((f"{node_label(n)} draws random numbers" for n in model.graph.all_nodes() if is_random(n)), None)
    where = drawn or (node_label(named) if named is not None else None)
    suspects = list(dict.fromkeys(f"{node_label(n)} {why}" for n, why in state.suspects))
    where = next((s for s in suspects if where and s.startswith(where)), where)
    if where is None and suspects:
        where = suspects[0]
    if where is None and proof is not None:
        mixing = proof.dependence(model, state).node
        where = f"{mixing} mixes the rows" if mixing else None
    elif suspects and where not in (*suspects, drawn):
        where = f"{where}, after {suspects[0]}"
    prefix = f"{where}: " if where else ""
    return f"{prefix}{fault.reason}"
