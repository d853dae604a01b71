"""The language model of this folder in the form of OpenAI's API: /v1/completions and /v1/chat/completions.

uvicorn app:app
"""

import asyncio
import json
import os
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnxruntime_genai as og
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST, Counter, Gauge, generate_latest
from tokenizers import Tokenizer

NAME = "model"
FOLDER = Path(__file__).with_name("model")
MAX_WAITING = int(os.environ.get("MAX_WAITING", "16"))  # more are refused with 429
MAX_BYTES = int(os.environ.get("MAX_BYTES", str(1 << 20)))  # of one request

og.disable_telemetry_events()
model = og.Model(str(FOLDER))
templates = og.Tokenizer(model)
tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
CONTEXT = int(json.loads((FOLDER / "genai_config.json").read_text())["model"]["context_length"])
turn = threading.Lock()  # one text at a time: it uses all cores
app = FastAPI(title=NAME)

TOKENS = Counter("generated_tokens", "New tokens.")
REQUESTS = Counter("requests", "Requests.", ["status"])
PENDING = Gauge("requests_pending", "Requests that wait or generate.")
pending: set[str] = set()
PENDING.set_function(lambda: len(pending))


def bad(message: str) -> HTTPException:
    return HTTPException(400, message)


async def read(request: Request) -> dict[str, Any]:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BYTES:
            raise HTTPException(413, f"a request has at most {MAX_BYTES} bytes")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise bad("not valid JSON") from None
    if not isinstance(found, dict):
        raise bad("the JSON must be an object")
    return found


def options(body: dict[str, Any], length: int, usual: int) -> dict[str, Any]:
    """What the generator is told. Sampling is on above temperature 0."""
    tokens = body.get("max_completion_tokens", body.get("max_tokens")) or usual
    temperature, top_p = body.get("temperature", 1.0), body.get("top_p", 1.0)
    numbers = all(type(n) in (int, float) for n in (temperature, top_p))
    if type(tokens) is not int or tokens < 1 or not numbers or temperature < 0 or not 0 < top_p <= 1:
        raise bad("max_tokens, temperature or top_p is out of range")
    if not 0 < length < CONTEXT:
        raise bad(f"the prompt has {length} tokens; it must have at least 1 and fewer than {CONTEXT}")
    found: dict[str, Any] = {"max_length": min(CONTEXT, length + tokens), "do_sample": temperature > 0}
    found["repetition_penalty"] = 1.0
    if temperature > 0:
        found |= {"temperature": float(temperature), "top_p": float(top_p), "top_k": 0}
    return found


def pieces(ids: Any, search: dict[str, Any], gone: threading.Event) -> Iterator[str]:
    """The text as it comes; ends early when the client has gone."""
    parameters = og.GeneratorParams(model)
    parameters.set_search_options(**search)
    with turn:
        generator = og.Generator(model, parameters)
        generator.append_tokens(ids)
        ends, tokens, sent = set(templates.eos_token_ids), list[int](), 0
        while not generator.is_done() and not gone.is_set():
            generator.generate_next_token()
            token = int(generator.get_next_tokens()[0])
            TOKENS.inc()
            if token in ends:
                break
            tokens.append(token)
            text = tokenizer.decode(tokens)
            whole = not text.endswith("\N{REPLACEMENT CHARACTER}")  # a token may end within a character
            yield text[sent:] if whole else ""
            sent = len(text) if whole else sent
        yield tokenizer.decode(tokens)[sent:]


async def answer(body: dict[str, Any], ids: Any, chat: bool) -> Response:
    search = options(body, len(ids), 256 if chat else 16)
    if len(pending) > MAX_WAITING:
        REQUESTS.labels("429").inc()
        raise HTTPException(429, "too many requests wait", {"Retry-After": "1"})
    name = uuid.uuid4().hex
    pending.add(name)
    kind = "chat.completion" if chat else "text_completion"
    head = {"id": name, "object": kind, "created": int(time.time()), "model": NAME}
    gone = threading.Event()

    def event(said: dict[str, Any], end: str | None = None) -> str:
        part = {"index": 0, **said, "finish_reason": end}
        return "data: " + json.dumps({**head, "object": kind + ".chunk" if chat else kind, "choices": [part]}) + "\n\n"

    def stream() -> Iterator[str]:
        try:
            for piece in pieces(ids, search, gone):
                if not piece:
                    continue
                yield event({"delta": {"role": "assistant", "content": piece}} if chat else {"text": piece})
            yield event({"delta": {}} if chat else {"text": ""}, "stop") + "data: [DONE]\n\n"
        finally:
            gone.set()
            pending.discard(name)

    REQUESTS.labels("200").inc()
    if body.get("stream"):
        return StreamingResponse(stream(), media_type="text/event-stream")
    try:
        parts = await asyncio.to_thread(lambda: list(pieces(ids, search, gone)))
    finally:
        gone.set()
        pending.discard(name)
    text = "".join(parts)
    said = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    count = len(parts) - 1  # a piece for each token, and the rest
    end = "length" if len(ids) + count >= search["max_length"] else "stop"
    usage = {"prompt_tokens": len(ids), "completion_tokens": count, "total_tokens": len(ids) + count}
    whole = {**head, "choices": [{"index": 0, **said, "finish_reason": end}], "usage": usage}
    return Response(json.dumps(whole), media_type="application/json")


def is_message(found: Any) -> bool:
    return isinstance(found, dict) and all(isinstance(found.get(k), str) for k in ("role", "content"))


@app.post("/v1/completions")
async def completions(request: Request) -> Response:
    body = await read(request)
    if not isinstance(body.get("prompt"), str):
        raise bad("'prompt' must be a text")
    return await answer(body, tokenizer.encode(body["prompt"]).ids, chat=False)


@app.post("/v1/chat/completions")
async def chat_completions(request: Request) -> Response:
    body = await read(request)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(is_message(m) for m in messages):
        raise bad("'messages' must be a list of objects with texts 'role' and 'content'")
    text = templates.apply_chat_template(json.dumps(messages), add_generation_prompt=True)
    return await answer(body, tokenizer.encode(text, add_special_tokens=False).ids, chat=True)


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
