"""What continuing a prompt gives."""

from __future__ import annotations

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
