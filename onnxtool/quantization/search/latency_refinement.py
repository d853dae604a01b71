"""`auto`: what a candidate should do otherwise to be faster, found by trying."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from onnxtool.model.ir.queries import float_constant
from onnxtool.quantization.apply_recipe import placement_of
from onnxtool.quantization.recipe import Fusions, NodePlan
from onnxtool.quantization.search.evaluator import CandidateEvaluator, RecipeTrial
from onnxtool.quantization.search.node_cost import STRETCH

CLEARLY_FASTER = 0.985  # what a change must gain to be kept: above the noise of a quick timing
_CLEARLY_SLOWER = 1.03  # what a change must cost for it not to be tried on another candidate
_Shape = tuple[str, tuple[int, ...], float]
_GATES = ("Sigmoid", "HardSigmoid")


def without_gates(evaluator: CandidateEvaluator, trial: RecipeTrial, in_time: Callable[[], bool]) -> RecipeTrial:
    """Activations like SiLU in float: a table look-up and a product on integers can take longer than a fused one."""
    placement = placement_of(evaluator.conditions.model(trial.recipe).graph, trial.recipe)
    gates = tuple(n.name or "" for n in placement.carried if n.op_type in _GATES)
    if not gates or not in_time():
        return trial
    recipe = replace(trial.recipe, exclude=(*trial.recipe.exclude, *gates))
    return min(trial, evaluator.try_out(f"{trial.name}, activations float", recipe), key=lambda t: t.speed)


def with_attention(
    evaluator: CandidateEvaluator,
    trial: RecipeTrial,
    products: Sequence[ir.Node],
    in_time: Callable[[], bool],
    costly: set[frozenset[str]],
) -> RecipeTrial:
    """Products of two activations on integers too; by far not every processor or length of input gains.

    `costly` has the changes that made another candidate clearly slower, which are not tried again; this adds to it.
    """
    names = frozenset(n.name or "" for n in products)
    if not products or names in costly or not in_time():
        return trial
    plan: dict[str, NodePlan] = {**(trial.recipe.plan or {}), **dict.fromkeys(sorted(names), "static")}
    tried = evaluator.try_out(f"{trial.name}, with attention", replace(trial.recipe, plan=plan))
    _note(tried, trial, names, costly)
    return tried if tried.speed < trial.speed * CLEARLY_FASTER else trial


def with_fusions(
    evaluator: CandidateEvaluator,
    trial: RecipeTrial,
    in_time: Callable[[], bool],
    choices: Sequence[Fusions] | None = None,
) -> RecipeTrial:
    """What stays float as the runtime's own fused operators; some of them are slower than their parts."""
    tried = [trial]
    if evaluator.times and not trial.recipe.fuse:
        for fusions in evaluator.fusable if choices is None else choices:
            if in_time():
                recipe = replace(trial.recipe, fuse=fusions)
                tried.append(evaluator.try_out(f"{trial.name}, {fusions} fused", recipe))
    fastest = min(tried, key=lambda t: t.speed)
    return fastest if fastest.speed < trial.speed * CLEARLY_FASTER else trial


def without_groups(
    evaluator: CandidateEvaluator,
    trial: RecipeTrial,
    groups: Sequence[tuple[str, set[str]]],
    in_time: Callable[[], bool],
    costly: set[frozenset[str]],
    cost: Mapping[str, float],
) -> RecipeTrial:
    """Groups of nodes in float, one by one; what is clearly faster is kept. `costly` is as of `with_attention`.

    Layers of the same shapes gain or lose alike: once one group of them has lost, another is not tried, and neither is
    a stretch of the graph whose layers are all found outside of it too. `cost` has multiply-accumulates by node name.
    """
    best = trial
    nodes = {n.name or "": n for n in evaluator.job.prepared.graph}
    alike: set[frozenset[_Shape]] = set()
    for label, group in groups:
        plan = dict(best.recipe.plan or {})
        left = {k: v for k, v in plan.items() if k not in group}
        put_back = frozenset(plan.keys() - left.keys())
        shapes = frozenset(_shape(nodes[name], cost) for name in put_back if name in nodes)
        outside = {_shape(nodes[name], cost) for name in left if name in nodes}
        usual = label.startswith(STRETCH) and shapes <= outside
        if not put_back or not left or put_back in costly or shapes in alike or usual or not in_time():
            continue
        tried = evaluator.try_out(f"{best.name}, {label} float", replace(best.recipe, plan=left))
        _note(tried, best, put_back, costly)
        if put_back in costly:
            alike.add(shapes)
        if tried.speed < best.speed * CLEARLY_FASTER:
            best = tried
    return best


def _shape(node: ir.Node, cost: Mapping[str, float]) -> _Shape:
    """What a node's time goes by, next to: its operator, the shape of its weights, and how often these are used."""
    weight = float_constant(node.inputs[1]) if len(node.inputs) > 1 else None
    return node.op_type, () if weight is None else weight.shape, cost.get(node.name or "", 0.0)


def _note(tried: RecipeTrial, before: RecipeTrial, changed: frozenset[str], costly: set[frozenset[str]]) -> None:
    lowest = tried.latency.low if tried.latency is not None else tried.estimate
    if lowest is not None and lowest > _CLEARLY_SLOWER * before.speed:
        costly.add(changed)
