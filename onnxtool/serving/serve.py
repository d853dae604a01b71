"""`serve`: models and bundles over HTTP, until the process is asked to end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import IO

from onnxtool.errors import UsageError
from onnxtool.options.serve import ServeOptions
from onnxtool.report.serve import ServedModel, ServeReport
from onnxtool.serving.app import App, State
from onnxtool.serving.inference_routes import InferenceRoutes
from onnxtool.serving.logs import Log
from onnxtool.serving.metrics import Metrics
from onnxtool.serving.repository import Repository
from onnxtool.serving.server import bind, run
from onnxtool.serving.targets import find_versions, parse_targets

_LOCAL = ("127.0.0.1", "::1", "localhost")


def serve(
    models: str | Sequence[str],
    *,
    options: ServeOptions = ServeOptions(),  # noqa: B008  (frozen)
    own: Mapping[str, ServeOptions] = MappingProxyType({}),
    log: IO[str] | None = None,
) -> ServeReport:
    """Serve models over HTTP until SIGTERM or SIGINT.

    Args:
        models: each PATH, NAME=PATH or NAME:VERSION=PATH: an .onnx file, a bundle, or a folder with versions of a
            model as 1/model.onnx, 2/model.onnx.
        options: address, limits, how to run.
        own: options of single models, by what `models` says of them; what is not of a model is the server's.
        log: where events go, one JSON object a line; stderr unless given.

    Returns:
        A report, after the last accepted request has its answer.

    Raises:
        InputError, UnsupportedError, UnsafeError, ResourceError: a model cannot be served.
        UsageError: names that clash, or an address that cannot be bound.
        MissingExtraError: the extra "serve" is not installed.
    """
    if (options.certificate is None) != (options.key is None):
        raise UsageError("TLS takes both a certificate and its key.")
    named = [str(m) for m in ([models] if isinstance(models, str) else models)]
    targets = parse_targets(named, own)
    if not targets:
        raise UsageError("serve needs at least one model.")
    events, metrics, state = Log(log), Metrics(), State()
    if options.host not in _LOCAL and not options.tokens:
        events.event("open_to_others", "warning", reason=f"{options.host} is no local address and there is no token")
    listener = bind(options.host, options.port)
    port = listener.getsockname()[1]  # any free one where 0 was asked for
    repository = Repository(options, metrics, events)
    try:
        repository.load(targets)
        app = App(options, metrics, events, state)
        routes, calls = InferenceRoutes(repository, options, metrics, state), None
        routes.add_to(app)
        if options.grpc_port is not None:
            from onnxtool.serving.grpc_service import GrpcService

            calls = GrpcService(app, routes, repository, options)
        if any(t.is_bundle for t in targets):
            from onnxtool.serving.chat_routes import ChatRoutes

            ChatRoutes(repository, options).add_to(app)
        began = time.monotonic()
        watching = partial(repository.watch, lambda: find_versions(named, targets, own))
        run(app, options, listener, events, None if options.reload == "off" else watching, calls)
        app.tracing.close()
    finally:
        listener.close()
        repository.close()
    scheme = "https" if options.certificate else "http"
    return ServeReport(
        url=f"{scheme}://{options.host}:{port}",
        models=tuple(ServedModel(t.name, t.version, str(t.path)) for t in targets),
        requests=state.served,
        failures=state.failed,
        seconds=time.monotonic() - began,
    )
