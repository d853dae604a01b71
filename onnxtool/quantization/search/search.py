"""The search of `auto`, from the data to the outcome: what is measured once, before any candidate is tried."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import onnx_ir as ir

from onnxtool.errors import UnsupportedError
from onnxtool.model.ir.queries import inner_nodes
from onnxtool.quantization.algorithms.dynamic import DYNAMIC, is_recurrent
from onnxtool.quantization.algorithms.qdq_placement import eligible, is_product, live_tensors
from onnxtool.quantization.algorithms.smooth_quant import smoothable
from onnxtool.quantization.algorithms.weight_storage import compactable
from onnxtool.quantization.apply_recipe import placement_of
from onnxtool.quantization.calibration.cache import CalibrationCache
from onnxtool.quantization.calibration.observer import observe
from onnxtool.quantization.calibration.range_estimators import ObservedRange
from onnxtool.quantization.diagnostics import nothing_to_quantize, quantized_nodes
from onnxtool.quantization.evaluation.criterion import Criterion
from onnxtool.quantization.evaluation.fidelity import FidelityEvaluator
from onnxtool.quantization.inputs import FIDELITY_SAMPLES, QuantizationInputs
from onnxtool.quantization.kernel_table import estimate_by, table_named
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.quantization.search.candidates import chosen_by, natural_plan, rule_of_thumb
from onnxtool.quantization.search.evaluator import CandidateEvaluator, RecipeTrial
from onnxtool.quantization.search.node_cost import macs
from onnxtool.quantization.search.opened_candidates import on_disk
from onnxtool.quantization.search.side_by_side import QUICK_SECONDS
from onnxtool.quantization.search.stages import RecipeSearch, SearchOutcome
from onnxtool.quantization.search.time_budget import TimeBudget
from onnxtool.quantization.targets import find_target
from onnxtool.runtime.data.source import DataSource
from onnxtool.runtime.in_turn import RunnerInTurn
from onnxtool.runtime.timing.timing import measure_in_turn

CALIBRATION_SAMPLES = 128
HELD_OUT_SAMPLES = 64
# Of small models, for which more samples take little time: of a few dozen, one flip is too much or nothing.
_MOST_SAMPLES, _IN_ALL = 256, 50_000_000  # samples, values of activations
_AT_ONCE = 1_000_000  # values of activations: of more, several samples at once take more memory, and no less time
_MOST_AT_ONCE = 8  # samples
_LEAST_SAMPLES = 8  # to calibrate with and to judge on, however short the time
_GLANCED = 4  # samples, for sizes alone until ranges are needed


def search(
    job: QuantizationInputs,
    base: QuantRecipe,
    max_drop: float,
    time_limit: float,
    target: str | None = None,
    began: float | None = None,
    keep: Callable[[RecipeTrial], None] | None = None,
) -> SearchOutcome:
    """Find the fastest recipe within the budget.

    Args:
        job: model, data, labels.
        base: options that every candidate shares (activations, exclusions, operator types).
        max_drop: the budget; see `Criterion`.
        time_limit: seconds for the whole search; it ends with the best found so far.
        target: another machine's traits: nothing is timed here, and speed goes by rules of thumb.
        began: reading of the clock that the time limit counts from; now unless given.
        keep: called once, with the first candidate that keeps the budget and is faster than float.
    """
    clock = TimeBudget(time_limit, began)
    traits = find_target(target)
    base = replace(base, reduced=traits.reduced, activations=traits.activations if target else base.activations)
    budget = Criterion(max_drop, job.task is not None)
    measured = None if job.data is None else job.split()[0]
    fitting = [n for n in job.prepared.graph if eligible(n) or (is_recurrent(n) and not base.form)]
    nodes = [n for n in fitting if chosen_by(base, n)]
    inner = [n for n in _inside_subgraphs(job.prepared.graph) if chosen_by(base, n) and not base.form]
    only_storage = compactable(job.prepared.graph) and not quantized_nodes(job.prepared) and not base.op_types
    if not nodes and not inner and not only_storage:
        raise UnsupportedError(f"{job.source}: {nothing_to_quantize(job.prepared)}")
    seen, complete = {}, None
    if measured is not None:
        seen = _observed(job, base, nodes, measured.limited(_GLANCED))
        complete = partial(_observed, job, base, nodes, _timely(measured, clock, "ranges"))
    values = sum(o.elements for o in seen.values())
    judged = _judged_in_all(values) if seen else HELD_OUT_SAMPLES
    least = judged if judged > HELD_OUT_SAMPLES else FIDELITY_SAMPLES
    held_out = job.probes() if job.data is None else job.split(least)[1]
    shown = held_out.limited(judged).until(clock.moment("judging"), _LEAST_SAMPLES, _teller(clock, "judging"))
    reference = job.runner(job.source)  # not before: what watches the ranges has all weights too
    judge = FidelityEvaluator(
        job.original, reference, shown, kinds=job.kinds, batch=_judged_at_once(values), confidence=job.confidence
    )
    if isinstance(reference, RunnerInTurn) and target is None:
        measure_in_turn([reference], job.probes().first(), job.threads, QUICK_SECONDS)  # while it is loaded
    table = None if target is None else table_named(target)
    guess = None
    if target is not None:
        cost = macs(nodes, seen)
        guess = rule_of_thumb(cost) if table is None else estimate_by(table, nodes, cost)
    samples = None if measured is None else _timely(measured, clock, "moves")
    conditions = CalibrationCache(job.prepared, seen, samples, *([on_disk] if job.one_at_a_time else []))
    evaluator = CandidateEvaluator(job, budget, judge, reference, seen, guess, conditions, clock)
    recipes = RecipeSearch(evaluator, budget, nodes, base, measured, inner, complete)
    recipes.keep = keep
    outcome = recipes.run()
    notes = tuple(note for note in (traits.note, clock.note) if note)
    if target is not None:
        how = "rules of thumb: nothing was" if table is None else "its table of kernel times: the model itself was not"
        notes += (f"chosen for {traits.name} by {how} timed on such a machine.",)
    return replace(outcome, notes=notes)


def _observed(
    job: QuantizationInputs, base: QuantRecipe, nodes: Sequence[ir.Node], data: DataSource
) -> dict[str, ObservedRange]:
    """What any candidate may need to know of activations, in one pass over the samples.

    Products of two activations are tried later; what these need is seen too, and what smoothing goes by.
    """
    graph = job.prepared.graph
    products = [n.name or "" for n in graph if is_product(n) and chosen_by(base, n)]
    everything = replace(base, plan={**natural_plan(nodes), **dict.fromkeys(products, "static")})
    channels = {g.value.name or "": g.channels for g in smoothable(graph)}
    needed = live_tensors(placement_of(graph, everything))
    needed += [name for name in channels if name not in needed]
    return observe(job.prepared, needed, data, histogram=True, channels=channels)


def _judged_in_all(values: int) -> int:
    """Samples to judge on, where there are so many, by how many values of activations each has."""
    return min(max(_IN_ALL // max(values, 1), HELD_OUT_SAMPLES), _MOST_SAMPLES)


def _judged_at_once(values: int) -> int:
    """Samples to run at once while judging, likewise."""
    return min(max(_AT_ONCE // max(values, 1), 1), _MOST_AT_ONCE)


def _inside_subgraphs(graph: ir.Graph) -> list[ir.Node]:
    """What can run on integers inside If, Loop and Scan: what finds its ranges at run time."""
    inner = inner_nodes(graph)
    return [n for n in inner if n.op_type in DYNAMIC and eligible(n)] + [n for n in inner if is_recurrent(n)]


def _timely(data: DataSource, clock: TimeBudget, stage: str) -> DataSource:
    """Calibration samples as long as there is time for that stage."""
    doing = "calibration of smoothed or equalized models" if stage == "moves" else "calibration"
    return data.limited(CALIBRATION_SAMPLES).until(clock.moment(stage), _LEAST_SAMPLES, _teller(clock, doing))


def _teller(clock: TimeBudget, doing: str) -> Callable[[int], None]:
    return lambda used: clock.cut(f"{doing} ({used} samples)")
