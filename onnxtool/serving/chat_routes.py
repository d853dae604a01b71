"""Bundles in the form of OpenAI's API: /v1/models, /v1/completions and /v1/chat/completions, streamed or whole."""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np

from onnxtool.errors import InputError
from onnxtool.generation.bundle import Bundle
from onnxtool.generation.decoder import Decoder
from onnxtool.generation.generate import TextStream, continue_tokens
from onnxtool.generation.proof import PROMPTS, TEXTS
from onnxtool.generation.sampling import Sampler
from onnxtool.generation.tokenizer import BundleTokenizer
from onnxtool.generation.verify import BUNDLE_RTOL, follow
from onnxtool.options.serve import Reload, ServeOptions
from onnxtool.runtime.protocol_v2.tensors import load_json
from onnxtool.runtime.session.session import SessionOptions
from onnxtool.serving.admission import Signature, failure, run_command
from onnxtool.serving.app import Answer, App, Request, json_answer
from onnxtool.serving.body import ClientGoneError
from onnxtool.serving.chat_requests import (
    ChatRequest,
    read_messages,
    read_prompt,
    read_request,
    refused,
    verify_options,
)
from onnxtool.serving.faults import HttpError, as_http, openai_error
from onnxtool.serving.metrics import Metrics
from onnxtool.serving.reload import load_at_rest
from onnxtool.serving.targets import ServeTarget

