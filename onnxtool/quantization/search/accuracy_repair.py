"""Which candidates that break the accuracy budget are worth the search for the nodes that cost it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import onnx_ir as ir

from onnxtool.quantization.evaluation.fidelity import noise_share
from onnxtool.quantization.search.accuracy_refinement import LESS_NOISE
from onnxtool.quantization.search.evaluator import CandidateEvaluator, RecipeTrial
from onnxtool.quantization.search.sensitivity import repair

_WORTH_REPAIRING = 2
_STILL_FASTER = 0.93  # of the winner's latency: nodes that go back to float take some of what is gained


class AccuracyRepairs:
    """Nodes of a few candidates are put back to float; what one repair has shown is not looked for again."""

    def __init__(
        self, evaluator: CandidateEvaluator, nodes: Sequence[ir.Node], is_within: Callable[[RecipeTrial], bool]
    ) -> None:
        """Repair what does not keep the budget; `nodes` are the compute nodes, for what they cost."""
        self.evaluator, self.nodes, self.is_within = evaluator, nodes, is_within
        self.done: list[tuple[RecipeTrial, RecipeTrial | None]] = []  # and what each repair came to

    def of_the_fastest(self, fastest: Callable[[], Iterator[RecipeTrial]], in_time: Callable[[], bool]) -> None:
        """Bring the fastest that break the budget back within it, as long as they could still win.

        Args:
            fastest: all that could be repaired, the fastest first.
            in_time: candidates may still be tried.
        """
        for _ in range(_WORTH_REPAIRING):
            trial = self._next(fastest())
            if trial is None or not in_time():
                return
            # Measuring must leave time to try what it tells.
            measuring = self.evaluator.clock.first_half("repair")
            self.done.append((trial, repair(self.evaluator, trial, self.is_within, in_time, self.nodes, measuring)))

    def of_noisy(self, fastest: Iterable[RecipeTrial], in_time: Callable[[], bool]) -> None:
        """Very noisy candidates that are faster than float: few nodes may be what makes them so (one recurrent layer
        whose states run away, say).
        """
        known = [trial for trial, _ in self.done]
        noisy = [t for t in fastest if t.speed < 1.0 and t not in known and len(t.recipe.plan or {}) > 1]
        for trial in [t for t in noisy if not self.is_within(t)][:_WORTH_REPAIRING]:
            if not in_time() or repair(self.evaluator, trial, self.is_within, in_time, self.nodes) is not None:
                return

    def _next(self, fastest: Iterator[RecipeTrial]) -> RecipeTrial | None:
        """The fastest that breaks the budget, unless one within it is about as fast; slower ones are not judged."""
        chosen = None
        for trial in fastest:
            if chosen is not None and chosen.speed < _STILL_FASTER * trial.speed:
                break
            if self.is_within(trial):
                return None
            if chosen is None and not self._would_end_alike(trial):
                chosen = trial
        return chosen

    def _would_end_alike(self, trial: RecipeTrial) -> bool:
        """True where a repair is known that this one's would come to.

        That of one as fast and about as accurate, with its nodes on the same integers as far as both have them on
        integers: the same nodes would have to go back to float. Or that of one as fast which ended with nodes in
        float, among them all that this one has in float.
        """
        plan = trial.recipe.plan or {}
        for known, repaired in self.done:
            if known.integers == trial.integers:
                return True
            if known.speed > trial.speed or known.first_look is None or trial.first_look is None:
                continue
            same = all(plan.get(name, how) == how for name, how in (known.recipe.plan or {}).items())
            if same and noise_share(trial.first_look) >= LESS_NOISE * noise_share(known.first_look):
                return True
            if repaired is not None and (repaired.recipe.plan or {}).items() <= plan.items():
                return True
        return False
