"""`auto`: calibrate once, then search for the fastest recipe within the accuracy budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import onnx_ir as ir

from onnxtool.errors import UnsupportedError
from onnxtool.model.ir.queries import inner_nodes
from onnxtool.quantization.algorithms.dynamic import DYNAMIC
from onnxtool.quantization.algorithms.dynamic_lstm import is_recurrent
from onnxtool.quantization.algorithms.qdq_placement import eligible, live_tensors
from onnxtool.quantization.algorithms.weight_storage import compactable
from onnxtool.quantization.apply_recipe import placement_of
from onnxtool.quantization.calibration.cache import Conditions
from onnxtool.quantization.calibration.observer import observe
from onnxtool.quantization.data.source import DataSource
from onnxtool.quantization.diagnostics import nothing_to_quantize, quantized_nodes
from onnxtool.quantization.evaluation.fidelity import Judge
from onnxtool.quantization.inputs import Job
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.quantization.search.accuracy_budget import Budget
from onnxtool.quantization.search.candidates import natural_plan, rule_of_thumb
from onnxtool.quantization.search.evaluator import Laboratory
from onnxtool.quantization.search.node_cost import macs
from onnxtool.quantization.search.search import Hunt, Outcome, chosen_by
from onnxtool.quantization.search.time_budget import SearchClock
from onnxtool.quantization.targets import find_target

CALIBRATION_SAMPLES = 128
HELD_OUT_SAMPLES = 64
_LEAST_SAMPLES = 8  # to calibrate with and to judge on, however short the time


def search(
    job: Job,
    base: QuantRecipe,
    max_drop: float,
    time_limit: float,
    target: str | None = None,
    began: float | None = None,
) -> Outcome:
    """Find the fastest recipe within the budget.

    Args:
        job: model, data, labels.
        base: options that every candidate shares (activations, exclusions, operator types).
        max_drop: the budget; see `Budget`.
        time_limit: seconds for the whole search; it ends with the best found so far.
        target: another machine's traits: nothing is timed here, and speed goes by rules of thumb.
        began: reading of the clock that the time limit counts from; now unless given.
    """
    clock = SearchClock(time_limit, began)
    traits = find_target(target)
    base = replace(base, reduced=traits.reduced, activations=traits.activations if target else base.activations)
    budget = Budget(max_drop, job.task is not None)
    measured, held_out = (None, job.probes()) if job.data is None else job.split()
    reference = job.runner(job.source)
    fitting = [n for n in job.prepared.graph if eligible(n) or is_recurrent(n)]
    nodes = [n for n in fitting if chosen_by(base, n)]
    inner = [n for n in _inside_subgraphs(job.prepared.graph) if chosen_by(base, n)]
    only_storage = compactable(job.prepared.graph) and not quantized_nodes(job.prepared) and not base.op_types
    if not nodes and not inner and not only_storage:
        raise UnsupportedError(f"{job.source}: {nothing_to_quantize(job.prepared)}")
    seen = {}
    if measured is not None:
        everything = replace(base, plan=natural_plan(nodes))
        needed = live_tensors(placement_of(job.prepared.graph, everything))
        seen = observe(job.prepared, needed, _timely(measured, clock, "calibration"), histogram=True)
    shown = held_out.limited(HELD_OUT_SAMPLES).until(clock.moment("judging"), _LEAST_SAMPLES, _teller(clock, "judging"))
    judge = Judge(job.original, reference, shown)
    guess = rule_of_thumb(macs(nodes, seen)) if target is not None else None
    samples = None if measured is None else _timely(measured, clock, "condition")
    lab = Laboratory(job, budget, judge, reference, seen, guess, Conditions(job.prepared, seen, samples), clock)
    outcome = Hunt(lab, budget, nodes, base, measured, inner).run()
    notes = tuple(note for note in (traits.note, clock.note) if note)
    if target is not None:
        notes += (f"chosen for {traits.name} by rules of thumb: nothing was timed on such a machine.",)
    return replace(outcome, notes=notes)


def _inside_subgraphs(graph: ir.Graph) -> list[ir.Node]:
    """What can run on integers inside If, Loop and Scan: what finds its ranges at run time."""
    inner = inner_nodes(graph)
    return [n for n in inner if n.op_type in DYNAMIC and eligible(n)] + [n for n in inner if is_recurrent(n)]


def _timely(data: DataSource, clock: SearchClock, stage: str) -> DataSource:
    """Calibration samples as long as there is time for that stage."""
    doing = "calibration" if stage == "calibration" else "calibration of smoothed or equalized models"
    return data.limited(CALIBRATION_SAMPLES).until(clock.moment(stage), _LEAST_SAMPLES, _teller(clock, doing))


def _teller(clock: SearchClock, doing: str) -> Callable[[int], None]:
    return lambda used: clock.cut(f"{doing} ({used} samples)")
