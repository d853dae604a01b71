"""The model of this folder over HTTP: Open Inference Protocol V2, JSON or binary tensors, and /predict with plain JSON.

uvicorn app:app
"""

import asyncio
import csv  # [table]
import io  # [image or table]
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import orjson
from fastapi import FastAPI, HTTPException, Request, Response
from PIL import Image  # [image]
from prometheus_client import CONTENT_TYPE_LATEST, Counter, Gauge, Histogram, generate_latest

MODEL = Path(__file__).with_name("model.onnx")
NAME = "model"
VERSION = "1"
THREADS = int(os.environ.get("THREADS", "1"))  # of one run
RUNS = int(os.environ.get("RUNS", "2"))  # at a time; more wait
MAX_WAITING = int(os.environ.get("MAX_WAITING", "64"))  # more are refused with 429
MAX_BYTES = int(os.environ.get("MAX_BYTES", str(64 << 20)))  # of one request
MAX_SECONDS = float(os.environ.get("MAX_SECONDS", "60"))  # for a request to arrive, and for its answer

HEADER_LENGTH = "inference-header-content-length"
DTYPES = {
    **{f"{u}INT{bits}": np.dtype(f"{u.lower()}int{bits}") for u in ("", "U") for bits in (8, 16, 32, 64)},
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    "BOOL": np.dtype(bool),
    "BYTES": np.dtype(object),
}
ONNX_TYPES = {
    **{f"tensor({name.lower()})": name for name in DTYPES},
    "tensor(float16)": "FP16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(string)": "BYTES",
}
Arrays = dict[str, np.ndarray]

ort.disable_telemetry_events()
options = ort.SessionOptions()
options.intra_op_num_threads = THREADS
options.add_session_config_entry("session.force_spinning_stop", "1")
session = ort.InferenceSession(str(MODEL), options, providers=["CPUExecutionProvider"])
threads = ThreadPoolExecutor(RUNS)
app = FastAPI(title=NAME, version=VERSION)

REQUESTS = Histogram("request_duration_seconds", "Of an inference request.", ["status"])
RUN_TIME = Histogram("inference_duration_seconds", "Of a run of the model.")
PENDING = Gauge("requests_pending", "Requests that wait for a run, or are in one.")
ERRORS = Counter("errors", "Requests that failed.", ["status"])
pending: set[asyncio.Future[list[np.ndarray]]] = set()
PENDING.set_function(lambda: len(pending))


def bad(message: str) -> HTTPException:
    return HTTPException(400, message)


def tensors(args: list[ort.NodeArg]) -> list[dict[str, Any]]:
    return [
        {"name": a.name, "datatype": ONNX_TYPES[a.type], "shape": [d if isinstance(d, int) else -1 for d in a.shape]}
        for a in args
    ]


INPUTS, OUTPUTS = tensors(session.get_inputs()), tensors(session.get_outputs())
# The runtime's kernels for these operators end the whole process on a batch of 0.
ABORTS_WHEN_EMPTY = any(operator in MODEL.read_bytes() for operator in (b"GRU", b"LSTM"))


async def read_body(request: Request) -> bytes:
    """The body, within the limits of size and time. A declared size is a reason to refuse, never to trust."""
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
    return bytes(body)


def from_json(name: str, data: Any, dtype: np.dtype) -> np.ndarray:
    """Numbers, booleans or texts of JSON; nothing is rounded or cut."""
    try:
        array = np.array(data, dtype=object if dtype.kind == "O" else None)
        if array.size == 0:
            return array.astype(dtype)
        kinds = {"f": "fiu", "i": "iu", "u": "iu", "b": "b", "O": "O"}[dtype.kind]
        cast = array.astype(dtype)
        cut = (dtype.kind in "iu" and (cast != array).any()) or (dtype.kind == "f" and np.isinf(cast).any())
        if array.dtype.kind not in kinds or cut:
            raise ValueError
        if dtype.kind == "O" and not all(isinstance(v, str) for v in array.reshape(-1)):
            raise ValueError
        return cast
    except (ValueError, OverflowError, RecursionError):
        raise bad(f"{name!r}: the values do not fit {dtype.name}") from None


