"""What a client of OpenAI's API asks for. What would change the answer and is not there is refused, not left out."""

from __future__ import annotations

import math
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from onnxtool.errors import UsageError
from onnxtool.generation.sampling import Sampling
from onnxtool.serving.faults import HttpError

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


def refused(param: str, message: str) -> HttpError:
    """Status 400 for one option of a request."""
    return HttpError(400, "bad_request", message, param=param)


def verify_options(body: Mapping[str, Any], *, chat: bool) -> None:
    """Every option of a request is one that is there, or asks for nothing.

    Raises:
        HttpError: 400, the first that is neither.
    """
    known = _CHAT if chat else _COMPLETION
    for name, value in body.items():
        if value is None or name in known or name in _IDLE:
            continue
        if name not in _NEUTRAL:
            raise refused(name[:100], f"there is no option {name[:100]!r}; there is {', '.join(sorted(known))}.")
        if not _is_one_of(value, _NEUTRAL[name]):
            raise refused(name, f"{name!r} is not supported: leave it out.")


def _is_one_of(value: Any, neutral: Collection[Any]) -> bool:
    """JSON's true is not its 1."""
    return any(value == n and isinstance(value, bool) == isinstance(n, bool) for n in neutral)


def read_prompt(body: Mapping[str, Any]) -> str:
    """The text to continue.

    Raises:
        HttpError: 400.
    """
    prompt = body.get("prompt")
    if not isinstance(prompt, str) or not prompt:
        raise refused("prompt", "'prompt' must be a text.")
    return prompt


def read_messages(body: Mapping[str, Any]) -> list[dict[str, str]]:
    """The chat to answer in.

    Raises:
        HttpError: 400; also for what a message holds beside texts (calls of tools, pictures, names).
    """
    found = body.get("messages")
    if not isinstance(found, list) or not found:
        raise refused("messages", "'messages' must be a list of objects with 'role' and 'content'.")
    messages = []
    for entry in found:
        content = entry.get("content") if isinstance(entry, dict) else None
        if isinstance(content, list):  # the form with parts
            texts = [p["text"] for p in content if _is_text_part(p)]
            content = "".join(texts) if len(texts) == len(content) else None
        if not isinstance(entry, dict) or not isinstance(entry.get("role"), str) or not isinstance(content, str):
            raise refused("messages", "every message must have a 'role' and a 'content' of text.")
        other = [name for name, value in entry.items() if value is not None and name not in ("role", "content")]
        if other:
            raise refused("messages", f"{other[0][:100]!r} of a message is not supported: leave it out.")
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
        HttpError: 400, a value that an option does not have.
    """
    stop = body.get("stop") or []
    stop = [stop] if isinstance(stop, str) else stop
    if not isinstance(stop, list) or len(stop) > _MAX_STOPS or not all(isinstance(s, str) for s in stop):
        raise refused("stop", f"'stop' must be a text or a list of at most {_MAX_STOPS}.")
    limit = "max_tokens" if body.get("max_completion_tokens") is None else "max_completion_tokens"
    seed = _whole(body, "seed")
    tokens = _whole(body, limit)
    options = body.get("stream_options")
    if options is not None and (not isinstance(options, dict) or set(options) - {"include_usage"}):
        raise refused("stream_options", "'stream_options' must be an object with 'include_usage' alone.")
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
            raise refused(name, f"{name!r} must be a number.")
        values[name] = 1.0 if value is None else float(value)
    try:
        return Sampling(top_k=0, seed=seed, **values)
    except UsageError as error:
        raise refused("temperature" if values["temperature"] < 0 else "top_p", str(error)) from error


def _whole(body: Mapping[str, Any], name: str) -> int | None:
    value = body.get(name)
    if value is not None and (type(value) is not int or value < 0):
        raise refused(name, f"{name!r} must be a whole number, 0 or more.")
    return value


def _truth(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is not None and type(value) is not bool:
        raise refused(name, f"{name!r} must be true or false.")
    return bool(value)
