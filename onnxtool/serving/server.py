"""Starts uvicorn on an application, and ends it without losing a request that it has accepted."""

from __future__ import annotations

import asyncio
import select
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import FrameType
from typing import Any, Protocol

from onnxtool.errors import MissingExtraError, UsageError
from onnxtool.options.serve import ServeOptions
from onnxtool.serving.app import App
from onnxtool.serving.logs import Log


class GrpcCalls(Protocol):
    """Answers gRPC beside HTTP."""

    async def start(self) -> int:
        """Take calls; gives the port."""

    async def stop(self) -> None:
        """Take no more, and wait for those that were taken."""


_BACKLOG = 2048
# So long after the last connection was taken a connection may be silent before it is closed.
_LINGER = 0.5


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
    try:
        import uvicorn

        from onnxtool.serving.connection import connection_class
    except ImportError as error:
        raise MissingExtraError("serve", "uvicorn with httptools", "serve") from error

    class Server(uvicorn.Server):
        """uvicorn's, with a drain of its own."""

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002  (uvicorn calls it)
            if self.should_exit:
                self.force_exit = True  # asked twice
            self.should_exit = True

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            place: dict[str, Any] = {} if calls is None else {"grpc_port": await calls.start()}
            asyncio.get_running_loop().set_exception_handler(lambda _, context: _tell(context, log))
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
            if calls is not None:
                await calls.stop()
            state.draining = True
            until = time.monotonic() + _LINGER
            # What clients send on their open connections is answered, and that answer closes the connection.
            while self.server_state.connections and time.monotonic() < until and not self.force_exit:
                await asyncio.sleep(0.02)
            await super().shutdown(sockets)
            log.event("stopped", served=state.served)

        async def _close_door(self) -> None:
            """Take no more connections. Those that the system has accepted for us would be reset: take them first."""
            for _ in range(_BACKLOG):
                if not select.select([listener], [], [], 0)[0]:
                    break
                await asyncio.sleep(0)
            for server in self.servers:
                server.close()

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
