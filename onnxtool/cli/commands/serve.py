"""`onnxtool serve`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from onnxtool.cli import options as o
from onnxtool.cli.output import Output


class BatchingChoice(StrEnum):
    """Whether requests that wait are joined into one run."""

    auto = "auto"
    off = "off"


class ReloadChoice(StrEnum):
    """What a changed file must have in common with the model that is served."""

    equal = "equal"
    interface = "interface"
    off = "off"


def command(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            help="PATH, NAME=PATH or NAME:VERSION=PATH of an .onnx file, a bundle, or a folder with 1/model.onnx.",
            show_default=False,
        ),
    ],
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address to bind to.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes any free one.")] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file", help="Requests must bear one of the tokens in this file, one a line.", show_default=False
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE.pem", help="TLS certificate.", show_default=False)
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE.pem", help="Its private key.", show_default=False)
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", min=1, help="Runs of one model at a time.", show_default=False),
    ] = None,
    batching: Annotated[
        BatchingChoice,
        typer.Option(
            "--batching",
            help="auto joins waiting requests where that was measured to gain; that they do not change each other's "
            "answers is tried on random inputs, not shown.",
        ),
    ] = BatchingChoice.off,
    reload: Annotated[
        ReloadChoice,
        typer.Option(
            "--reload", help="Take a changed file that passes check and gives equal answers, or has the same interface."
        ),
    ] = ReloadChoice.equal,
    max_request: Annotated[
        str, typer.Option("--max-request", metavar="SIZE", help="Largest request, such as 64MB.")
    ] = "64MB",
    max_queue: Annotated[
        int, typer.Option("--max-queue", min=1, help="Requests of one model that may wait; more get status 429.")
    ] = 64,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.001, metavar="SECONDS", help="For waiting and running together.")
    ] = 60.0,
    body_timeout: Annotated[
        float, typer.Option("--body-timeout", min=0.001, metavar="SECONDS", help="For a client to send its request.")
    ] = 30.0,
    drain: Annotated[
        float, typer.Option("--drain", min=1.0, metavar="SECONDS", help="For accepted requests after SIGTERM.")
    ] = 30.0,
    access_log: Annotated[bool, typer.Option("--access-log", help="Log every request.")] = False,
    provider: o.ProviderOption = None,
    threads: o.ThreadsOption = None,
    custom_op_library: o.CustomOpOption = None,
    ep_library: o.EpLibraryOption = None,
    json: o.JsonOption = None,
    verbose: o.VerboseOption = 0,
    quiet: o.QuietOption = False,
) -> None:
    """Serve models over HTTP until the process is asked to end (SIGTERM, Ctrl-C); then accepted requests are answered.

    V2 REST with binary tensors, /predict with plain JSON, /metrics, /docs. Bundles: /v1/completions and
    /v1/chat/completions, as OpenAI's API has them. Events are JSON lines on stderr.
    """
    with Output(json, verbose, quiet) as out:
        from dataclasses import replace

        from onnxtool.cli.parsing import byte_count
        from onnxtool.cli.session import session_options
        from onnxtool.serving.options import ServeLimits, ServeOptions, read_tokens
        from onnxtool.serving.serve import serve

        limits = ServeLimits(
            request_bytes=byte_count("--max-request", max_request) or 0,
            queue=max_queue,
            run_seconds=timeout,
            body_seconds=body_timeout,
            drain_seconds=drain,
        )
        options = ServeOptions(
            host=host,
            port=port,
            tokens=() if token_file is None else read_tokens(token_file),
            certificate=tls_cert,
            key=tls_key,
            limits=limits,
            session=replace(session_options(provider, threads, custom_op_library, ep_library), spinning="runs"),
            concurrency=concurrency,
            batching=batching.value,
            reload=reload.value,
            access_log=access_log,
        )
        out.emit(serve(models, options=options))
