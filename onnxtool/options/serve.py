"""The options of `serve`: addresses, limits, and how models are run."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Literal

from onnxtool.options.option import option
from onnxtool.options.session import DEFAULT, SessionOptions
from onnxtool.options.shared import CUSTOM_OPS, Runtime, Shown

Batching = Literal["auto", "off"]
Reload = Literal["equal", "interface", "off"]


@dataclass(frozen=True)
class ServeLimits:
    """What one request, and all of them together, may take.

    Attributes:
        request_bytes: of a body.
        json_bytes: of the JSON in a body; parsed JSON takes many times its size in memory.
        buffered_bytes: of all bodies, and of all answers that their clients have not read yet, at a time.
        connections: open at a time.
        queue: requests that may wait for a model while others run; more are refused with 429.
        header_seconds: from the first byte of a request (or from connecting) to the end of its headers.
        body_seconds: from there to the end of its body.
        run_seconds: of waiting and running together; then the run is ended and the answer is 504.
        drain_seconds: after SIGTERM, for what has been accepted.
        drain_delay: after SIGTERM, before the server takes no more connections.
    """

    request_bytes: int = option(
        64 << 20, "Largest request, such as 64MB.", "--max-request", kind="size", metavar="SIZE", shown="64MB", place=3
    )
    json_bytes: int = 16 << 20
    buffered_bytes: int = 1 << 30
    connections: int = 1024
    queue: int = option(64, "Requests of one model that may wait; more get status 429.", "--max-queue", low=1, place=3)
    header_seconds: float = 10.0
    run_seconds: float = option(
        60.0, "For waiting and running together.", "--timeout", low=0.001, metavar="SECONDS", place=3
    )
    body_seconds: float = option(
        30.0, "For a client to send its request.", "--body-timeout", low=0.001, metavar="SECONDS", place=3
    )
    drain_seconds: float = option(
        30.0, "For accepted requests after SIGTERM.", "--drain", low=1.0, metavar="SECONDS", place=3
    )
    drain_delay: float = option(
        0.5,
        "After SIGTERM new connections are taken for so long, until a load balancer sends none.",
        low=0.0,
        metavar="SECONDS",
        place=3,
    )


@dataclass(frozen=True)
class ServeOptions:
    """How to serve.

    Attributes:
        host: address to bind to; localhost unless told otherwise.
        port: 0 for any free one.
        grpc_port: of the same protocol over gRPC; None for none.
        tokens: any of these must stand in a request's Authorization header; "TOKEN 10/s" limits how often. Empty for no
            such rule.
        allow_host: names, besides its own, that clients may call the server by and whose web pages may ask it.
        certificate, key: PEM files for TLS.
        limits: what requests may take.
        session: how models are run.
        workers: processes of each model, with one run at a time in each; the cores are shared among them. None measures
            when a model is loaded whether one for each core answers more requests than one for all.
        in_process: run models in the process that speaks HTTP: a crash of a model then ends the server.
        concurrency: runs of one model at a time with `in_process`; None for what fits the cores.
        batching: "off" runs every request alone; "auto" joins requests that wait, for models whose rows are certified
            as independent and on which that was measured to gain.
        warm_up: runs on random inputs before a model is served.
        max_delay: seconds that a request may wait for others that it is joined to.
        model_control: requests may load and unload models.
        reload: when a model's file changes, take it after `check` and when its answers are equal to the present ones
            ("equal"), or after `check` and when its inputs and outputs are the same ("interface"), or never ("off").
        reload_seconds: between two looks at the files.
        access_log: a line for every request.
    """

    host: str = option("127.0.0.1", "Address to bind to.", metavar="ADDRESS")
    port: int = option(8000, "Port; 0 takes any free one.", low=0, high=65535)
    grpc_port: int | None = option(
        None, "Port for the V2 protocol over gRPC; 0 takes any free one.", low=0, high=65535, place=1
    )
    tokens: tuple[str, ...] = ()
    allow_host: tuple[str, ...] = option(
        (),
        "A further name of this server, or of a server whose web pages may ask; * for any. Repeatable.",
        metavar="NAME",
        place=2,
    )
    certificate: Path | None = option(None, "TLS certificate.", "--tls-cert", metavar="FILE.pem", place=2)
    key: Path | None = option(None, "Its private key.", "--tls-key", metavar="FILE.pem", place=2)
    limits: ServeLimits = ServeLimits()
    session: SessionOptions = DEFAULT
    workers: int | None = option(
        1,
        "Processes of each model; each runs one request at a time. auto: one for each core, where that was measured to "
        "gain.",
        kind="count or auto",
        metavar="N|auto",
        place=2,
    )
    in_process: bool = option(
        False, "Run models in the server's own process. A model that crashes then ends the server.", place=2
    )
    concurrency: int | None = option(None, "Runs of one model at a time, with --in-process.", low=1, place=2)
    batching: Batching = option(
        "off",
        "auto joins waiting requests of models whose rows are certified as independent, where that was measured to "
        "gain.",
        choices=Batching,
        place=2,
    )
    warm_up: int = option(1, "Runs on random inputs before a model is served.", low=0, high=1000, place=4)
    max_delay: float = option(
        0.0,
        "With --batching auto, let a request wait so long for others to be joined to.",
        low=0.0,
        high=10.0,
        metavar="SECONDS",
        place=2,
    )
    model_control: bool = option(
        False, "Let requests to /v2/repository load and unload the models that are named here.", place=2
    )
    reload: Reload = option(
        "equal",
        "Take a changed file that passes check and gives equal answers, or has the same interface.",
        choices=Reload,
        place=2,
    )
    reload_seconds: float = 1.0
    access_log: bool = option(False, "Log every request.", place=4)

    def conflict(self) -> str:
        """Which options exclude each other, or need another one; empty where all fit."""
        if (self.certificate is None) != (self.key is None):
            return "TLS takes both a certificate and its key."
        if self.in_process and self.workers != 1:
            return "in-process runs models in the server's own process; it takes no other number of workers."
        if self.concurrency is not None and not self.in_process:
            return "concurrency goes with in-process; otherwise each worker runs one request at a time."
        if self.max_delay and self.batching == "off":
            return "max-delay goes with batching auto: requests are not joined otherwise."
        return ""


@dataclass(frozen=True)
class ServeCommand(ServeOptions, ServeLimits, Runtime, Shown):
    """What the command takes besides."""

    models: tuple[str, ...] = option(
        MISSING,
        "PATH, NAME=PATH or NAME:VERSION=PATH of an .onnx file, a bundle, or a folder with 1/model.onnx; or a "
        "serve.toml.",
        argument=True,
        metavar="MODEL...",
    )
    token_file: Path | None = option(
        None, "Requests must bear one of the tokens in this file, one a line; TOKEN 10/s limits its rate.", place=1
    )
    custom_op_library: tuple[Path, ...] = CUSTOM_OPS(place=80)


# What a model may have of its own, in its table of serve.toml.
OF_MODEL = frozenset(
    {"workers", "in_process", "concurrency", "batching", "max_delay", "warm_up", "reload", "queue", "run_seconds"}
    | {"provider", "ep_library", "threads", "custom_op_library"}
)
