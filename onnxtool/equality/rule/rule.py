"""How a comparison judges: the tolerance, and what may be excused beyond it, each with its bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from onnxtool.equality.rule.noise import STEADIER
from onnxtool.equality.rule.rounding import FACTOR
from onnxtool.equality.rule.tolerance import MOST_HALF_STEPS, MOST_ROUNDING, NUMBERS, Tolerance


@dataclass(frozen=True)
class Excuse:
    """Why a difference beyond the tolerance may be no difference.

    Attributes:
        name: of the excuse.
        bound: the most that it can excuse. It is never taken from the model that is judged, and never infinite.
        reason: why; a line of docs/equality.md.
    """

    name: str
    bound: str
    reason: str


_MOST = f"{MOST_ROUNDING:.0%} of its column's scale; in half precision {MOST_HALF_STEPS} rounding steps"
ROUNDING = Excuse(
    "rounding of the reference",
    f"{FACTOR:g} times what other roundings move the reference in that column, and at most {_MOST}",
    "a deep network amplifies the last bit of its early layers; a reference that rounding moves further tells nothing",
)
TIES = Excuse(
    "ties",
    f"an index whose score is within 2 x {FACTOR:g} times the rounding of the scores (at most {_MOST}) of the "
    "chosen one",
    "which of two equal scores is the largest is decided by rounding, but for counts and comparisons, which nothing "
    "rounds; a source whose scores cannot be seen confirms it",
)
KERNEL_ERRORS = Excuse(
    "errors of the runtime's kernels",
    "of a framework model's file, where the same graph with exact kernels is within the tolerance, and "
    f"{MOST_ROUNDING:.0%} of the scale of the output's largest column on usual inputs; of two files, as rounding of "
    "the reference",
    "the runtime computes Sigmoid, Gelu and one plus Erf or Tanh to an absolute precision only; both are compared with "
    "what they are multiplied by in float64",
)
MASKED = Excuse(
    "masked positions",
    "positions that a mask leaves out, and rows of which it leaves nothing; no other element",
    "what stands at positions that a mask leaves out means nothing",
)
NOISE = Excuse(
    "noise beside further inputs",
    f"4 times what moves the column in both models when the inputs move by a few units in the last place (one of them "
    f"may be {STEADIER:g} times steadier), up to {_MOST}, an integer by one; beyond that only what each model gives, "
    "within the same bound, for inputs moved so",
    "where values are large, cancel, or lie next to a threshold, a model gives other results for inputs that are equal "
    "up to their last bits; what one model alone decides is no rounding",
)
EXCUSES = (KERNEL_ERRORS, ROUNDING, TIES, MASKED, NOISE)  # in the order in which they are asked


@dataclass(frozen=True)
class Rule:
    """How a comparison judges.

    Attributes:
        tolerance: for floats; everything else must be equal.
        tolerances: for single outputs, by their name in the reference: there nothing is excused.
        names: of the two models, for reports.
        top_k: how many largest elements of each row are held against each other.
        otherwise: the tolerance where equal numbers are asked for and the reference gives others each time.
    """

    tolerance: Tolerance = field(default_factory=Tolerance)
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    names: tuple[str, str] = ("A", "B")
    top_k: int = 5
    otherwise: Tolerance = field(default_factory=Tolerance)

    @property
    def is_exact(self) -> bool:
        """Whether floats have to be the same."""
        return self.tolerance.bits or self.tolerance == NUMBERS

    def relaxed(self) -> Rule:
        """Within the tolerance, where equal numbers were asked for."""
        return replace(self, tolerance=self.otherwise) if self.is_exact else self

    @property
    def excuses(self) -> tuple[Excuse, ...]:
        """What may be excused: nothing where floats have to be the same."""
        return () if self.is_exact else EXCUSES


def excuses_table() -> str:
    """The excuses as a Markdown table, for docs/equality.md."""
    rows = [f"| {e.name} | {e.bound} | {e.reason} |" for e in EXCUSES]
    return "\n".join(["| Excuse | At most | Why |", "|---|---|---|", *rows])