_EVENTS = ((b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache"))
_FINISH = {"end of text": "stop", "stop text": "stop", "max tokens": "length", "context": "length"}


class _Loaded:
    """A bundle in memory: what a request begins with, it ends with."""

    def __init__(self, target: ServeTarget, session: SessionOptions) -> None:
        self.bundle = Bundle.open(target.path)
        _try_alone(target)
        self.tokenizer = BundleTokenizer(self.bundle.folder)
        self.decoder = Decoder(self.bundle, session, generates=True)


class _ServedBundle:
    """One bundle: its decoder has one cache, so texts are generated one after the other."""

    def __init__(self, target: ServeTarget, session: SessionOptions) -> None:
        self.target = target
        self.loaded, self.signature = load_at_rest(target, lambda: _Loaded(target, session))
        self.refused: Signature | None = None
        self.turn = asyncio.Lock()
        self.waiting = 0


class ChatRoutes:
    """The routes of bundles; `add_to` an application."""

    def __init__(self, targets: Sequence[ServeTarget], options: ServeOptions, metrics: Metrics) -> None:
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
        verify_options(body, chat=False)
        served, prompt = self._find(body), read_prompt(body)
        loaded = served.loaded
        ids = await asyncio.to_thread(loaded.tokenizer.encode, prompt)
        return await self._generate(request, served, loaded, read_request(body, ids, chat=False))

    async def _chat(self, request: Request) -> Answer:
        body = await self._read(request)
        verify_options(body, chat=True)
        served, messages = self._find(body), read_messages(body)
        loaded = served.loaded
        text = await asyncio.to_thread(loaded.tokenizer.chat, messages)
        ids = await asyncio.to_thread(lambda: loaded.tokenizer.encode(text, special=False))
        return await self._generate(request, served, loaded, read_request(body, ids, chat=True))

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
            known = ", ".join(self._bundles)
            raise HttpError(404, "unknown_model", f"no model {str(name)[:100]!r}; there is {known}.", param="model")
        return self._bundles[name]

    async def _generate(self, request: Request, served: _ServedBundle, loaded: _Loaded, ask: ChatRequest) -> Answer:
        context = loaded.bundle.context
        if not 0 < ask.ids.size < context:
            size = f"the prompt has {ask.ids.size} tokens; it must have at least 1 and fewer than {context}."
            raise refused("messages" if ask.chat else "prompt", size)
        if served.waiting >= self._options.limits.queue:
            raise HttpError(429, "queue_full", "too many requests wait; try again.", ((b"retry-after", b"1"),))
        until = time.monotonic() + self._options.limits.run_seconds
        served.waiting += 1
        try:
            await take_turn(served.turn, request, until)
        finally:
            served.waiting -= 1
        identity = ("chatcmpl-" if ask.chat else "cmpl-") + secrets.token_hex(12)
        writer = _Writer(identity, served.target.name, ask)
        if ask.stream:
            return Answer(
                [],
                headers=_EVENTS,
                stream=lambda write: self._stream(request, served, loaded, ask, until, writer, write),
            )
        try:
            text, tokens, ended = await self._run(request, served.target, loaded, ask, until, None)
        finally:
            served.turn.release()
        return json_answer(writer.whole(text, tokens, ended))

    async def _stream(
        self,
        request: Request,
        served: _ServedBundle,
        loaded: _Loaded,
        ask: ChatRequest,
        until: float,
        writer: _Writer,
        write: Callable[[bytes], Awaitable[None]],
    ) -> None:
        pieces: asyncio.Queue[str] = asyncio.Queue()
        work = asyncio.ensure_future(self._run(request, served.target, loaded, ask, until, pieces))
        try:
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
            except Exception as error:
                await write(_event(openai_error(as_http(error))))
                return
            await write(writer.last(tokens, ended))
        finally:
            # The decoder has one cache: the next text begins when this one has ended, however that was.
            await asyncio.gather(work, return_exceptions=True)
            served.turn.release()

    async def _run(
        self,
        request: Request,
        target: ServeTarget,
        loaded: _Loaded,
        ask: ChatRequest,
        until: float,
        pieces: asyncio.Queue[str] | None,
    ) -> tuple[str, int, str]:
        """Generate on a thread; ends early, between two tokens, when the client goes or the time is over."""
        loop, gone, late = asyncio.get_running_loop(), threading.Event(), threading.Event()

        def show(piece: str) -> None:
            if pieces is not None and piece:
                loop.call_soon_threadsafe(pieces.put_nowait, piece)

        def work() -> tuple[str, int, str]:
            if ask.max_tokens == 0:
                return "", 0, "max tokens"
            stream = TextStream(loaded.tokenizer, ask.stop, show)

            def ends(token: int) -> bool:
                if time.monotonic() > until:
                    late.set()
                return gone.is_set() or late.is_set() or stream.add(token) is not None

            tokens, ended, _ = continue_tokens(
                loaded.decoder,
                ask.ids,
                ask.max_tokens,
                Sampler(ask.sampling),
                ends,
            )
            return stream.finish(), len(tokens), ended

        watcher = asyncio.ensure_future(_client_gone(request))
        watcher.add_done_callback(lambda found: None if found.cancelled() else gone.set())
        began = time.perf_counter()
        try:
            found = await asyncio.to_thread(work)
        finally:
            watcher.cancel()
            labels = (target.name, target.version)
            self._metrics.inference.labels(*labels).observe(time.perf_counter() - began)
        if gone.is_set():
            raise ClientGoneError
        if late.is_set():
            seconds = self._options.limits.run_seconds
            raise HttpError(504, "timeout", f"the text was not complete within {seconds:g} s; ask for fewer tokens.")
        return found


async def take_turn(turn: asyncio.Lock, request: Request, until: float) -> None:
    """Wait for the lock; the caller then holds it.

    Raises:
        HttpError: 504, it was not free until then (of `time.monotonic`).
        ClientGoneError: the client has gone meanwhile.
    """
    own, left = asyncio.ensure_future(turn.acquire()), asyncio.ensure_future(_client_gone(request))
    try:
        seconds = max(0.0, until - time.monotonic())
        await asyncio.wait({own, left}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        own.add_done_callback(lambda found: None if found.cancelled() else turn.release())
        own.cancel()
        raise
    finally:
        left.cancel()
    if own.done():
        return
    own.cancel()
    if left.done():
        raise ClientGoneError
    raise HttpError(504, "timeout", "the requests before this one took too long.")


async def _client_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class _Writer:
    """Puts texts into the objects of OpenAI's API."""

    def __init__(self, identity: str, model: str, ask: ChatRequest) -> None:
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

    def _usage(self, tokens: int) -> dict[str, int]:
        prompt = int(self._ask.ids.size)
        return {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


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


def _try_alone(target: ServeTarget) -> None:
    """Generate a token in a process of its own, where a malformed bundle can crash or hang alone."""
    done, _ = run_command("run", str(target.path), "--prompt=a", "--max-tokens=1", options=SessionOptions())
    if done.returncode != 0:
        raise InputError(f"{target.path}: does not generate: {failure(done, {})}")
