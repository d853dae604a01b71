"""Bundles in the form of OpenAI's API: /v1/models, /v1/completions and /v1/chat/completions, streamed or whole."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from onnxtool.generation.openai_api import (
    ChatRequest,
    ChatWriter,
    read_messages,
    read_prompt,
    read_request,
    server_event,
    verify_options,
    verify_room,
)
from onnxtool.generation.text_process import TextTask
from onnxtool.options.serve import ServeOptions
from onnxtool.runtime.protocol_v2.tensors import load_json
from onnxtool.serving.admission import BundleTexts
from onnxtool.serving.app import Answer, App, Request, json_answer
from onnxtool.serving.body import ClientGoneError
from onnxtool.serving.faults import as_http, openai_error
from onnxtool.serving.repository import Repository, Served

_EVENTS = ((b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache"))
_Work = asyncio.Task[dict[str, Any]]


class ChatRoutes:
    """The routes of bundles; `add_to` an application."""

    def __init__(self, repository: Repository, options: ServeOptions) -> None:
        self._repository, self._options = repository, options

    def add_to(self, app: App) -> None:
        """Register every route."""
        self._tracing = app.tracing
        app.route("GET", "/v1/models", self._models)
        app.route("POST", "/v1/completions", partial(self._complete, chat=False))
        app.route("POST", "/v1/chat/completions", partial(self._complete, chat=True))

    async def _models(self, _: Request) -> Answer:
        names = self._repository.versions(texts=True)
        made = [{"id": name, "object": "model", "created": 0, "owned_by": "onnxtool"} for name in names]
        return json_answer({"object": "list", "data": made})

    async def _complete(self, request: Request, *, chat: bool) -> Answer:
        body = await request.body()
        request.limit_json(len(body))
        found = load_json(body)
        verify_options(found, chat=chat)
        name = found.get("model")
        with self._repository.use(None if name is None else str(name), texts=True) as served:
            assert served.texts is not None
            ask = await asyncio.to_thread(_read, found, served.texts, chat)
            writer = ChatWriter(served.target.name, ask)
            pieces: asyncio.Queue[str] = asyncio.Queue()
            work = self._begin(request, served, ask, pieces)
            if not ask.stream:
                return json_answer(writer.whole(await work))
            first = asyncio.ensure_future(pieces.get())
            await asyncio.wait({work, first}, return_when=asyncio.FIRST_COMPLETED)
            if not first.done():
                first.cancel()
                await work  # what fails before its first text has a status of its own
            start = first.result() if first.done() else ""
        return Answer([], headers=_EVENTS, stream=partial(_stream, work, pieces, writer, start))

    def _begin(self, request: Request, served: Served, ask: ChatRequest, pieces: asyncio.Queue[str]) -> _Work:
        """Begin a text; its parts go into the queue where they are asked for."""
        loop = asyncio.get_running_loop()

        def show(piece: str) -> None:
            loop.call_soon_threadsafe(pieces.put_nowait, piece)

        feeds = TextTask(ask.max_tokens, ask.sampling, ask.stop, ask.stream).feeds(ask.ids)
        seconds = (served.target.options or self._options).limits.run_seconds

        async def run() -> dict[str, Any]:
            with self._tracing.run(served.target.labels):
                return await served.engine.infer(feeds, seconds, request.when_gone, show if ask.stream else None)

        work = asyncio.ensure_future(run())
        work.add_done_callback(lambda done: done.cancelled() or done.exception())  # a client that left reads nothing
        return work


def _read(body: dict[str, Any], texts: BundleTexts, chat: bool) -> ChatRequest:
    """A request whose options have been verified, with its tokens.

    Raises:
        InputError: 400.
    """
    text = texts.tokenizer.chat(read_messages(body)) if chat else read_prompt(body)
    ask = read_request(body, texts.tokenizer.encode(text, special=not chat), chat=chat)
    verify_room(ask, texts.bundle.context, texts.bundle.vocabulary)
    return ask


async def _stream(
    work: _Work,
    pieces: asyncio.Queue[str],
    writer: ChatWriter,
    start: str,
    write: Callable[[bytes], Awaitable[None]],
) -> None:
    try:
        if writer.chat:
            await write(writer.event({"role": "assistant", "content": ""}))
        if start:
            await write(writer.event(start))
        while not work.done() or not pieces.empty():
            waiting = asyncio.ensure_future(pieces.get())
            await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                waiting.cancel()
            elif waiting.result():
                await write(writer.event(waiting.result()))
        await write(writer.last(work.result()))
    except ClientGoneError:
        pass
    except ConnectionError:
        raise
    except Exception as error:
        await write(server_event(openai_error(as_http(error))))
    finally:
        work.cancel()
