"""Bundles in the form of OpenAI's API: /v1/models, /v1/completions and /v1/chat/completions, streamed or whole."""

from __future__ import annotations

import asyncio
import json
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxtool.errors import InputError, UsageError
from onnxtool.generation.bundle import Bundle
from onnxtool.generation.decoder import Decoder
from onnxtool.generation.generate import TextStream, continue_tokens
from onnxtool.generation.proof import PROMPTS, TEXTS
from onnxtool.generation.sampling import Sampler, Sampling
from onnxtool.generation.tokenizer import BundleTokenizer
from onnxtool.generation.verify import BUNDLE_RTOL, follow
from onnxtool.options.serve import Reload, ServeOptions
from onnxtool.runtime.protocol_v2.tensors import load_json
from onnxtool.runtime.session.session import SessionOptions
from onnxtool.serving.admission import Signature
from onnxtool.serving.app import Answer, App, Request, json_answer
from onnxtool.serving.body import ClientGoneError
from onnxtool.serving.faults import HttpError
from onnxtool.serving.metrics import Metrics
from onnxtool.serving.reload import load_at_rest
from onnxtool.serving.targets import Target

_EVENTS = ((b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache"))
_FINISH = {"end of text": "stop", "stop text": "stop", "max tokens": "length", "context": "length"}
_TRIAL_SECONDS = 600
_MAX_STOPS = 16


@dataclass(frozen=True)
class _Ask:
    """What a client wants."""

    ids: np.ndarray
    max_tokens: int
    sampling: Sampling
    stop: tuple[str, ...]
    stream: bool
    chat: bool
    usage: bool


class _Loaded:
    """A bundle in memory: what a request begins with, it ends with."""

    def __init__(self, target: Target, session: SessionOptions) -> None:
        self.bundle = Bundle.open(target.path)
        _try_alone(target)
        self.tokenizer = BundleTokenizer(self.bundle.folder)
        self.decoder = Decoder(self.bundle, session, generates=True)


class _ServedBundle:
    """One bundle: its decoder has one cache, so texts are generated one after the other."""

    def __init__(self, target: Target, session: SessionOptions) -> None:
        self.target = target
        self.loaded, self.signature = load_at_rest(target, lambda: _Loaded(target, session))
        self.refused: Signature | None = None
        self.turn = asyncio.Lock()
        self.waiting = 0


class ChatRoutes:
    """The routes of bundles; `add_to` an application."""

    def __init__(self, targets: Sequence[Target], options: ServeOptions, metrics: Metrics) -> None:
        """Load the bundles.

        Raises:
            OnnxToolError: one of them cannot be served.
        """
        self._options, self._metrics = options, metrics
        self._bundles = {t.name: _ServedBundle(t, options.session) for t in targets}

    def add_to(self, app: App) -> None:
        """Register every route."""
        app.route("GET", "/v1/models", self._models)
        app.route("POST", "/v1/completions", self._completions)
        app.route("POST", "/v1/chat/completions", self._chat)

    def all(self) -> list[_ServedBundle]:
        """Every bundle."""
        return list(self._bundles.values())

    async def replace(self, served: _ServedBundle) -> _Loaded:
        """Serve what a bundle's folder holds now, if it passes; gives what was served before.

        Raises:
            OnnxToolError: it does not.
        """
        target, session = served.target, self._options.session
        new, signature = await asyncio.to_thread(load_at_rest, target, lambda: _Loaded(target, session))
        async with served.turn:  # the decoder that is served has one cache, which the comparison needs
            await asyncio.to_thread(_succeed, served.loaded, new, self._options.reload)
            old, served.loaded, served.signature = served.loaded, new, signature
        return old

    async def end(self, old: _Loaded) -> None:
        """Nothing has to be closed: it goes with the last request that holds it."""

    async def _models(self, _: Request) -> Answer:
        made = [{"id": name, "object": "model", "created": 0, "owned_by": "onnxtool"} for name in self._bundles]
        return json_answer({"object": "list", "data": made})

    async def _completions(self, request: Request) -> Answer:
        body = await self._read(request)
        served = self._find(body)
        prompt = body.get("prompt")
        if not isinstance(prompt, str) or not prompt:
            raise InputError("'prompt' must be a text.")
        loaded = served.loaded
        ids = await asyncio.to_thread(loaded.tokenizer.encode, prompt)
        return await self._generate(request, served, loaded, _asked(body, ids, chat=False, usual=16))

    async def _chat(self, request: Request) -> Answer:
        body = await self._read(request)
        served = self._find(body)
        messages = _messages(body.get("messages"))
        loaded = served.loaded
        text = await asyncio.to_thread(loaded.tokenizer.chat, messages)
        ids = await asyncio.to_thread(lambda: loaded.tokenizer.encode(text, special=False))
        return await self._generate(request, served, loaded, _asked(body, ids, chat=True, usual=256))

    async def _read(self, request: Request) -> dict[str, Any]:
        body = await request.body()
        if len(body) > self._options.limits.json_bytes:
            raise HttpError(413, "too_large", f"a request has at most {self._options.limits.json_bytes} bytes of JSON.")
        return load_json(body)

    def _find(self, body: dict[str, Any]) -> _ServedBundle:
        name = body.get("model")
        if name is None and len(self._bundles) == 1:
            return next(iter(self._bundles.values()))
        if not isinstance(name, str) or name not in self._bundles:
            raise HttpError(404, "unknown_model", f"no model {str(name)[:100]!r}; there is {', '.join(self._bundles)}.")
        return self._bundles[name]

    async def _generate(self, request: Request, served: _ServedBundle, loaded: _Loaded, ask: _Ask) -> Answer:
        context = loaded.bundle.context
        if not 0 < ask.ids.size < context:
            raise InputError(f"the prompt has {ask.ids.size} tokens; it must have at least 1 and fewer than {context}.")
        if served.waiting >= self._options.limits.queue:
            raise HttpError(429, "queue_full", "too many requests wait; try again.", ((b"retry-after", b"1"),))
        served.waiting += 1
        try:
            await asyncio.wait_for(served.turn.acquire(), self._options.limits.run_seconds)
        except TimeoutError:
            raise HttpError(504, "timeout", "the requests before this one took too long.") from None
        finally:
            served.waiting -= 1
        identity = ("chatcmpl-" if ask.chat else "cmpl-") + secrets.token_hex(12)
        writer = _Writer(identity, served.target.name, ask)
        if ask.stream:
            return Answer(
                [], headers=_EVENTS, stream=lambda write: self._stream(request, served, loaded, ask, writer, write)
            )
        try:
            text, tokens, ended = await self._run(request, served.target, loaded, ask, None)
        finally:
            served.turn.release()
        return json_answer(writer.whole(text, tokens, ended))

    async def _stream(
        self,
        request: Request,
        served: _ServedBundle,
        loaded: _Loaded,
        ask: _Ask,
        writer: _Writer,
        write: Callable[[bytes], Awaitable[None]],
    ) -> None:
        pieces: asyncio.Queue[str] = asyncio.Queue()
        try:
            work = asyncio.ensure_future(self._run(request, served.target, loaded, ask, pieces))
            if ask.chat:
                await write(writer.event({"role": "assistant", "content": ""}))
            while not work.done() or not pieces.empty():
                waiting = asyncio.ensure_future(pieces.get())
                await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
                if not waiting.done():
                    waiting.cancel()
                    continue
                await write(writer.event(waiting.result()))
            try:
                _, tokens, ended = await work
            except ClientGoneError:
                return
            except Exception:
                await write(writer.fault())
                return
            await write(writer.last(tokens, ended))
        finally:
            served.turn.release()

    async def _run(
        self, request: Request, target: Target, loaded: _Loaded, ask: _Ask, pieces: asyncio.Queue[str] | None
    ) -> tuple[str, int, str]:
        """Generate on a thread; ends early when the client goes."""
        loop, gone = asyncio.get_running_loop(), threading.Event()

        def show(piece: str) -> None:
            if pieces is not None and piece:
                loop.call_soon_threadsafe(pieces.put_nowait, piece)

        def work() -> tuple[str, int, str]:
            stream = TextStream(loaded.tokenizer, ask.stop, show)
            tokens, ended, _ = continue_tokens(
                loaded.decoder,
                ask.ids,
                ask.max_tokens,
                Sampler(ask.sampling),
                lambda token: gone.is_set() or stream.add(token) is not None,
            )
            return stream.finish(), len(tokens), ended

        async def watch() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            gone.set()

        watcher = asyncio.ensure_future(watch())
        began = time.perf_counter()
        try:
            found = await asyncio.to_thread(work)
        finally:
            watcher.cancel()
            labels = (target.name, target.version)
            self._metrics.inference.labels(*labels).observe(time.perf_counter() - began)
        if gone.is_set():
            raise ClientGoneError
        return found


class _Writer:
    """Puts texts into the objects of OpenAI's API."""

    def __init__(self, identity: str, model: str, ask: _Ask) -> None:
        kind = "chat.completion" if ask.chat else "text_completion"
        self._ask = ask
        self._whole = {"id": identity, "object": kind, "created": int(time.time()), "model": model}
        self._part = self._whole | ({"object": "chat.completion.chunk"} if ask.chat else {})

    def whole(self, text: str, tokens: int, ended: str) -> dict[str, Any]:
        """The whole answer."""
        said = {"message": {"role": "assistant", "content": text}} if self._ask.chat else {"text": text}
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": _FINISH[ended]}
        return {**self._whole, "choices": [choice], "usage": self._usage(tokens)}

    def event(self, piece: str | dict[str, str]) -> bytes:
        """A part of the answer as a server-sent event."""
        said: dict[str, Any] = {"delta": {"content": piece} if isinstance(piece, str) else piece}
        choice = {"index": 0, **(said if self._ask.chat else {"text": piece}), "finish_reason": None}
        return _event({**self._part, "choices": [choice]})

    def last(self, tokens: int, ended: str) -> bytes:
        """The end: why, how many tokens where that was asked for, and the mark."""
        said: dict[str, Any] = {"delta": {}} if self._ask.chat else {"text": ""}
        end = _event({**self._part, "choices": [{"index": 0, **said, "finish_reason": _FINISH[ended]}]})
        usage = _event({**self._part, "choices": [], "usage": self._usage(tokens)}) if self._ask.usage else b""
        return end + usage + b"data: [DONE]\n\n"

    def fault(self) -> bytes:
        """What a client is told when the model fails in the middle of a text."""
        return _event({"error": {"message": "the server failed on this request.", "type": "server_error"}})

    def _usage(self, tokens: int) -> dict[str, int]:
        prompt = int(self._ask.ids.size)
        return {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _messages(found: Any) -> list[dict[str, str]]:
    if not isinstance(found, list) or not found:
        raise InputError("'messages' must be a list of objects with 'role' and 'content'.")
    messages = []
    for entry in found:
        content = entry.get("content") if isinstance(entry, dict) else None
        if isinstance(content, list):  # the form with parts
            texts = [p["text"] for p in content if isinstance(p, dict) and isinstance(p.get("text"), str)]
            content = "".join(texts) if len(texts) == len(content) else None
        if not isinstance(entry, dict) or not isinstance(entry.get("role"), str) or not isinstance(content, str):
            raise InputError("every message must have a 'role' and a 'content' of text.")
        messages.append({"role": entry["role"], "content": content})
    return messages


def _asked(body: dict[str, Any], ids: np.ndarray, *, chat: bool, usual: int) -> _Ask:
    if body.get("n", 1) != 1:
        raise InputError("'n' other than 1 is not supported.")
    stop = body.get("stop") or []
    stop = [stop] if isinstance(stop, str) else stop
    if not isinstance(stop, list) or len(stop) > _MAX_STOPS or not all(isinstance(s, str) for s in stop):
        raise InputError(f"'stop' must be a text or a list of at most {_MAX_STOPS}.")
    tokens = body.get("max_completion_tokens", body.get("max_tokens")) or usual
    seed = body.get("seed")
    seed = secrets.randbits(32) if seed is None else seed
    if type(tokens) is not int or tokens < 1 or type(seed) is not int or seed < 0:
        raise InputError("'max_tokens' and 'seed' must be whole numbers.")
    numbers = {name: body.get(name) for name in ("temperature", "top_p")}
    if any(v is not None and type(v) not in (int, float) for v in numbers.values()):
        raise InputError("'temperature' and 'top_p' must be numbers.")
    temperature = 1.0 if numbers["temperature"] is None else float(numbers["temperature"])
    top_p = 1.0 if numbers["top_p"] is None else float(numbers["top_p"])
    try:
        sampling = Sampling(temperature=temperature, top_k=0, top_p=top_p, seed=seed)
    except UsageError as error:
        raise InputError(str(error)) from error
    options = body.get("stream_options")
    usage = isinstance(options, dict) and bool(options.get("include_usage"))
    return _Ask(ids, tokens, sampling, tuple(stop), bool(body.get("stream")), chat, usage)


def _succeed(old: _Loaded, new: _Loaded, rule: Reload) -> None:
    """Hold a new bundle against the one that it is to replace.

    Raises:
        InputError: another vocabulary, a shorter context or no template for chats any more; where equality is asked
            for, other tokens or logits on the prompts that bundles are compared on.
    """
    folder = new.bundle.folder
    if new.bundle.vocabulary != old.bundle.vocabulary or new.bundle.context < old.bundle.context:
        raise InputError(f"{folder}: has another vocabulary or a shorter context than the bundle that is served.")
    if old.tokenizer.chat_template is not None and new.tokenizer.chat_template is None:
        raise InputError(f"{folder}: has no chat template, which the bundle that is served has.")
    if rule != "equal":
        return
    advice = "A bundle that is meant to differ needs --reload interface."
    same = all(np.array_equal(old.tokenizer.encode(text), new.tokenizer.encode(text)) for text in TEXTS)
    same = same and old.tokenizer.chat_template == new.tokenizer.chat_template and old.bundle.eos == new.bundle.eos
    if not same:
        raise InputError(f"{folder}: has another tokenizer, chat template or end of text than what is served. {advice}")
    for prompt in PROMPTS:
        found = follow(old.decoder, new.decoder, old.tokenizer.encode(prompt))
        if not found.within(BUNDLE_RTOL):
            raise InputError(
                f"{folder}: gives other answers than the bundle that is served: {found.equal} of {found.tokens} tokens "
                f"are equal, and logits are off by {found.error:.2g} of the largest. {advice}"
            )


def _try_alone(target: Target) -> None:
    """Generate a token in a process of its own, where a malformed bundle can crash or hang alone."""
    command = [sys.executable, "-m", "onnxtool", "run", str(target.path), "--prompt", "a", "--max-tokens", "1", "-q"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TRIAL_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise InputError(f"{target.path}: one token took longer than {_TRIAL_SECONDS} s.") from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        said = lines[-1].removeprefix("error: ") if lines else f"exit code {done.returncode}"
        raise InputError(f"{target.path}: does not generate: {said[:300]}")
