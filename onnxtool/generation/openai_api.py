"""OpenAI's API: what a client asks for, and the form of its answer. What would change the answer and is not there is
refused, not left out.

`serve` uses it, and the endpoint that `package` writes for a bundle has a copy: it needs numpy alone.
"""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from onnxtool.errors import InputError, UsageError
from onnxtool.generation.sampling import Sampling

_MAX_STOPS = 16
_BOTH = frozenset({"model", "max_tokens", "stop", "seed", "temperature", "top_p", "stream", "stream_options"})
_COMPLETION = _BOTH | {"prompt"}
_CHAT = _BOTH | {"messages", "max_completion_tokens"}
# They are about the account or the place of the service, and change no answer.
_IDLE = frozenset(
    {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "parallel_tool_calls"}
)
# What is not there, with the values that ask for nothing (null is always one). Libraries of clients send these.
_NEUTRAL: Mapping[str, Sequence[Any]] = MappingProxyType(
    {
        "n": (1,),
        "best_of": (1,),
        "presence_penalty": (0,),
        "frequency_penalty": (0,),
        "repetition_penalty": (1,),
        "logit_bias": ({},),
        "logprobs": (False,),
        "top_logprobs": (0,),
        "echo": (False,),
        "suffix": ("",),
        "tools": ([],),
        "tool_choice": ("none",),
        "functions": ([],),
        "function_call": ("none",),
        "response_format": ({"type": "text"},),
        "modalities": (["text"],),
    }
)

_FINISH = {"end of text": "stop", "stop text": "stop", "max tokens": "length", "context": "length"}


@dataclass(frozen=True)
class ChatRequest:
    """What a client wants.

    Attributes:
        ids: of the prompt's tokens.
        max_tokens: the most new ones; 0 for no text.
        sampling: how tokens are chosen.
        stop: texts at which the answer ends.
        stream: the text as it comes.
        chat: it is a chat's, else a completion's.
        usage: a stream ends with the number of tokens.
    """

    ids: np.ndarray
    max_tokens: int
    sampling: Sampling
    stop: tuple[str, ...]
    stream: bool
    chat: bool
    usage: bool


class RequestError(InputError):
    """One option of a request is not in order.

    Attributes:
        param: its name.
    """

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


def verify_options(body: Mapping[str, Any], *, chat: bool) -> None:
    """Every option of a request is one that is there, or asks for nothing.

    Raises:
        RequestError, the first that is neither.
    """
    known = _CHAT if chat else _COMPLETION
    for name, value in body.items():
        if value is None or name in known or name in _IDLE:
            continue
        if name not in _NEUTRAL:
            raise RequestError(name[:100], f"there is no option {name[:100]!r}; there is {', '.join(sorted(known))}.")
        if not _is_one_of(value, _NEUTRAL[name]):
            raise RequestError(name, f"{name!r} is not supported: leave it out.")


def _is_one_of(value: Any, neutral: Collection[Any]) -> bool:
    """JSON's true is not its 1."""
    return any(value == n and isinstance(value, bool) == isinstance(n, bool) for n in neutral)


def read_prompt(body: Mapping[str, Any]) -> str:
    """The text to continue.

    Raises:
        RequestError.
    """
    prompt = body.get("prompt")
    if not isinstance(prompt, str) or not prompt:
        raise RequestError("prompt", "'prompt' must be a text.")
    return prompt


def read_messages(body: Mapping[str, Any]) -> list[dict[str, str]]:
    """The chat to answer in.

    Raises:
        RequestError; also for what a message holds beside texts (calls of tools, pictures, names).
    """
    found = body.get("messages")
    if not isinstance(found, list) or not found:
        raise RequestError("messages", "'messages' must be a list of objects with 'role' and 'content'.")
    messages = []
    for entry in found:
        content = entry.get("content") if isinstance(entry, dict) else None
        if isinstance(content, list):  # the form with parts
            texts = [p["text"] for p in content if _is_text_part(p)]
            content = "".join(texts) if len(texts) == len(content) else None
        if not isinstance(entry, dict) or not isinstance(entry.get("role"), str) or not isinstance(content, str):
            raise RequestError("messages", "every message must have a 'role' and a 'content' of text.")
        other = [name for name, value in entry.items() if value is not None and name not in ("role", "content")]
        if other:
            raise RequestError("messages", f"{other[0][:100]!r} of a message is not supported: leave it out.")
        messages.append({"role": entry["role"], "content": content})
    return messages


