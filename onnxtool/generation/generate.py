"""Continue a prompt, token by token, and give the text as it comes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from onnxtool.errors import InputError, UsageError
from onnxtool.generation.bundle import Bundle
from onnxtool.generation.decoder import Decoder
from onnxtool.generation.sampling import Sampler, Sampling
from onnxtool.generation.tokenizer import BundleTokenizer, Message
from onnxtool.report.bundle.inspect import GenerateReport
from onnxtool.runtime.session.session import SessionOptions

_MANY = 32  # tokens, from which on it pays to prepare the memory
_UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # a token may end in the middle of a character


def generate(
    folder: str | Path,
    *,
    prompt: str | None = None,
    messages: Sequence[Message] = (),
    max_tokens: int = 128,
    sampling: Sampling = Sampling(),  # noqa: B008  (frozen)
    stop: Sequence[str] = (),
    threads: int | None = None,
    adapter: Path | None = None,
    write: Callable[[str], None] | None = None,
) -> GenerateReport:
    """Continue a text, or answer in a chat.

    Args:
        folder: a bundle.
        prompt: the text to continue.
        messages: a chat to answer in, in place of the prompt.
        max_tokens: the most new tokens.
        sampling: how tokens are chosen.
        stop: texts at which the answer ends; they are not part of it.
        threads: of the runtime; None for all cores.
        adapter: an .onnx_adapter file, whose weights are added (see `convert --separate-adapter`).
        write: called with each new piece of text as soon as it is certain, at the end with an empty one.

    Raises:
        InputError: not a sound bundle, or a prompt that is longer than its context.
        UsageError: neither a prompt nor messages, or both.
    """
    if (prompt is None) == (not messages):
        raise UsageError("run BUNDLE takes --prompt TEXT or --chat TEXT.")
    bundle = Bundle.open(folder)
    tokenizer = BundleTokenizer(bundle.folder)
    text = tokenizer.chat(messages) if prompt is None else prompt
    # A chat template writes the special tokens itself.
    ids = tokenizer.encode(text, special=prompt is not None)
    if ids.size == 0:
        raise InputError("the prompt has no tokens.")
    _verify_room(bundle, ids)
    began = time.perf_counter()
    session = SessionOptions(threads=threads, spinning="always")
    decoder = Decoder(bundle, session, generates=max_tokens > _MANY, adapter=adapter)
    loaded = time.perf_counter()
    stream = TextStream(tokenizer, stop, write or (lambda _: None))
    tokens, ended, first = continue_tokens(
        decoder, ids, max_tokens, Sampler(sampling), lambda token: stream.add(token) is not None
    )
    text = stream.finish()
    now = time.perf_counter()
    return GenerateReport(
        bundle=str(folder),
        prompt_tokens=int(ids.size),
        tokens=tuple(tokens),
        text=text,
        ended=ended,
        load_seconds=loaded - began,
        first_token_seconds=first,
        tokens_per_second=(len(tokens) - 1) / (now - loaded - first) if len(tokens) > 1 else 0.0,
    )


def continue_tokens(
    decoder: Decoder,
    prompt: np.ndarray,
    max_tokens: int,
    sampler: Sampler,
    stopped: Callable[[int], bool] = lambda _: False,
) -> tuple[list[int], str, float]:
    """New tokens after a prompt.

    Args:
        decoder: its cache is emptied first.
        prompt: token ids.
        max_tokens: the most new tokens.
        sampler: chooses.
        stopped: called with each new token; True ends the answer.

    Returns:
        The tokens (without the one that ends the text), why they ended ("end of text", "stop text", "max tokens" or
        "context"), and the seconds until the first token.
    """
    context = decoder.bundle.context
    decoder.start(min(context, len(prompt) + max_tokens))
    began = time.perf_counter()
    logits = decoder.run(prompt)[-1]
    first = 0.0
    tokens: list[int] = []
    for index in range(max_tokens):
        token = sampler.next(logits)
        first = first or time.perf_counter() - began
        if token in decoder.bundle.eos:
            return tokens, "end of text", first
        tokens.append(token)
        if stopped(token):
            return tokens, "stop text", first
        if len(prompt) + index + 1 >= context:
            return tokens, "context", first
        if index + 1 < max_tokens:
            logits = decoder.run(np.asarray([token]))[-1]
    return tokens, "max tokens", first


class TextStream:
    """Turns tokens into text as they come; holds back what may still change or become a stop text."""

    def __init__(self, tokenizer: BundleTokenizer, stop: Sequence[str], write: Callable[[str], None]) -> None:
        self._tokenizer, self._write = tokenizer, write
        self._stop = [s for s in stop if s]
        self._tokens: list[int] = []
        self._text = ""
        self._written = 0
        self._ended = False

    def add(self, token: int) -> str | None:
        """Take a token; gives the stop text that has been reached, None as long as there is none."""
        self._tokens.append(token)
        self._text = self._tokenizer.decode(self._tokens)
        found = [(self._text.find(s), s) for s in self._stop if s in self._text]
        if found:
            self._text, stop = self._text[: min(found)[0]], min(found)[1]
            self._ended = True
            self._show(len(self._text))
            return stop
        if not self._text.endswith(_UNFINISHED):
            self._show(len(self._text) - self._held())
        return None

    def finish(self) -> str:
        """Write what was held back, and an empty piece for the end; the whole text."""
        self._show(len(self._text))
        self._write("")
        return self._text

    def _show(self, end: int) -> None:
        if end > self._written:
            self._write(self._text[self._written : end])
            self._written = end

    def _held(self) -> int:
        """Characters at the end that a stop text may begin with."""
        longest = 0
        for stop in self._stop:
            for length in range(min(len(stop) - 1, len(self._text)), longest, -1):
                if self._text.endswith(stop[:length]):
                    longest = length
                    break
        return longest


def _verify_room(bundle: Bundle, ids: np.ndarray) -> None:
    if ids.size >= bundle.context:
        raise InputError(f"{bundle.folder}: the prompt has {ids.size} tokens, its context {bundle.context}.")
    if int(ids.max()) >= bundle.vocabulary:
        raise InputError(f"{bundle.folder}: its tokenizer gives token {ids.max()}, its model has {bundle.vocabulary}.")
