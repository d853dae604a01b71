"""Numbers that no size of the data need explain: constants of formulas, roots of the width, what people write."""

from __future__ import annotations

from dataclasses import dataclass
from math import e, log, pi, sqrt

WRITTEN_DIGITS = 4  # of a number that somebody wrote: 0.1307, 1.702, 0.0625
_FORMULAS = (
    sqrt(2), 1 / sqrt(2), sqrt(2 / pi), sqrt(2 / pi) * 0.044715, 2 * sqrt(2 / pi), 0.044715, pi, 2 * pi, 1 / pi, pi / 2,
    pi / 180, e, log(2), 1 / log(2), log(10), 1 / log(10), 10 / log(10), 20 / log(10), 1 / 3, 2 / 3, 1 / 6, 1 / 255,
    2 / 255, 1 / 127.5, 1 / 256, 1 / 128, 1 / 32768, 1.6732632423543772, 1.0507009873554805,
)  # fmt: skip


@dataclass(frozen=True)
class OrdinaryNumbers:
    """What a graph explains by itself.

    Attributes:
        lengths: sizes that become dynamic.
        kept: sizes that stay, of all tensors.
        limits: numbers that something is clipped at: Relu6, HardSwish.
    """

    lengths: frozenset[int]
    kept: frozenset[int]
    limits: frozenset[float]

    def explains(self, number: float, close: float, *, scales: bool) -> bool:
        """Whether a float has a reason that is more likely than a size which becomes dynamic.

        Args:
            number: not zero.
            close: how far off rounding may have it, relative.
            scales: something is multiplied with it; by 3 to 6 nothing is without a limit of that size.
        """
        size = abs(number)
        own = [factor / part for n in self.lengths for part in (n, n - 1) if part for factor in (1, 2, pi)]
        own += [log(n) ** power for n in self.lengths if n > 1 for power in (1, -1)]
        own += [n**power for n in self.lengths if scales for power in (0.5, -0.5)]
        if any(abs(size - known) <= close * known for known in own):
            return False
        small = size < 1 or size == 2 or (size <= 6 and not scales) or size in self.limits
        if small and digits_of(size, close) == 1:
            return True
        if any(abs(size - log(2**n)) <= close * size for n in range(1, 11) if 2**n not in self.lengths):
            return True  # buckets of distances
        widths = {float(n) for n in self.kept - self.lengths if n > 1}
        powers = (w**power for w in widths for power in (0.5, -0.5, 0.25, -0.25))
        return any(abs(size - known) <= close * known for known in (*_FORMULAS, *powers))


def digits_of(number: float, close: float) -> int:
    """Digits of the shortest decimal that a number may be: 2 for 0.025; one more than a person writes, at most."""
    for digits in range(1, WRITTEN_DIGITS + 1):
        if abs(float(f"{number:.{digits}g}") - number) <= close * abs(number) / 4:
            return digits
    return WRITTEN_DIGITS + 1


def is_share(step: float, count: int) -> bool:
    """Whether a step is likelier a share of where so many of them end: 0.5 of 10 for 20 places."""
    return step % 1 != 0 and any(digits_of(step * n, 1e-6) <= digits_of(step, 1e-6) for n in (count - 1, count))
