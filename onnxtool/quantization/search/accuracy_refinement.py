"""`auto`: what costs a candidate no time: smoothing, equalization and bias correction, and smaller float weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from onnxtool.model import io
from onnxtool.quantization.algorithms.bias_correction import correctable
from onnxtool.quantization.algorithms.cross_layer_equalization import has_pairs
from onnxtool.quantization.algorithms.smooth_quant import LINEAR
from onnxtool.quantization.algorithms.weight_storage import compactable
from onnxtool.quantization.evaluation.fidelity import noise_share
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.quantization.search.evaluator import CandidateEvaluator, RecipeTrial
from onnxtool.quantization.search.latency_refinement import with_fusions
from onnxtool.runtime.session.ort_kernels import count_kernels

LESS_NOISE = 0.9  # what a change must bring the noise down to, to be kept
_MOST_BY_FUSING = 1.6  # the most that fused operators were seen to gain over the same floats apart
_TWICE = 2.0
_LITTLE = 0.1
_FINE_DB = 30.0  # from here on a smaller file is worth more
_NO_SLOWER = 1.05  # within the noise of a quick timing


def condition(
    evaluator: CandidateEvaluator,
    trial: RecipeTrial,
    is_within: Callable[[RecipeTrial], bool],
    in_time: Callable[[], bool],
    *,
    linear: bool = True,
) -> RecipeTrial:
    """Try what lessens a candidate's error at no cost in time, one after the other, and keep what does.

    Smoothing is for linear layers, and not worth a try unless there is something `linear` to speak of.

    Returns:
        The best of them; the candidate itself where nothing helps.
    """
    best, useless = trial, False
    for label, change in _changes(evaluator, trial.recipe, linear):
        if useless and "smooth" in change:
            continue  # a weaker one made it noisier
        if not in_time():
            break
        start = trial if "smooth" in change else best  # strengths of smoothing are alternatives
        tried = evaluator.try_out(f"{start.name}, {label}", replace(start.recipe, shifts=None, **change))
        if _better(tried, best, is_within):
            best = tried
        elif "smooth" in change and tried.fidelity is not None and trial.fidelity is not None:
            useless = noise_share(tried.fidelity) > noise_share(trial.fidelity)
    return best


def _better(tried: RecipeTrial, best: RecipeTrial, is_within: Callable[[RecipeTrial], bool]) -> bool:
    if tried.fidelity is None or best.fidelity is None or tried.speed > best.speed * _NO_SLOWER:
        return False
    if is_within(tried) != is_within(best):
        return is_within(tried)
    return noise_share(tried.fidelity) < LESS_NOISE * noise_share(best.fidelity)


def _changes(evaluator: CandidateEvaluator, recipe: QuantRecipe, linear: bool) -> list[tuple[str, dict[str, Any]]]:
    """What could help a recipe, given what it quantizes."""
    plan = recipe.plan or {}
    nodes = [n for n in evaluator.job.prepared.graph if n.name in plan]
    changes: list[tuple[str, dict[str, Any]]] = []
    if linear and not recipe.smooth and any(n.op_type in LINEAR for n in nodes):
        changes += [(f"smooth {alpha:g}", {"smooth": alpha}) for alpha in (0.5, 0.75)]
    if not recipe.equalize and has_pairs(evaluator.job.prepared.graph):
        changes.append(("equalized", {"equalize": True}))
    if not recipe.bias_correction and any(correctable(n) for n in nodes):
        changes.append(("bias-corrected", {"bias_correction": True}))
    return changes


def compacted(
    evaluator: CandidateEvaluator, winner: RecipeTrial, is_within: Callable[[RecipeTrial], bool]
) -> RecipeTrial:
    """The winner with the float weights that it has left in 8 or 16 bits, where kernels and budget stay."""
    if winner.recipe.compact or not evaluator.built(winner).spare:
        return winner
    kernels = count_kernels(evaluator.built(winner).model)
    for bits in (8, 16):
        recipe = replace(winner.recipe, compact=bits)
        tried = evaluator.try_out(f"{winner.name}, float weights in {bits} bits", recipe, timed=False)
        if (
            is_within(tried)
            and (bits == 16 or _as_accurate(tried, winner))
            and count_kernels(evaluator.built(tried).model) == kernels
        ):
            tried.latency, tried.estimate = winner.latency, winner.estimate  # the same kernels take the same time
            return tried
    return winner


def compacted_unjudged(evaluator: CandidateEvaluator, winner: RecipeTrial) -> RecipeTrial:
    """The same where there is no time to judge it: as far as float kernels with such weights have shown no noise.

    What rounding weights adds is a tenth of the winner's noise at most, by what the float model with all of its weights
    in 8 bits came to.
    """
    floats = next((t for t in evaluator.trials if t.recipe.plan == {} and t.recipe.compact == 8), None)
    if floats is not None:
        evaluator.look(floats)
    if (
        floats is None
        or not evaluator.likely(floats)
        or floats.fidelity is None
        or winner.fidelity is None
        or winner.recipe.compact
    ):
        return winner
    if noise_share(floats.fidelity) > _LITTLE * noise_share(winner.fidelity):
        return winner
    recipe = replace(winner.recipe, compact=8)
    model = evaluator.build(recipe)
    made = replace(winner, name=f"{winner.name}, float weights in 8 bits", recipe=recipe)
    made.bytes = len(io.to_bytes(model))
    evaluator.trials.append(made)
    return made if made.bytes < winner.bytes else winner


def _as_accurate(tried: RecipeTrial, winner: RecipeTrial) -> bool:
    """True where a smaller file costs no accuracy to speak of: what it adds is no more than what was there."""
    if tried.fidelity is None or winner.fidelity is None or tried.fidelity.channel_db >= _FINE_DB:
        return True
    return noise_share(tried.fidelity) <= _TWICE * noise_share(winner.fidelity)


def with_float_kernels(
    evaluator: CandidateEvaluator,
    base: QuantRecipe,
    is_within: Callable[[RecipeTrial], bool],
    in_time: Callable[[], bool],
    fastest: float = float("inf"),
) -> RecipeTrial | None:
    """The optimized float model, its weights stored in 8 or 16 bits: for where integers do not beat float.

    Its fused operators are tried where they could still beat the `fastest` within the budget.
    """
    if not compactable(evaluator.job.prepared.graph):
        return None
    for bits in (8, 16):
        tried = evaluator.try_out(f"float, weights in {bits} bits", replace(base, plan={}, compact=bits))
        if tried.speed >= _MOST_BY_FUSING * fastest:
            return None
        if is_within(tried):
            return with_fusions(evaluator, tried, in_time)
    return None
