"""`serve`: models and bundles over HTTP, until the process is asked to end."""

from __future__ import annotations

import asyncio
import ctypes
import select
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from types import FrameType, MappingProxyType
from typing import IO, Any, Protocol

from onnxtool.errors import UsageError, needs_extra
from onnxtool.options.serve import ServeOptions
from onnxtool.report.serve import ServedModel, ServeReport
from onnxtool.serving.app import App, State
from onnxtool.serving.inference_routes import InferenceRoutes
from onnxtool.serving.repository import Repository
from onnxtool.serving.targets import find_versions, parse_targets
from onnxtool.serving.telemetry import Log, Metrics
from onnxtool.serving.threads import started_threads

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
    for each in (options, *own.values()):
        if reason := each.conflict():
            raise UsageError(reason)
    named = [str(m) for m in ([models] if isinstance(models, str) else models)]
    targets = parse_targets(named, own)
    if not targets:
        raise UsageError("serve needs at least one model.")
    events, metrics, state = Log(log), Metrics(), State()
    if options.host not in _LOCAL and not options.tokens:
        events.event("open_to_others", "warning", reason=f"{options.host} is no local address and there is no token")
    listener = bind(options.host, options.port)
    port = listener.getsockname()[1]  # any free one where 0 was asked for
    repository = Repository(options, metrics, events, lambda last: find_versions(named, last, own))
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
        run(app, options, listener, events, None if options.reload == "off" else repository.watch, calls)
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


class GrpcCalls(Protocol):
    """Answers gRPC beside HTTP."""

    async def start(self) -> int:
        """Take calls; gives the port."""

    async def stop(self) -> None:
        """Take no more, and wait for those that were taken."""


_BACKLOG = 2048
_THREADS = 8  # for what holds up other requests
# So long after the last connection was taken a connection may be silent before it is closed.
_LINGER = 0.5
# Of malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def bind(host: str, port: int) -> socket.socket:
    """A bound socket.

    Raises:
        UsageError: the address cannot be used.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, OverflowError) as error:
        raise UsageError(f"--host {host} --port {port}: cannot be bound ({error}).") from error
    return listener


def run(
    app: App,
    options: ServeOptions,
    listener: socket.socket,
    log: Log,
    background: Callable[[], Awaitable[None]] | None,
    calls: GrpcCalls | None,
) -> None:
    """Serve until SIGTERM or SIGINT, then drain.

    Args:
        app: what answers.
        options: of the server.
        listener: where it listens.
        log: for its events.
        background: what runs beside it.
        calls: the same over gRPC.

    Raises:
        MissingExtraError: uvicorn is not installed.
        UsageError: the certificate or the port for gRPC cannot be used.
    """
    state = app.state
    with needs_extra("serve", "uvicorn with httptools", "serve"):
        import uvicorn

        from onnxtool.serving.connection import connection_class

    class Server(uvicorn.Server):
        """uvicorn's, with a drain of its own."""

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002  (uvicorn calls it)
            if self.should_exit:
                self.force_exit = True  # asked twice
            self.should_exit = True

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            place: dict[str, Any] = {} if calls is None else {"grpc_port": await calls.start()}
            loop = asyncio.get_running_loop()
            loop.set_default_executor(started_threads(_THREADS))
            loop.set_exception_handler(lambda _, context: _tell(context, log))
            state.ready = True
            self._background = None if background is None else asyncio.ensure_future(background())
            host, port = listener.getsockname()[:2]
            scheme = "https" if options.certificate else "http"
            log.event("listening", url=f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}", **place)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            state.ready = False
            log.event("draining", in_flight=len(self.server_state.tasks))
            if self._background is not None:
                self._background.cancel()
            if not self.force_exit:
                await asyncio.sleep(options.limits.drain_delay)
                await self._close_door()
            calls_end = None if calls is None else asyncio.ensure_future(calls.stop())
            state.draining = True
            until = time.monotonic() + _LINGER
            # What clients send on their open connections is answered, and that answer closes the connection.
            while self.server_state.connections and time.monotonic() < until and not self.force_exit:
                await asyncio.sleep(0.02)
            await super().shutdown(sockets)
            while calls_end is not None and not calls_end.done() and not self.force_exit:
                await asyncio.sleep(0.02)
            log.event("stopped", served=state.served)

        async def _close_door(self) -> None:
            """Take no more connections. Those that the system has accepted for us would be reset: take them first."""
            for _ in range(_BACKLOG):
                if not select.select([listener], [], [], 0)[0]:
                    break
                await asyncio.sleep(0)
            for server in self.servers:
                server.close()

    _keep_memory()
    _allow_files(2 * options.limits.connections)
    config = uvicorn.Config(
        app,
        http=connection_class(options.limits.header_seconds, options.limits.connections // 2),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=max(1, round(options.limits.drain_seconds)),
        limit_concurrency=options.limits.connections,
        backlog=_BACKLOG,
        ssl_certfile=None if options.certificate is None else str(options.certificate),
        ssl_keyfile=None if options.key is None else str(options.key),
    )
    _quiet()
    try:
        config.load()
    except OSError as error:
        raise UsageError(f"--tls-cert {options.certificate}: cannot be used ({error}).") from error
    server: Any = Server(config)
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listener])


def _tell(context: dict[str, Any], log: Log) -> None:
    """What nobody has caught: a task's exception that is read by none, or one of a callback's. A bug of ours."""
    error = context.get("exception")
    told = f"{type(error).__name__}: {error}" if error is not None else ""
    log.event("uncaught", "error", reason=str(context.get("message", ""))[:2000], error=told[:2000])


def _keep_memory() -> None:
    """Keep what one request takes for the next: glibc gives buffers of 128 KB and more back, and each page of memory
    that is taken anew costs more time than to copy it. It does the same by itself once 32 MB were freed at a time.
    """
    with suppress(OSError, AttributeError):  # another C library
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        libc.mallopt(_M_TRIM_THRESHOLD, 64 << 20)


def _allow_files(count: int) -> None:
    """Let this process have so many files and connections, where the system lets it."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY and soft < count:
            wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _quiet() -> None:
    """Uvicorn's own lines are no JSON; what matters of them is told by our events."""
    import logging

    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio"):
        logging.getLogger(name).handlers = [logging.NullHandler()]
        logging.getLogger(name).propagate = False
