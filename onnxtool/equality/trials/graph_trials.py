"""Trials for two models of which one or both are ONNX graphs: facts read off them, conditions watched."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnxtool.equality.search.branch_distance import reach
from onnxtool.equality.search.conditions import (
    ConditionWatch,
    Outcome,
    has_conditions,
    indexed_dims,
    narrowing_casts,
)
from onnxtool.equality.trials.graph_hints import GraphHints, read_facts
from onnxtool.equality.trials.observe import breaks, takes_doubles, telling
from onnxtool.equality.trials.sizes import dynamic_dims
from onnxtool.equality.trials.trial import Budget, Trial, count_elements
from onnxtool.errors import OnnxToolError
from onnxtool.model.domains import Domain
from onnxtool.model.ir.queries import constant_array, constant_tensor, walk
from onnxtool.model.spec import TensorSpec
from onnxtool.report.proof import Branch, TrialKind
from onnxtool.runtime.feeds import Feeds
from onnxtool.runtime.runner import Runner
from onnxtool.runtime.session.session import SessionOptions

_LONGEST = 1.0  # seconds that the reference may take for an input of another size, as the usual ones let expect


def facts_of(graphs: Sequence[ir.Model], domains: Mapping[str, Domain] | None = None) -> GraphHints:
    """What several graphs tell; the first goes before the others."""
    facts = GraphHints(domains=dict(domains or {}), rows_needed=not graphs)
    for graph in graphs:
        facts = facts.merged(read_facts(graph))
    return facts


def reach_conditions(
    graphs: Mapping[str, ir.Model],
    reference: Runner | None,
    specs: Sequence[TensorSpec],
    runs: Sequence[Feeds],
    facts: GraphHints,
    budget: Budget,
    options: SessionOptions,
    *,
    seed: int = 0,
) -> tuple[list[Trial], dict[str, list[Outcome]], int]:
    """Inputs on which conditions of the graphs come out as they do on none of the runs.

    Args:
        graphs: by the model's name in reports.
        reference: gives the outputs of new inputs; what it refuses is left out. None where it cannot run any more: then
            what only new inputs reach counts as not reached.
        specs: its inputs.
        runs: inputs tried so far, in its names; the usual ones first.
        facts: what is known of the inputs.
        budget: how long.
        options: how graphs are run.
        seed: of random numbers.

    Returns:
        Trials, the outcomes that nothing reached, by model, and how many branches there are.
    """
    trials: list[Trial] = []
    missed: dict[str, list[Outcome]] = {}
    parts = 0
    dims = dynamic_dims(specs, runs[:3])
    rows, casts = differing_reads(graphs), narrowing_casts(graphs)
    watched = {n: graph for n, graph in graphs.items() if has_conditions(graph) or rows[n] or casts[n]}
    pace: float | None = None
    for name, graph in watched.items():
        try:
            watch = ConditionWatch(graph, options, rows[name], casts[name])
        except OnnxToolError:
            continue
        parts += sum(bool(o.branch) for o in watch.outcomes)
        tried = [*runs, *(t.feeds for t in trials)]
        share = budget.part(1 / len(watched))
        found, missed[name] = reach(watch, specs, tried, dims, facts, share, seed=seed)
        if reference is None:
            missed[name] += [item.outcome for item in found]
            continue
        for item in found:
            if pace is None:
                began = time.perf_counter()
                reference.run(runs[0])
                pace = time.perf_counter() - began
            grown = count_elements(item.feeds) / max(1.0, count_elements(runs[0]))
            if pace * max(1.0, grown) > max(_LONGEST, budget.seconds / 2):
                missed[name].append(item.outcome)
                continue
            try:
                with np.errstate(all="ignore"):
                    outputs = reference.run(item.feeds)
            except OnnxToolError:
                continue
            usable = telling(outputs, TrialKind.BRANCH, doubles=takes_doubles(specs))
            if usable or breaks(item.feeds, outputs):
                label = f"an input that reaches {item.outcome} in {name}"
                trials.append(Trial(label, TrialKind.BRANCH if usable else TrialKind.BROKEN, dict(item.feeds), outputs))
    return trials, missed, parts


def unreached_parts(missed: Mapping[str, Sequence[Outcome]], graphs: Mapping[str, ir.Model]) -> tuple[Branch, ...]:
    """Branches that nothing reached; of two graphs, the outcomes of their conditions too: behind one they may differ.

    For the report.
    """
    return tuple(
        Branch(model, o.node, o.part)
        for model, left in missed.items()
        for o in left
        if o.branch or (len(graphs) == 2 and not o.beyond)
    )


_MOST = 8  # rows of a table that are sought
_BYTES = 1 << 28  # of a table that is looked at


def differing_reads(graphs: Mapping[str, ir.Model]) -> dict[str, dict[str, list[int]]]:
    """Of two models, for each: tables that it reads by computed indices -> rows in which the other's differ.

    Args:
        graphs: by name; of one alone nothing is known.
    """
    found: dict[str, dict[str, list[int]]] = {name: {} for name in graphs}
    if len(graphs) != 2:
        return found
    (first, a), (second, b) = graphs.items()
    for name, model, other in ((first, a, b), (second, b, a)):
        known = _tables(other)
        for key, table in _tables(model).items():
            alike = [known[key]] if key in known else list(known.values())
            for counterpart in alike:
                rows = _rows_apart(table, counterpart)
                if rows and len(rows) <= len(table) // 2:
                    found[name].setdefault(key, [])
                    found[name][key] = sorted({*found[name][key], *_spread(rows)})[:_MOST]
    return found


def _tables(model: ir.Model) -> dict[str, np.ndarray]:
    """Constants of which Gather and GatherND take rows, by name; the rows along all dims that indices go through."""
    found: dict[str, np.ndarray] = {}
    for node in walk(model.graph):
        dims = indexed_dims(node)
        table = node.inputs[0] if dims else None
        if table is None or (table.name or "") in found:
            continue
        weight = constant_tensor(table)
        if weight is not None and (weight.dtype == ir.DataType.STRING or weight.nbytes > _BYTES):
            continue
        array = constant_array(table)
        if array is not None and array.size and array.dtype.kind in "fiub" and np.prod(dims) > 1:
            found[table.name or ""] = array.reshape(-1, *array.shape[len(dims) :])
    return found


def _rows_apart(a: np.ndarray, b: np.ndarray) -> list[int]:
    if a.shape != b.shape or a.dtype != b.dtype:
        return []
    return [int(i) for i in np.flatnonzero((a != b).reshape(len(a), -1).any(axis=1))]


def _spread(rows: list[int]) -> list[int]:
    """The first, the last, and some between."""
    places = np.linspace(0, len(rows) - 1, min(_MOST, len(rows))).astype(int)
    return [rows[i] for i in places]
