"""Which token comes next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxtool.errors import UsageError


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen.

    Attributes:
        temperature: divides the logits; 0 always takes the most probable token.
        top_k: of how many most probable tokens one is taken; 0 for all.
        top_p: of the fewest most probable tokens that have this probability together.
        seed: of the random choice.
    """

    temperature: float = 0.0
    top_k: int = 50
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.temperature >= 0 or not 0 < self.top_p <= 1 or self.top_k < 0:
            raise UsageError("a temperature is 0 or more, top-p above 0 and at most 1, top-k 0 or more.")


class Sampler:
    """Chooses tokens, one after the other, from one stream of random numbers."""

    def __init__(self, how: Sampling) -> None:
        self._how = how
        self._random = np.random.default_rng(how.seed)

    def next(self, logits: np.ndarray) -> int:
        """A token id from float32 logits [vocabulary]; of equal ones the first."""
        if self._how.temperature == 0:
            return int(np.argmax(logits))
        values = np.asarray(logits, np.float64) / self._how.temperature
        order = np.argsort(-values, kind="stable")
        if self._how.top_k:
            order = order[: self._how.top_k]
        chances = np.exp(values[order] - values[order[0]])
        chances /= chances.sum()
        # The first tokens whose chances together reach top_p; the one that reaches it is among them.
        count = int(np.searchsorted(np.cumsum(chances), self._how.top_p * (1 - 1e-12))) + 1
        chances = chances[:count] / chances[:count].sum()
        return int(order[self._random.choice(len(chances), p=chances)])
