"""`auto`: what a candidate should do otherwise to be faster, found by trying."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import onnx_ir as ir

from onnxtool.errors import OnnxToolError
from onnxtool.model.ir.queries import float_constant
from onnxtool.quantization.algorithms.float_fusions import FUSIONS, fuse_floats
from onnxtool.quantization.apply_recipe import placement_of
from onnxtool.quantization.recipe import Fusions, NodePlan
from onnxtool.quantization.search.evaluator import CandidateEvaluator, Trial

CLEARLY_FASTER = 0.985  # what a change must gain to be kept: above the noise of a quick timing
_CLEARLY_SLOWER = 1.1  # what a change must cost for it not to be tried on another candidate
_GATES = ("Sigmoid", "HardSigmoid")


def without_gates(lab: CandidateEvaluator, trial: Trial, in_time: Callable[[], bool]) -> Trial:
    """Activations like SiLU in float: a table look-up and a product on integers can take longer than a fused one."""
    placement = placement_of(lab.conditions.model(trial.recipe).graph, trial.recipe)
    gates = tuple(n.name or "" for n in placement.carried if n.op_type in _GATES)
    if not gates or not in_time():
        return trial
    recipe = replace(trial.recipe, exclude=(*trial.recipe.exclude, *gates))
    return min(trial, lab.try_out(f"{trial.name}, activations float", recipe), key=lambda t: t.speed)


def with_attention(
    lab: CandidateEvaluator,
    trial: Trial,
    products: Sequence[ir.Node],
    in_time: Callable[[], bool],
    costly: set[frozenset[str]],
) -> Trial:
    """Products of two activations on integers too; by far not every processor or length of input gains.

    `costly` has the changes that made another candidate clearly slower, which are not tried again; this adds to it.
    """
    names = frozenset(n.name or "" for n in products)
    if not products or names in costly or not in_time():
        return trial
    plan: dict[str, NodePlan] = {**(trial.recipe.plan or {}), **dict.fromkeys(sorted(names), "static")}
    tried = lab.try_out(f"{trial.name}, with attention", replace(trial.recipe, plan=plan))
    _note(tried, trial, names, costly)
    return tried if tried.speed < trial.speed * CLEARLY_FASTER else trial


def with_fusions(lab: CandidateEvaluator, trial: Trial, in_time: Callable[[], bool]) -> Trial:
    """What stays float as the runtime's own fused operators; some of them are slower than their parts."""
    best, fused = trial, 0
    for fusions in FUSIONS if lab.estimate is None and not trial.recipe.fuse else ():
        if not _fusable(lab.job.prepared, fusions) or not in_time():
            continue
        try:
            found = fuse_floats(lab.build(trial.recipe), fusions)
        except OnnxToolError:  # of a fusion that this model breaks
            continue
        if found <= fused:
            continue
        fused = found
        tried = lab.try_out(f"{trial.name}, {fusions} fused", replace(trial.recipe, fuse=fusions))
        if tried.speed < best.speed * CLEARLY_FASTER:
            best = tried
    return best


def _fusable(prepared: ir.Model, fusions: Fusions) -> bool:
    """True when the float model has something to fuse: much quicker to see than in a candidate."""
    try:
        return fuse_floats(prepared.clone(), fusions) > 0
    except OnnxToolError:
        return False


def without_groups(
    lab: CandidateEvaluator,
    trial: Trial,
    groups: Sequence[tuple[str, set[str]]],
    in_time: Callable[[], bool],
    costly: set[frozenset[str]],
) -> Trial:
    """Groups of nodes in float, one by one; what is clearly faster is kept. `costly` is as of `with_attention`.

    Layers of the same shapes gain or lose alike: once one group of them has lost, another is not tried.
    """
    best = trial
    nodes = {n.name or "": n for n in lab.job.prepared.graph}
    alike: set[frozenset[tuple[str, tuple[int, ...]]]] = set()
    for label, group in groups:
        plan = dict(best.recipe.plan or {})
        left = {k: v for k, v in plan.items() if k not in group}
        put_back = frozenset(plan.keys() - left.keys())
        shapes = frozenset(_shape(nodes[name]) for name in put_back if name in nodes)
        if not put_back or not left or put_back in costly or shapes in alike or not in_time():
            continue
        tried = lab.try_out(f"{best.name}, {label} float", replace(best.recipe, plan=left))
        _note(tried, best, put_back, costly)
        if put_back in costly:
            alike.add(shapes)
        if tried.speed < best.speed * CLEARLY_FASTER:
            best = tried
    return best


def _shape(node: ir.Node) -> tuple[str, tuple[int, ...]]:
    """What a node's kernel is chosen by, next to: its operator and the shape of its weights."""
    weight = float_constant(node.inputs[1]) if len(node.inputs) > 1 else None
    return node.op_type, () if weight is None else weight.shape


def _note(tried: Trial, before: Trial, changed: frozenset[str], costly: set[frozenset[str]]) -> None:
    lowest = tried.latency.low if tried.latency is not None else tried.estimate
    if lowest is not None and lowest > _CLEARLY_SLOWER * before.speed:
        costly.add(changed)
