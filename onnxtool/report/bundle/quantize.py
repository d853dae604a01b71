"""What quantizing a bundle gives."""

from __future__ import annotations

from dataclasses import dataclass

from onnxtool.report.base import Report
from onnxtool.report.bundle.convert import Perplexity, RuntimeProof


@dataclass(frozen=True)
class BundleCandidate:
    """One way to store the weights, measured.

    Attributes:
        plan: the formats, in words.
        bytes: of the model with its weights.
        ratio: its perplexity as a multiple of the float bundle's, on the same tokens.
        low, high: the 95 % interval of the ratio.
        tokens_per_second: of decoding one token after the other; 0 when it was dropped before timing.
        within_budget: the upper end of the interval and the size are within what was asked for.
        chosen: it is the one that was written.
        judged: the ratio is that on a text that did not choose between candidates.
    """

    plan: str
    bytes: int
    ratio: float
    low: float
    high: float
    tokens_per_second: float = 0.0
    within_budget: bool = False
    chosen: bool = False
    judged: bool = False


@dataclass(frozen=True)
class GroupSensitivity:
    """What 4 bits in one group of products cost.

    Attributes:
        group: the products, in words.
        weights: how many weights they have.
        loss: mean Kullback-Leibler divergence from the float bundle's predictions, in nats, on a part of the text.
    """

    group: str
    weights: int
    loss: float


@dataclass(frozen=True, repr=False)
class BundleQuantizeReport(Report, kind="bundle_quantize", version=2):
    """A bundle with its weights in 8 or 4 bits, within a budget of perplexity.

    Attributes:
        source: the float bundle.
        output: where the new one is, or would have been.
        mode: what was asked for.
        max_perplexity: by what share the perplexity may rise.
        max_bytes: the largest size of the model; None for any.
        bytes_before: of the float model with its weights.
        perplexity: of the float bundle, on the text that gave the verdict.
        tokens_per_second: of the float bundle, one token after the other.
        threads: of the runtime while that was measured.
        candidates: what was tried, in the order it was tried.
        sensitivities: of groups of products, the least sensitive first.
        agreement: share of greedy tokens that are the float bundle's, while both follow the float bundle's text.
        runtime: the chosen bundle in the onnxruntime-genai runtime; None where it is not installed.
        seconds: time taken for all of it.
        written: the bundle is there.
    """

    source: str
    output: str
    mode: str
    max_perplexity: float
    max_bytes: int | None
    bytes_before: int
    perplexity: Perplexity
    tokens_per_second: float
    threads: int | None
    candidates: tuple[BundleCandidate, ...]
    sensitivities: tuple[GroupSensitivity, ...] = ()
    agreement: float = 0.0
    runtime: RuntimeProof | None = None
    seconds: float = 0.0
    written: bool = False

    @property
    def ok(self) -> bool:
        """A bundle within the budget was written."""
        return self.written

    @property
    def chosen(self) -> BundleCandidate | None:
        """The candidate that was written."""
        return next((c for c in self.candidates if c.chosen), None)
