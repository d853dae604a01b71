"""What converting a language model gives: a bundle and its proof."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from onnxtool.report.base import Report


@dataclass(frozen=True)
class PromptProof:
    """A prompt that the bundle continues greedily, or a text that it reads, judged by the source.

    Attributes:
        prompt_tokens: its length.
        tokens: how many tokens after it were compared.
        equal: how many of them are the source's choice.
        undecided: how many others the source's own logits cannot tell apart within the tolerance.
        prefill_error: largest difference of the logits of one pass without a cache, as a share of the source's largest
            logit.
        step_error: likewise of single steps with the cache.
        chunk_error: likewise of a second pass of several tokens on top of a cache.
        cache_error: largest difference between single steps and passes of several tokens, as the same share.
    """

    prompt_tokens: int
    tokens: int
    equal: int
    undecided: int
    prefill_error: float
    step_error: float
    chunk_error: float
    cache_error: float

    def within(self, rtol: float) -> bool:
        """All tokens equal, all logits within the tolerance."""
        errors = (self.prefill_error, self.step_error, self.chunk_error, self.cache_error)
        return self.equal + self.undecided == self.tokens and all(e <= rtol for e in errors)


@dataclass(frozen=True)
class TextProof:
    """Tokenizer, chat template and end of text, held against the source's.

    Attributes:
        texts: how many texts were turned into tokens and back.
        chats: how many chats went through the template; 0 where there is none.
        eos: ids of the tokens that end a text.
        faults: what differs.
    """

    texts: int
    chats: int
    eos: tuple[int, ...]
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class RuntimeProof:
    """The same prompt in the onnxruntime-genai runtime, which servers and phones use.

    Attributes:
        tokens: how many new tokens were compared.
        equal: how many are the same.
        ended: both ended at the same place.
        fault: why it did not run; "" when it did.
    """

    tokens: int
    equal: int
    ended: bool
    fault: str = ""

    @property
    def ok(self) -> bool:
        """It ran, and gave the same."""
        return not self.fault and self.tokens == self.equal and self.ended


@dataclass(frozen=True)
class Perplexity:
    """How well a model predicts a text.

    Attributes:
        text: which one.
        tokens: how many were predicted.
        value: exp of the mean negative log-likelihood.
        low, high: its 95 % interval, from the spread between windows of the text.
    """

    text: str
    tokens: int
    value: float
    low: float
    high: float


@dataclass(frozen=True, repr=False)
class BundleReport(Report, kind="bundle"):
    """A language model turned into a bundle that generates.

    Attributes:
        source: the folder or GGUF file.
        output: where the bundle is, or would have been.
        framework: framework and version of the reference.
        architecture: the class that the source names.
        builder: what built the graph.
        refused: what other builders said.
        layers, heads, kv_heads, head_size, vocabulary, context: of the decoder.
        size_bytes: of the bundle; 0 when it was not written.
        rtol: tolerance of the logits, as a share of the largest.
        prompts: the proof, prompt by prompt.
        text: the proof of the tokenizer and the chat template.
        runtime: the proof in the onnxruntime-genai runtime.
        perplexity: of the bundle; None where it was not asked for.
        notes: what was done that the user did not ask for in so many words.
        warnings: what may surprise.
        seconds: time for each stage.
        written: the bundle is there.
    """

    source: str
    output: str
    framework: str
    architecture: str
    builder: str
    refused: tuple[str, ...]
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    context: int
    size_bytes: int
    rtol: float
    prompts: tuple[PromptProof, ...]
    text: TextProof
    runtime: RuntimeProof | None
    perplexity: Perplexity | None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    written: bool = False

    @property
    def ok(self) -> bool:
        """The bundle was found equal, and written."""
        return self.written