def _is_text_part(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type", "text") == "text" and isinstance(part.get("text"), str)


def read_request(body: Mapping[str, Any], ids: np.ndarray, *, chat: bool) -> ChatRequest:
    """The options of a request that `verify_options` has passed.

    Args:
        body: of the request.
        ids: tokens of its prompt.
        chat: it is a chat's.

    Raises:
        RequestError, a value that an option does not have.
    """
    stop = body.get("stop") or []
    stop = [stop] if isinstance(stop, str) else stop
    if not isinstance(stop, list) or len(stop) > _MAX_STOPS or not all(isinstance(s, str) for s in stop):
        raise RequestError("stop", f"'stop' must be a text or a list of at most {_MAX_STOPS}.")
    limit = "max_tokens" if body.get("max_completion_tokens") is None else "max_completion_tokens"
    seed = _whole(body, "seed")
    tokens = _whole(body, limit)
    options = body.get("stream_options")
    if options is not None and (not isinstance(options, dict) or set(options) - {"include_usage"}):
        raise RequestError("stream_options", "'stream_options' must be an object with 'include_usage' alone.")
    return ChatRequest(
        ids=ids,
        max_tokens=(256 if chat else 16) if tokens is None else tokens,
        sampling=_sampling(body, secrets.randbits(32) if seed is None else seed),
        stop=tuple(stop),
        stream=_truth(body, "stream"),
        chat=chat,
        usage=_truth(options or {}, "include_usage"),
    )


def _sampling(body: Mapping[str, Any], seed: int) -> Sampling:
    values = {}
    for name in ("temperature", "top_p"):
        value = body.get(name)
        if value is not None and (type(value) not in (int, float) or not math.isfinite(value)):
            raise RequestError(name, f"{name!r} must be a number.")
        values[name] = 1.0 if value is None else float(value)
    try:
        return Sampling(top_k=0, seed=seed, **values)
    except UsageError as error:
        raise RequestError("temperature" if values["temperature"] < 0 else "top_p", str(error)) from error


def _whole(body: Mapping[str, Any], name: str) -> int | None:
    value = body.get(name)
    if value is not None and (type(value) is not int or value < 0):
        raise RequestError(name, f"{name!r} must be a whole number, 0 or more.")
    return value


def _truth(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is not None and type(value) is not bool:
        raise RequestError(name, f"{name!r} must be true or false.")
    return bool(value)


def verify_room(ask: ChatRequest, context: int, vocabulary: int) -> None:
    """Hold a prompt against a model.

    Raises:
        RequestError: no tokens, more than its context has room for, or some that it does not know.
    """
    param = "messages" if ask.chat else "prompt"
    if not 0 < ask.ids.size < context:
        size = f"the prompt has {ask.ids.size} tokens; it must have at least 1 and fewer than {context}."
        raise RequestError(param, size)
    if int(ask.ids.max()) >= vocabulary:
        raise RequestError(param, f"the model has no token {ask.ids.max()}.")


class ChatWriter:
    """Puts texts into the objects of OpenAI's API."""

    def __init__(self, model: str, ask: ChatRequest) -> None:
        identity = ("chatcmpl-" if ask.chat else "cmpl-") + secrets.token_hex(12)
        kind = "chat.completion" if ask.chat else "text_completion"
        self._ask, self.chat = ask, ask.chat
        self._whole = {"id": identity, "object": kind, "created": int(time.time()), "model": model}
        self._part = self._whole | ({"object": "chat.completion.chunk"} if ask.chat else {})

    def whole(self, found: dict[str, Any]) -> dict[str, Any]:
        """The whole answer.

        Args:
            found: {"text": str, "tokens": their number, "ended": why, as of `continue_tokens`}.
        """
        text = found["text"]
        said = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": _FINISH[found["ended"]]}
        return {**self._whole, "choices": [choice], "usage": self._usage(found["tokens"])}

    def event(self, piece: str | dict[str, str]) -> bytes:
        """A part of the answer as a server-sent event."""
        said: dict[str, Any] = {"delta": {"content": piece} if isinstance(piece, str) else piece}
        choice = {"index": 0, **(said if self.chat else {"text": piece}), "finish_reason": None}
        return server_event({**self._part, "choices": [choice]})

    def last(self, found: dict[str, Any]) -> bytes:
        """The end: why, how many tokens where that was asked for, and the mark."""
        said: dict[str, Any] = {"delta": {}} if self.chat else {"text": ""}
        end = server_event({**self._part, "choices": [{"index": 0, **said, "finish_reason": _FINISH[found["ended"]]}]})
        usage = (
            server_event({**self._part, "choices": [], "usage": self._usage(found["tokens"])})
            if self._ask.usage
            else b""
        )
        return end + usage + b"data: [DONE]\n\n"

    def _usage(self, tokens: int) -> dict[str, int]:
        prompt = int(self._ask.ids.size)
        return {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}


def server_event(value: dict[str, Any]) -> bytes:
    """A server-sent event."""
    return b"data: " + json.dumps(value).encode() + b"\n\n"