def from_bytes(name: str, raw: memoryview, dtype: np.dtype, count: int) -> np.ndarray:
    """Raw bytes, little-endian; texts have a length of 4 bytes before each."""
    if dtype.kind == "O":
        found: list[str] = []
        while raw:
            size = int.from_bytes(raw[:4], "little")
            if len(raw) < 4 + size:
                raise bad(f"{name!r}: a text is longer than the bytes that are there")
            found.append(bytes(raw[4 : 4 + size]).decode("utf-8", "strict"))
            raw = raw[4 + size :]
        return np.array(found, dtype=object)
    if len(raw) != count * dtype.itemsize:
        raise bad(f"{name!r}: {len(raw)} bytes for {count} values of {dtype.name}")
    return np.frombuffer(bytes(raw), dtype)


def decode(body: bytes, header_length: str | None) -> tuple[Arrays, dict[str, Any]]:
    """The inputs of a V2 request, every size held against the bytes that are there."""
    try:
        end = len(body) if header_length is None else int(header_length)
        if not 0 < end <= len(body):
            raise bad("the header length does not fit the body")
        header = orjson.loads(body[:end])
        raw, feeds = memoryview(body)[end:], {}
        for entry in header["inputs"]:
            name, dtype, shape = str(entry["name"]), DTYPES[entry["datatype"]], [int(d) for d in entry["shape"]]
            if min(shape, default=0) < 0:
                raise bad(f"{name!r}: a dim is below 0")
            count = int(np.prod(np.array(shape, dtype=object))) if shape else 1
            size = entry.get("parameters", {}).get("binary_data_size")
            if size is None:
                array = from_json(name, entry["data"], dtype)
            elif isinstance(size, int) and 0 <= size <= len(raw):
                array, raw = from_bytes(name, raw[:size], dtype, count), raw[size:]
            else:
                raise bad(f"{name!r}: binary_data_size does not fit the body")
            if array.size != count:
                raise bad(f"{name!r}: {array.size} values for shape {shape}")
            feeds[name] = array.reshape(shape)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, RecursionError) as error:
        raise bad(f"not a V2 request ({type(error).__name__}: {str(error)[:100]})") from None
    if raw:
        raise bad(f"{len(raw)} bytes belong to no input")
    return feeds, header


def verify(feeds: Arrays) -> None:
    """Names, types and shapes, before the model sees them."""
    if feeds.keys() != {i["name"] for i in INPUTS}:
        raise bad(f"the inputs are {', '.join(i['name'] for i in INPUTS)}")
    for spec in INPUTS:
        array, shape = feeds[spec["name"]], spec["shape"]
        fits = array.ndim == len(shape) and all(w in (-1, h) for w, h in zip(shape, array.shape, strict=True))
        if array.dtype != DTYPES[spec["datatype"]] or not fits:
            raise bad(f"{spec['name']!r} must be {spec['datatype']} {shape}, not {array.dtype} {list(array.shape)}")
        if ABORTS_WHEN_EMPTY and not array.size:
            raise bad(f"{spec['name']!r} has shape {list(array.shape)}, which holds nothing")


async def run(feeds: Arrays) -> Arrays:
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
        values = await asyncio.wait_for(asyncio.shield(future), MAX_SECONDS)
    except TimeoutError:
        run_options.terminate = True
        raise HTTPException(504, "the model took too long") from None
    except Exception as error:  # the runtime's own: these inputs cannot be computed
        raise bad(f"the model fails on these inputs: {str(error)[:200]}") from None
    return {o["name"]: v for o, v in zip(OUTPUTS, values, strict=True)}


def plain(name: str, array: np.ndarray) -> Any:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise HTTPException(422, f"output {name!r} holds NaN or infinity, which JSON has no number for; ask for binary")
    return array.tolist()


def as_json(outputs: Arrays) -> Response:
    text = orjson.dumps({name: plain(name, array) for name, array in outputs.items()})
    return Response(text, media_type="application/json")


def encode(outputs: Arrays, header: dict[str, Any]) -> Response:
    """The answer: JSON, or a JSON header and raw bytes where these were asked for."""
    usual = bool((header.get("parameters") or {}).get("binary_data_output"))
    asked = {o["name"]: (o.get("parameters") or {}).get("binary_data", usual) for o in header.get("outputs") or []}
    if unknown := asked.keys() - outputs.keys():
        raise bad(f"no output {min(unknown)!r}")
    entries, raw = [], []
    for spec in OUTPUTS:
        name, array = spec["name"], np.ascontiguousarray(outputs[spec["name"]])
        if asked and name not in asked:
            continue
        entry = {"name": name, "datatype": spec["datatype"], "shape": list(outputs[name].shape)}
        if asked.get(name, usual):
            texts = [v.encode() for v in array.reshape(-1)] if array.dtype == object else []
            packed = b"".join(len(t).to_bytes(4, "little") + t for t in texts) if texts else array.tobytes()
            entry["parameters"] = {"binary_data_size": len(packed)}
            raw.append(packed)
        else:
            entry["data"] = plain(name, array.reshape(-1))
        entries.append(entry)
    answer = {"model_name": NAME, "model_version": VERSION, "outputs": entries}
    if "id" in header:
        answer["id"] = header["id"]
    text = orjson.dumps(answer)
    if not raw:
        return Response(text, media_type="application/json")
    headers = {HEADER_LENGTH: str(len(text))}
    return Response(b"".join([text, *raw]), headers=headers, media_type="application/octet-stream")


