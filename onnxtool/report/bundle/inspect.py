"""What looking at a bundle gives, and what continuing a prompt with it gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnxtool.report.base import Report


@dataclass(frozen=True, repr=False)
class GenerateReport(Report, kind="generate"):
    """The answer of a bundle to one prompt.

    Attributes:
        bundle: the folder.
        prompt_tokens: tokens of the prompt, with what the chat template adds.
        tokens: ids of the new tokens, without the one that ends a text.
        text: their text.
        ended: why it ended: "end of text", "stop text", "max tokens" or "context".
        load_seconds: making the session.
        first_token_seconds: from the prompt to the first new token.
        tokens_per_second: of the tokens after the first; 0 when there is none.
    """

    bundle: str
    prompt_tokens: int
    tokens: tuple[int, ...]
    text: str
    ended: str
    load_seconds: float
    first_token_seconds: float
    tokens_per_second: float


@dataclass(frozen=True, repr=False)
class BundleInspectReport(Report, kind="bundle_inspect"):
    """A bundle's anatomy.

    Attributes:
        bundle: the folder.
        type: what its genai_config.json calls the kind of model.
        layers, heads, kv_heads, head_size, hidden_size, vocabulary, context: of the decoder.
        eos: ids of the tokens that end a text.
        chat_template: it has one.
        parameters: number of weights.
        weights: number of weights in each format ("float32", "int8", "int4").
        operators: number of nodes of each kind.
        model_bytes: of the model with its weights.
        cache_bytes_per_token: what one token adds to the keys and values of all layers.
        memory: context -> bytes of model and cache together.
    """

    bundle: str
    type: str
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    hidden_size: int
    vocabulary: int
    context: int
    eos: tuple[int, ...]
    chat_template: bool
    parameters: int
    weights: Mapping[str, int]
    operators: Mapping[str, int]
    model_bytes: int
    cache_bytes_per_token: int
    memory: Mapping[int, int]
