"""What comparing two bundles gives."""

from __future__ import annotations

from dataclasses import dataclass

from onnxtool.report.base import Report
from onnxtool.report.bundle.convert import Perplexity


@dataclass(frozen=True)
class PromptComparison:
    """One prompt, continued greedily by A and followed by B.

    Attributes:
        prompt_tokens: its length.
        tokens: how many new tokens were compared.
        equal: how many of them B chooses too.
        error: largest difference of the logits, as a share of A's largest.
    """

    prompt_tokens: int
    tokens: int
    equal: int
    error: float

    def within(self, rtol: float) -> bool:
        """All tokens equal, the logits within the tolerance."""
        return self.equal == self.tokens and self.error <= rtol


@dataclass(frozen=True, repr=False)
class BundleCompareReport(Report, kind="bundle_compare"):
    """Two bundles beside one another.

    Attributes:
        a, b: the folders.
        rtol: tolerance of the logits, as a share of the largest.
        prompts: each of them.
        perplexities: of A and of B, on the same text.
        ratio: B's perplexity as a multiple of A's, and its 95 % interval.
    """

    a: str
    b: str
    rtol: float
    prompts: tuple[PromptComparison, ...]
    perplexities: tuple[Perplexity, Perplexity]
    ratio: tuple[float, float, float]

    @property
    def ok(self) -> bool:
        """All tokens equal, all logits within the tolerance."""
        return all(p.within(self.rtol) for p in self.prompts)