@app.post(f"/v2/models/{NAME}/infer")
@app.post(f"/v2/models/{NAME}/versions/{VERSION}/infer")
async def infer(request: Request) -> Response:
    began, status = time.perf_counter(), 500
    try:
        feeds, header = decode(await read_body(request), request.headers.get(HEADER_LENGTH))
        response = encode(await run(feeds), header)
        status = response.status_code
        return response
    except HTTPException as error:
        status = error.status_code
        ERRORS.labels(str(status)).inc()
        raise
    finally:
        REQUESTS.labels(str(status)).observe(time.perf_counter() - began)


# [image]
def from_image(body: bytes) -> Arrays:
    """The pixels of an image file; the model itself scales and normalises them."""
    spec = INPUTS[0]
    last = spec["shape"][3] in (1, 3, 4)
    mode = {1: "L", 3: "RGB", 4: "RGBA"}[spec["shape"][3 if last else 1]]
    try:
        with Image.open(io.BytesIO(body), formats=("PNG", "JPEG", "WEBP", "BMP")) as image:
            if image.width * image.height > 1 << 26:
                raise ValueError
            pixels = np.asarray(image.convert(mode), np.uint8)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        raise bad("not a sound PNG, JPEG, WebP or BMP image of at most 64 million pixels") from None
    pixels = pixels.reshape(*pixels.shape[:2], -1)
    return {spec["name"]: np.ascontiguousarray(pixels if last else pixels.transpose(2, 0, 1))[None]}


# [/image]
# [table]
def from_table(body: bytes) -> Arrays:
    """A CSV table: a first row of names, then a row for each sample."""
    try:
        names, *rows = [row for row in csv.reader(io.StringIO(body.decode("utf-8-sig"))) if row]
        if any(len(row) != len(names) for row in rows):
            raise ValueError
        if len(INPUTS) == 1 and INPUTS[0]["shape"][1] != 1:
            chosen = {INPUTS[0]["name"]: rows}
        else:
            at = {name: index for index, name in enumerate(names)}
            chosen = {i["name"]: [[row[at[i["name"]]]] for row in rows] for i in INPUTS}
        types = {i["name"]: DTYPES[i["datatype"]] for i in INPUTS}
        return {n: np.array(v, dtype=object).astype(types[n]) for n, v in chosen.items()}
    except (ValueError, KeyError, OverflowError, csv.Error):
        raise bad("not a CSV table with a row of names and the model's columns") from None


# [/table]
@app.post("/predict")
async def predict(request: Request) -> Response:
    """{"input": [[...]]} -> {"output": [[...]]}."""
    body = await read_body(request)
    # [image]
    if request.headers.get("content-type", "").startswith("image/"):
        return as_json(await run(from_image(body)))
    # [/image]
    # [table]
    if request.headers.get("content-type", "").startswith("text/csv"):
        return as_json(await run(from_table(body)))
    # [/table]
    try:
        found = orjson.loads(body)
        found = found if isinstance(found, dict) else {INPUTS[0]["name"]: found}
        feeds = {i["name"]: from_json(i["name"], found[i["name"]], DTYPES[i["datatype"]]) for i in INPUTS}
    except (ValueError, KeyError, RecursionError) as error:
        raise bad(f"the JSON must have {', '.join(i['name'] for i in INPUTS)} ({type(error).__name__})") from None
    return as_json(await run(feeds))


@app.get("/v2/health/live")
@app.get("/v2/health/ready")
@app.get(f"/v2/models/{NAME}/ready")
def ready() -> dict[str, bool]:
    return {"ready": True}


@app.get("/v2")
def server() -> dict[str, Any]:
    return {"name": NAME, "version": VERSION, "extensions": ["binary_tensor_data"]}


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
