"""The model of this folder over HTTP: Open Inference Protocol V2, JSON or binary tensors, and /predict with plain JSON.

uvicorn app:app
"""

import asyncio
import csv  # [table]
import io  # [table]
import math  # [table]
import os
import time
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from onnxruntime_extensions import get_library_path  # [extensions]
from prometheus_client import CONTENT_TYPE_LATEST, Counter, Gauge, Histogram, generate_latest
from protocol import (
    HEADER_LENGTH,
    InputError,
    UnsupportedError,
    check_shared_dims,
    decode_picture,  # [image]
    decode_plain,
    decode_request,
    dumps,
    element_type,
    encode_response,
    form_file,
    from_lists,
    loads,
    runtime_datatype,
    to_lists,
)
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.requests import ClientDisconnect

MODEL = Path(__file__).with_name("model.onnx")
NAME = "model"
VERSION = "1"
THREADS = int(os.environ.get("THREADS", "1"))  # of one run
RUNS = int(os.environ.get("RUNS", "2"))  # at a time; more wait
MAX_WAITING = int(os.environ.get("MAX_WAITING", "64"))  # more are refused with 429
MAX_BYTES = int(os.environ.get("MAX_BYTES", str(64 << 20)))  # of one request
SHARED: dict[str, list[tuple[str, int]]] = {}  # dims that several inputs must agree in: inputs and axes
COLUMNS: dict[str, tuple[str, ...]] = {}  # of a table: the columns of each input
LABELS: dict[str, tuple[str, ...]] = {}  # of outputs: the names of their classes
TAKES_EMPTY = False  # whether inputs without elements were tried and did no harm
FILES = "text/csv"  # what a file in a form is, where its own type does not tell
PICTURE = (3, "RGB")  # [image]
MAX_SECONDS = float(os.environ.get("MAX_SECONDS", "60"))  # for a request to arrive, and for its answer

Arrays = dict[str, np.ndarray]

ort.disable_telemetry_events()
options = ort.SessionOptions()
options.intra_op_num_threads = THREADS
options.add_session_config_entry("session.force_spinning_stop", "1")
options.register_custom_ops_library(get_library_path())  # [extensions]
session = ort.InferenceSession(str(MODEL), options, providers=["CPUExecutionProvider"])
threads = ThreadPoolExecutor(RUNS)
app = FastAPI(title=NAME, version=VERSION)

REQUESTS = Histogram("request_duration_seconds", "Of an inference request.", ["status"])
RUN_TIME = Histogram("inference_duration_seconds", "Of a run of the model.")
PENDING = Gauge("requests_pending", "Requests that wait for a run, or are in one.")
ERRORS = Counter("errors", "Requests that failed.", ["status"])
pending: set[asyncio.Future[list[np.ndarray]]] = set()
PENDING.set_function(lambda: len(pending))


def refusal(error: Exception) -> JSONResponse:
    """An error in the protocol's form."""
    if isinstance(error, AnyHTTPException):
        return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)
    status = {InputError: 400, UnsupportedError: 422, ClientDisconnect: 499}.get(type(error), 500)
    return JSONResponse({"error": str(error) if status < 500 else "the server failed on this request"}, status)


@app.exception_handler(AnyHTTPException)
@app.exception_handler(Exception)
async def refuse(_: Request, error: Exception) -> JSONResponse:
    return refusal(error)


async def counted(answer: Awaitable[Response]) -> Response:
    """The answer or the refusal, which both appear in the metrics."""
    began = time.perf_counter()
    try:
        response = await answer
    except (InputError, UnsupportedError, HTTPException, ClientDisconnect) as error:
        response = refusal(error)
        ERRORS.labels(str(response.status_code)).inc()
    REQUESTS.labels(str(response.status_code)).observe(time.perf_counter() - began)
    return response


def tensors(args: list[ort.NodeArg]) -> list[dict[str, Any]]:
    return [
        {
            "name": a.name,
            "datatype": runtime_datatype(a.type),
            "shape": [d if isinstance(d, int) else -1 for d in a.shape],
        }
        for a in args
    ]


INPUTS, OUTPUTS = tensors(session.get_inputs()), tensors(session.get_outputs())
DIMS = {a.name: a.shape for a in session.get_inputs()}


