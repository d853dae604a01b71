"""The routes of the Open Inference Protocol V2, and /predict with plain JSON, images and tables."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from onnxtool import __version__
from onnxtool.errors import InputError, UsageError, needs_extra
from onnxtool.model.spec import TensorSpec, shared_dims
from onnxtool.options.serve import ServeOptions
from onnxtool.runtime.data.formats import delimited
from onnxtool.runtime.data.formats.table_file import TableFile
from onnxtool.runtime.feeds import Feeds, check_feeds, flatten
from onnxtool.runtime.input_kinds import picture_layout, table_columns, takes_image, takes_table
from onnxtool.runtime.output_files import table_bytes
from onnxtool.runtime.protocol_v2 import fast_json
from onnxtool.runtime.protocol_v2.tensors import (
    HEADER_LENGTH,
    InferRequest,
    check_shared_dims,
    decode_plain,
    decode_request,
    encode_response,
    load_json,
    to_lists,
)
from onnxtool.runtime.protocol_v2.uploads import decode_picture, form_file
from onnxtool.serving.app import Answer, App, Request, State, json_answer
from onnxtool.serving.engine import WhenGone
from onnxtool.serving.faults import HttpError
from onnxtool.serving.openapi import docs_page, openapi
from onnxtool.serving.repository import Repository, Served
from onnxtool.serving.telemetry import Metrics

_HEADER = HEADER_LENGTH.lower().encode()
_OCTETS = (b"content-type", b"application/octet-stream")
_EXTENSIONS = ("binary_tensor_data", "classification", "model_configuration", "model_repository", "statistics")
_T = TypeVar("_T")
# Work on more bytes of JSON or texts goes to a thread, so that other requests are not held up.
_INLINE = 64 << 10
_TEXTS = re.compile(rb"BYTES|\\")  # a header that names texts; behind a backslash it may


class InferenceRoutes:
    """The routes of models; `add_to` an application."""

    def __init__(self, repository: Repository, options: ServeOptions, metrics: Metrics, state: State) -> None:
        self._repository, self._options, self._metrics, self._state = repository, options, metrics, state

    def add_to(self, app: App) -> None:
        """Register every route."""
        self._tracing = app.tracing
        app.route("GET", "/v2/health/live", self._live)
        app.route("GET", "/v2/health/ready", self._ready)
        app.route("GET", "/metrics", self._metrics_text)
        app.route("GET", "/v2", self._server)
        app.route("GET", "/v2/models", self._list)
        app.route("GET", "/v2/models/stats", self._all_statistics)
        app.route("GET", "/openapi.json", self._openapi)
        app.route("GET", "/docs", self._docs)
        for prefix in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
            app.route("POST", f"{prefix}/infer", self._infer)
            app.route("GET", prefix, self._metadata)
            app.route("GET", f"{prefix}/ready", self._model_ready)
            app.route("GET", f"{prefix}/config", self._config)
            app.route("GET", f"{prefix}/stats", self._statistics)
        app.route("POST", "/v2/repository/index", self._index)
        app.route("POST", "/v2/repository/models/{model}/load", self._load)
        app.route("POST", "/v2/repository/models/{model}/unload", self._unload)
        app.route("POST", "/predict", self._predict)
        app.route("POST", "/predict/{model}", self._predict)

    async def _live(self, _: Request) -> Answer:
        return json_answer({"live": True})

    async def _ready(self, _: Request) -> Answer:
        return json_answer({"ready": self._state.ready}, 200 if self._state.ready else 503)

    async def _metrics_text(self, _: Request) -> Answer:
        return Answer([self._metrics.text()], headers=((b"content-type", b"text/plain; version=0.0.4"),))

    async def _server(self, _: Request) -> Answer:
        return json_answer({"name": "onnxtool", "version": __version__, "extensions": _EXTENSIONS})

    async def _list(self, _: Request) -> Answer:
        there = self._repository.versions().items()
        return json_answer({"models": [{"name": name, "versions": versions} for name, versions in there]})

    async def _openapi(self, _: Request) -> Answer:
        return json_answer(openapi(self._repository.all()))

    async def _docs(self, _: Request) -> Answer:
        page = docs_page(self._repository.all()).encode()
        return Answer([page], headers=((b"content-type", b"text/html; charset=utf-8"),))

    def _find(self, request: Request) -> Served:
        return self._repository.find(*_named(request))

    async def _metadata(self, request: Request) -> Answer:
        served = self._find(request)
        return json_answer(served.metadata(self._repository.versions()[served.target.name]))

    async def _model_ready(self, request: Request) -> Answer:
        served = self._find(request)
        return json_answer({"name": served.target.name, "ready": self._state.ready}, 200 if self._state.ready else 503)

    async def _config(self, request: Request) -> Answer:
        return json_answer(self._find(request).configuration())

    async def _statistics(self, request: Request) -> Answer:
        return json_answer({"model_stats": self._repository.statistics(*_named(request))})

    async def _all_statistics(self, _: Request) -> Answer:
        return json_answer({"model_stats": self._repository.statistics()})

    async def _index(self, request: Request) -> Answer:
        found = await _settings(request)
        ready = found.get("ready", False)
        if type(ready) is not bool:
            raise InputError("'ready' must be true or false.")
        return json_answer(self._repository.index(ready=ready))

    async def _load(self, request: Request) -> Answer:
        return await self._control(request, self._repository.load_again)

    async def _unload(self, request: Request) -> Answer:
        return await self._control(request, self._repository.unload)

    async def _control(self, request: Request, change: Callable[[str], Awaitable[None]]) -> Answer:
        given = (await _settings(request)).get("parameters") or {}
        await self.control(request.path[3], given, change)
        return json_answer({})

    async def control(self, name: str, parameters: Any, change: Callable[[str], Awaitable[None]]) -> None:
        """Load or unload a model.

        Raises:
            HttpError: 403 without `model_control`; else as of the repository.
            InputError: with parameters.
        """
        if not self._options.model_control:
            raise HttpError(403, "model_control", "only with --model-control may requests load and unload models.")
        if parameters not in ({}, {"unload_dependents": False}):  # which Triton's client sends
            raise InputError("parameters of a load or unload are not supported.")
        await change(name)

    async def _infer(self, request: Request) -> Answer:
        with self._repository.use(*_named(request)) as served:
            return await self._answer(request, served)

    async def _answer(self, request: Request, served: Served) -> Answer:
        if _media_type(request).startswith("multipart/"):
            raise HttpError(415, "media_type", f"forms with files go to /predict/{served.target.name}.")
        length = _header_length(request)
        body = await request.body()
        size = len(body) if length is None else min(length, len(body))
        request.limit_json(size)
        read = partial(decode_request, aligned=False)
        asked = await beside(len(body) if _TEXTS.search(body, 0, size) else size, read, body, length)
        parts, json_length = await self.infer(served, asked, request.when_gone)
        if not json_length:
            return Answer(parts)
        return Answer(parts, headers=(_OCTETS, (_HEADER, str(json_length).encode())))

    async def infer(
        self, served: Served, asked: InferRequest, when_gone: WhenGone | None
    ) -> tuple[list[bytes | memoryview], int]:
        """Answer a request of the protocol, as of `encode_response`; `when_gone` as of `Engine.infer`."""
        labels = {o.name: o.columns for o in served.engine.model.outputs}
        for name in asked.outputs:
            if name not in labels:
                raise InputError(f"the model has no output {name[:100]!r}; it has {', '.join(labels)}.")
        outputs = await self._run(served, asked.feeds, when_gone, asked.seconds)
        head: dict[str, Any] = {"model_name": served.target.name, "model_version": served.target.version}
        if asked.id is not None:
            head["id"] = asked.id
        encode = partial(encode_response, head, outputs.items(), asked, labels)
        return await asyncio.to_thread(encode) if asked.classes else encode()

    async def _predict(self, request: Request) -> Answer:
        with self._repository.use(request.path[1] if len(request.path) > 1 else None) as served:
            return await self._plain_answer(request, served)

    async def _plain_answer(self, request: Request, served: Served) -> Answer:
        specs = served.engine.model.inputs
        kind, body = _media_type(request), await request.body()
        if kind == "multipart/form-data":
            declared = request.headers[b"content-type"].decode("latin-1")
            usual = "image/*" if takes_image(specs) else "text/csv"
            kind, body = await asyncio.to_thread(form_file, declared, body, usual)
        if kind.startswith("image/") or kind == "text/csv":
            feeds = await asyncio.to_thread(read_form, kind, body, specs)
        else:
            request.limit_json(len(body))
            feeds = await beside(len(body), _read_plain, body, specs)
        outputs = await self._run(served, feeds, request.when_gone)
        if request.headers.get(b"accept", b"").split(b";")[0].strip().lower() == b"text/csv":
            table = await asyncio.to_thread(table_answer, outputs, served.engine.model.outputs)
            return Answer([table], headers=((b"content-type", b"text/csv; charset=utf-8"),))
        return json_answer({name: to_lists(name, np.asarray(a)) for name, a in outputs.items()})

    async def _run(
        self, served: Served, feeds: Feeds, when_gone: WhenGone | None, within: float | None = None
    ) -> dict[str, Any]:
        specs = served.engine.model.inputs
        check_feeds(specs, feeds)
        check_shared_dims(feeds, shared_dims(specs))
        seconds = (served.target.options or self._options).limits.run_seconds
        with self._tracing.run(served.target.labels):
            return await served.engine.infer(feeds, seconds, when_gone, within=within)


def _named(request: Request) -> tuple[str, str | None]:
    """The model and the version, if any, of /v2/models/NAME/versions/VERSION/..."""
    return request.path[2], request.path[4] if len(request.path) > 4 and request.path[3] == "versions" else None


async def beside(size: int, call: Callable[..., _T], *arguments: object) -> _T:
    """Call what reads so many bytes of JSON or texts; on a thread where they are many."""
    return await asyncio.to_thread(call, *arguments) if size > _INLINE else call(*arguments)


async def _settings(request: Request) -> dict[str, Any]:
    """The JSON of a request that is no data: a few names and values."""
    body = await request.body()
    if len(body) > _INLINE:
        raise HttpError(413, "too_large", f"such a request has at most {_INLINE} bytes.")
    return load_json(body or b"{}")


def _media_type(request: Request) -> str:
    return request.headers.get(b"content-type", b"").split(b";")[0].strip().lower().decode("latin-1")


def _header_length(request: Request) -> int | None:
    text = request.headers.get(_HEADER)
    if text is None:
        return None
    if not text.isdigit() or len(text) > 12:
        raise InputError(f"{HEADER_LENGTH} is not a number.")
    return int(text)


def _read_plain(body: bytes, specs: Sequence[TensorSpec]) -> dict[str, np.ndarray]:
    """Plain JSON, in each form that `decode_plain` takes."""
    try:
        found = fast_json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not valid JSON: {str(error)[:200]}.") from error
    return decode_plain(found, {s.name: s.dtype for s in specs}, table_columns(specs))


def read_form(kind: str, body: bytes, specs: Sequence[TensorSpec]) -> dict[str, np.ndarray]:
    """An image file or a CSV table as feeds.

    Raises:
        HttpError: 415, the model does not take such a thing.
        InputError: not a sound image or table, or one that does not fit the model.
    """
    if kind == "text/csv":
        if not takes_table(specs):
            raise HttpError(415, "media_type", "this model takes no table.")
        return delimited.read(TableFile.in_memory(body, ".csv", "the table")).arrays(specs)
    if not takes_image(specs):
        raise HttpError(415, "media_type", "this model takes no image files: its pre-processing is not inside.")
    with needs_extra("images", "pillow", "images"):
        return {specs[0].name: decode_picture(body, *picture_layout(specs[0]))}


def table_answer(outputs: Mapping[str, Any], specs: Sequence[TensorSpec]) -> bytes:
    """Outputs as a table in CSV, with a column for each number or text of a row.

    Raises:
        HttpError: 406, they have no rows in common.
    """
    try:
        return table_bytes(Path("-.csv"), flatten(outputs), {s.name: s.columns for s in specs})
    except UsageError as error:
        raise HttpError(406, "media_type", f"the outputs are no table: {error}") from error
