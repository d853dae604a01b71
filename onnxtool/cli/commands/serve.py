"""`onnxtool serve`."""

from __future__ import annotations

from pathlib import Path

from onnxtool.cli.output import Output
from onnxtool.options.serve import ServeCommand, ServeLimits, ServeOptions


def command(asked: ServeCommand, out: Output) -> None:
    """Serve models over HTTP until the process is asked to end (SIGTERM, Ctrl-C); then accepted requests are answered.

    V2 REST with binary tensors, /predict with plain JSON, /metrics, /docs. Bundles: /v1/completions and
    /v1/chat/completions, as OpenAI's API has them. Events are JSON lines on stderr.
    """
    from onnxtool.serving.serve import serve

    own: dict[str, ServeCommand] = {}
    if len(asked.models) == 1 and asked.models[0].endswith(".toml"):
        from onnxtool.workflow.serve_file import read_serve_file

        asked, own = read_serve_file(Path(asked.models[0]), asked)
    options = {name: _options(found) for name, found in own.items()}
    out.emit(serve(asked.models, options=_options(asked), own=options))


def _options(asked: ServeCommand) -> ServeOptions:
    from onnxtool.serving.access import read_tokens
    from onnxtool.words import part_of, session_options

    return part_of(
        ServeOptions,
        asked,
        tokens=() if asked.token_file is None else read_tokens(asked.token_file),
        limits=part_of(ServeLimits, asked),
        session=session_options(asked, spinning="runs"),
    )