async def read_body(request: Request) -> bytes:
    """The body, within the limits of size and time. A declared size is a reason to refuse, never to trust."""
    if request.headers.get("content-encoding", "identity") != "identity":
        raise HTTPException(415, "a compressed body is not supported; send it without Content-Encoding")
    if int(request.headers.get("content-length") or 0) > MAX_BYTES:
        raise HTTPException(413, f"a request has at most {MAX_BYTES} bytes")
    body = bytearray()
    try:
        async with asyncio.timeout(MAX_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise HTTPException(413, f"a request has at most {MAX_BYTES} bytes")
    except TimeoutError:
        raise HTTPException(408, "the request took too long to arrive") from None
    if len(body) < int(request.headers.get("content-length") or 0):
        raise HTTPException(400, "a body behind an offer of HTTP/2 (Upgrade: h2c) is not read; ask by HTTP/1.1 alone")
    return bytes(body)


def verify(feeds: Arrays) -> None:
    """Names, types and shapes, before the model sees them."""
    if feeds.keys() != DIMS.keys():
        raise InputError(f"the inputs are {', '.join(DIMS)}")
    for spec in INPUTS:
        name, dims = spec["name"], DIMS[spec["name"]]
        array, wanted = feeds[name], element_type(spec["datatype"])
        fits = array.ndim == len(dims) and all(
            h == w for w, h in zip(dims, array.shape, strict=True) if isinstance(w, int)
        )
        if array.dtype != (object if wanted == "string" else wanted) or not fits:
            raise InputError(f"{name!r} must be {spec['datatype']} {dims}, not {array.dtype} {list(array.shape)}")
        if not array.size and not TAKES_EMPTY:
            raise InputError(f"{name!r} has shape {list(array.shape)}, which holds nothing")
    check_shared_dims(feeds, SHARED)


async def run(feeds: Arrays, seconds: float = MAX_SECONDS) -> Arrays:
    """One run; waits for its turn, 429 when too many do."""
    verify(feeds)
    if len(pending) >= MAX_WAITING + RUNS:
        raise HTTPException(429, "too many requests wait", {"Retry-After": "1"})
    run_options = ort.RunOptions()

    def work() -> list[np.ndarray]:
        with RUN_TIME.time():
            values: list[np.ndarray] = session.run([o["name"] for o in OUTPUTS], feeds, run_options)
        return values

    future = asyncio.get_running_loop().run_in_executor(threads, work)
    pending.add(future)
    future.add_done_callback(pending.discard)
    try:
        values = await asyncio.wait_for(asyncio.shield(future), min(seconds, MAX_SECONDS))
    except TimeoutError:
        run_options.terminate = True
        raise HTTPException(504, "the model took too long") from None
    except Exception as error:  # the runtime's own: these inputs cannot be computed
        raise InputError(f"the model fails on these inputs: {str(error)[:200]}") from None
    return {o["name"]: v for o, v in zip(OUTPUTS, values, strict=True)}


def as_json(outputs: Arrays) -> Response:
    text = dumps({name: to_lists(name, array) for name, array in outputs.items()})
    return Response(text, media_type="application/json")


async def answer_v2(request: Request) -> Response:
    body, length = await read_body(request), request.headers.get(HEADER_LENGTH)
    if length is not None and not (length.isdecimal() and len(length) < 13):
        raise InputError(f"{HEADER_LENGTH} is not a number")
    asked = decode_request(body, None if length is None else int(length))
    if unknown := asked.outputs.keys() - {o["name"] for o in OUTPUTS}:
        raise InputError(f"no output {min(unknown)!r}")
    outputs = await run(asked.feeds, asked.seconds or MAX_SECONDS)
    head = {"model_name": NAME, "model_version": VERSION} | ({} if asked.id is None else {"id": asked.id})
    parts, json_length = encode_response(head, outputs.items(), asked, LABELS)
    if not json_length:
        return Response(b"".join(parts), media_type="application/json")
    headers = {HEADER_LENGTH: str(json_length)}
    return Response(b"".join(parts), headers=headers, media_type="application/octet-stream")


def body_of(schema: dict[str, Any]) -> dict[str, Any]:
    """What /docs shows of a request's body."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


V2 = {
    "type": "object",
    "required": ["inputs"],
    "properties": {"inputs": {"type": "array", "items": {"type": "object"}}},
}
PLAIN = {"type": "object", "required": list(DIMS), "properties": {name: {"type": "array"} for name in DIMS}}


@app.post(f"/v2/models/{NAME}/infer", openapi_extra=body_of(V2))
@app.post(f"/v2/models/{NAME}/versions/{VERSION}/infer", openapi_extra=body_of(V2))
async def infer(request: Request) -> Response:
    return await counted(answer_v2(request))


# [table]
MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "<na>"))


def from_table(body: bytes) -> Arrays:
    """A table of cells between commas, semicolons, tabs or bars: a row of names, then a row for each sample."""
    try:
        text = body.decode("utf-8-sig")
        head = "".join(text.partition("\n")[0].split('"')[::2])  # without quoted cells
        reader = csv.reader(io.StringIO(text), delimiter=max(",;\t|", key=head.count))
        names, rows = next(filter(None, reader), []), [(reader.line_num, row) for row in reader if row]
    except (ValueError, csv.Error) as error:
        raise InputError(f"not a CSV table in UTF-8 ({str(error)[:100]})") from None
    if not rows:
        raise InputError("the table has no row but the one with names" if names else "the table is empty")
    for line, row in rows:
        if len(row) != len(names):
            raise InputError(f"line {line} has {len(row)} cells, the first has {len(names)}")
    feeds = {}
    for spec in INPUTS:
        name, kind = spec["name"], element_type(spec["datatype"])
        for column in COLUMNS.get(name, ()):
            if names.count(column) != 1:
                raise InputError(f"the table has {names.count(column) or 'no'} columns {column!r}; the model takes one")
        columns = [names.index(column) for column in COLUMNS.get(name, ())] or list(range(len(names)))
        values = [[number(row[c], kind, line, names[c]) for c in columns] for line, row in rows]
        feeds[name] = from_lists(name, values, kind)
    return feeds


def number(cell: str, kind: Any, line: int, column: str) -> Any:
    """The value of a cell; of floats also one that is missing."""
    if isinstance(kind, str):
        return cell
    word, whole = cell.strip().lower().replace("_", "no digit"), kind.kind in "biu"
    word = {"true": "1", "false": "0"}.get(word, word)
    try:
        number = math.nan if word in MISSING else int(word) if whole and word.lstrip("+-").isdigit() else float(word)
        value = int(number) if whole else number
    except (ValueError, OverflowError):
        told = "a whole number" if whole else "a number"
        raise InputError(f"line {line}, column {column!r}: {cell[:40]!r} is not {told}") from None
    if value != number == number or (value in (math.inf, -math.inf) and any(c.isdigit() for c in word)):
        told = "not a whole number" if whole else "too large"
        raise InputError(f"line {line}, column {column!r}: {cell[:40]!r} is {told}")
    return bool(value) if kind.kind == "b" and value in (0, 1) else value


# [/table]
async def answer_plain(request: Request) -> Response:
    body, kind = await read_body(request), request.headers.get("content-type", "")
    if kind.startswith("multipart/form-data"):
        kind, body = form_file(kind, body, FILES)
    # [image]
    if kind.startswith("image/"):
        return as_json(await run({INPUTS[0]["name"]: decode_picture(body, *PICTURE)}))
    # [/image]
    # [table]
    if kind.startswith("text/csv"):
        return as_json(await run(from_table(body)))
    # [/table]
    if kind.startswith(("image/", "text/csv")):
        raise HTTPException(415, "the model takes no such file")
    try:
        found = loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON ({str(error)[:100]})") from None
    types = {i["name"]: element_type(i["datatype"]) for i in INPUTS}
    return as_json(await run(decode_plain(found, types, COLUMNS)))


@app.post("/predict", openapi_extra=body_of(PLAIN))
async def predict(request: Request) -> Response:
    """{"input": [[...]]} -> {"output": [[...]]}."""
    return await counted(answer_plain(request))


@app.get("/v2/health/live")
@app.get("/v2/health/ready")
@app.get(f"/v2/models/{NAME}/ready")
def ready() -> dict[str, bool]:
    return {"ready": True}


@app.get("/v2")
def server() -> dict[str, Any]:
    return {"name": NAME, "version": VERSION, "extensions": ["binary_tensor_data", "classification"]}


@app.get("/v2/models")
def models() -> dict[str, Any]:
    return {"models": [{"name": NAME, "versions": [VERSION]}]}


@app.get(f"/v2/models/{NAME}")
@app.get(f"/v2/models/{NAME}/versions/{VERSION}")
def metadata() -> dict[str, Any]:
    return {"name": NAME, "versions": [VERSION], "platform": "onnxruntime_onnx", "inputs": INPUTS, "outputs": OUTPUTS}


@app.get("/metrics")
def metrics() -> Response:
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
