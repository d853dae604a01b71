"""The language model of this folder in the form of OpenAI's API: /v1/completions and /v1/chat/completions.

uvicorn app:app
"""

import asyncio
import json
import os
import threading
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime_genai as og
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST, Counter, Gauge, generate_latest
from protocol import (
    ChatRequest,
    ChatWriter,
    InputError,
    TextStream,
    loads,
    read_messages,
    read_prompt,
    read_request,
    verify_options,
    verify_room,
)
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.requests import ClientDisconnect
from tokenizers import Tokenizer

NAME = "model"
FOLDER = Path(__file__).with_name("model")
MAX_WAITING = int(os.environ.get("MAX_WAITING", "16"))  # more are refused with 429
MAX_BYTES = int(os.environ.get("MAX_BYTES", str(1 << 20)))  # of one request

og.disable_telemetry_events()
model = og.Model(str(FOLDER))
templates = og.Tokenizer(model)
tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
CONFIG = json.loads((FOLDER / "genai_config.json").read_text())["model"]
CONTEXT, VOCABULARY = int(CONFIG["context_length"]), int(CONFIG["vocab_size"])
ENDS = set(templates.eos_token_ids)
turn = threading.Lock()  # one text at a time: it uses all cores
app = FastAPI(title=NAME)

TOKENS = Counter("generated_tokens", "New tokens.")
REQUESTS = Counter("requests", "Requests.", ["status"])
PENDING = Gauge("requests_pending", "Requests that wait or generate.")
pending: set[str] = set()
PENDING.set_function(lambda: len(pending))


def refusal(status: int, message: str, param: str | None = None) -> JSONResponse:
    """An error in the form of OpenAI's API."""
    kind = "rate_limit_error" if status == 429 else "server_error" if status >= 500 else "invalid_request_error"
    REQUESTS.labels(str(status)).inc()
    later = {"Retry-After": "1"} if status == 429 else None
    return JSONResponse({"error": {"message": message, "type": kind, "param": param, "code": None}}, status, later)


@app.exception_handler(AnyHTTPException)
@app.exception_handler(InputError)
@app.exception_handler(ClientDisconnect)
@app.exception_handler(Exception)
async def refuse(_: Request, error: Exception) -> JSONResponse:
    if isinstance(error, AnyHTTPException):
        return refusal(error.status_code, str(error.detail))
    if isinstance(error, InputError):
        return refusal(400, str(error), getattr(error, "param", None))
    if isinstance(error, ClientDisconnect):
        return refusal(499, "the client has left")
    return refusal(500, "the server failed on this request")


async def read(request: Request) -> dict[str, Any]:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BYTES:
            raise HTTPException(413, f"a request has at most {MAX_BYTES} bytes")
    try:
        found = loads(bytes(body))
    except (ValueError, RecursionError) as error:
        raise InputError(f"not valid JSON ({str(error)[:100]})") from None
    if not isinstance(found, dict):
        raise InputError("the JSON must be an object")
    return found


def generate(ask: ChatRequest, gone: threading.Event, show: Callable[[str], None]) -> dict[str, Any]:
    """The text, the number of its tokens, and why it ended; earlier when the client has gone."""
    stream, tokens, ended = TextStream(tokenizer, ask.stop, show), 0, "max tokens"
    how = ask.sampling
    search: dict[str, Any] = {"max_length": min(CONTEXT, len(ask.ids) + ask.max_tokens), "repetition_penalty": 1.0}
    search["do_sample"] = how.temperature > 0
    if how.temperature > 0:
        seed = how.seed % (1 << 31)
        search |= {"temperature": how.temperature, "top_p": how.top_p, "top_k": 0, "random_seed": seed}
    parameters = og.GeneratorParams(model)
    parameters.set_search_options(**search)
    with turn:
        generator = og.Generator(model, parameters)
        generator.append_tokens(ask.ids.tolist())
        while tokens < ask.max_tokens and not generator.is_done() and not gone.is_set():
            generator.generate_next_token()
            token = int(generator.get_next_tokens()[0])
            if token in ENDS:
                ended = "end of text"
                break
            TOKENS.inc()
            tokens += 1
            if stream.add(token) is not None:
                ended = "stop text"
                break
    return {"text": stream.finish(), "tokens": tokens, "ended": ended}


async def answer(body: dict[str, Any], chat: bool) -> Response:
    verify_options(body, chat=chat)
    if body.get("model") not in (None, NAME):
        return refusal(404, f"no model of this name; there is {NAME}.", "model")
    if chat:
        text = templates.apply_chat_template(json.dumps(read_messages(body)), add_generation_prompt=True)
    else:
        text = read_prompt(body)
    ids = np.asarray(tokenizer.encode(text, add_special_tokens=not chat).ids, np.int64)
    ask = read_request(body, ids, chat=chat)
    verify_room(ask, CONTEXT, VOCABULARY)
    if len(pending) > MAX_WAITING:
        return refusal(429, "too many requests wait")
    writer, name, gone = ChatWriter(NAME, ask), uuid.uuid4().hex, threading.Event()
    pending.add(name)
    REQUESTS.labels("200").inc()
    if ask.stream:
        return StreamingResponse(events(ask, writer, name, gone), media_type="text/event-stream")
    try:
        found = await asyncio.to_thread(generate, ask, gone, lambda _: None)
        return Response(json.dumps(writer.whole(found)), media_type="application/json")
    finally:
        gone.set()
        pending.discard(name)


async def events(ask: ChatRequest, writer: ChatWriter, name: str, gone: threading.Event) -> AsyncIterator[bytes]:
    loop, pieces = asyncio.get_running_loop(), asyncio.Queue[str | None]()

    def show(piece: str) -> None:
        loop.call_soon_threadsafe(pieces.put_nowait, piece)

    work = loop.run_in_executor(None, generate, ask, gone, show)
    work.add_done_callback(lambda _: pieces.put_nowait(None))
    try:
        if ask.chat:
            yield writer.event({"role": "assistant", "content": ""})
        while (piece := await pieces.get()) is not None:
            if piece:
                yield writer.event(piece)
        yield writer.last(await work)
    finally:
        gone.set()
        pending.discard(name)


@app.post("/v1/completions")
async def completions(request: Request) -> Response:
    return await answer(await read(request), chat=False)


@app.post("/v1/chat/completions")
async def chat_completions(request: Request) -> Response:
    return await answer(await read(request), chat=True)


@app.get("/v1/models")
def models() -> dict[str, Any]:
    return {"object": "list", "data": [{"id": NAME, "object": "model", "created": 0, "owned_by": "you"}]}


@app.get("/v2/health/live")
@app.get("/v2/health/ready")
def ready() -> dict[str, bool]:
    return {"ready": True}


@app.get("/metrics")
def metrics() -> Response:
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
