"""`auto`: the float weights that a winner has left, stored in fewer bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from onnxtool.model import io
from onnxtool.quantization.evaluation.fidelity import noise_share
from onnxtool.quantization.search.evaluator import CandidateEvaluator, RecipeTrial

_JUDGED_AND_TIMED = 2  # candidates' worth of time
_TWICE = 2.0
_LITTLE = 0.1
_FINE_DB = 30.0  # from here on a smaller file is worth more


def compacted(
    evaluator: CandidateEvaluator, winner: RecipeTrial, is_within: Callable[[RecipeTrial], bool]
) -> RecipeTrial:
    """The winner with the float weights that it has left in 8 or 16 bits, where speed and budget stay."""
    if winner.recipe.compact or not evaluator.built(winner).spare:
        return winner
    for bits in (8, 16):
        if not evaluator.clock.allows("choice", "judging smaller float weights", _JUDGED_AND_TIMED):
            break
        recipe = replace(winner.recipe, compact=bits)
        tried = evaluator.try_out(f"{winner.name}, float weights in {bits} bits", recipe, timed=False)
        if is_within(tried) and (bits == 16 or _as_accurate(tried, winner)) and _as_fast(evaluator, tried, winner):
            return tried
    return winner


def _as_fast(evaluator: CandidateEvaluator, tried: RecipeTrial, winner: RecipeTrial) -> bool:
    """Whether it is not surely slower, timed in one alternation; the runtime makes such weights float when loading."""
    if winner.latency is None:
        tried.estimate = winner.estimate
        return True
    evaluator.time_again([winner, tried])
    return tried.latency is not None and tried.latency.low <= winner.latency.high


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
