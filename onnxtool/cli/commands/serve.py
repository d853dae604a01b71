"""`onnxtool serve`."""

from __future__ import annotations

from onnxtool.cli.output import Output
from onnxtool.options.serve import ServeCommand


def command(asked: ServeCommand, out: Output) -> None:
    """Serve models over HTTP until the process is asked to end (SIGTERM, Ctrl-C); then accepted requests are answered.

    V2 REST with binary tensors, /predict with plain JSON, /metrics, /docs. Bundles: /v1/completions and
    /v1/chat/completions, as OpenAI's API has them. Events are JSON lines on stderr.
    """
    from onnxtool.options.serve import ServeLimits, ServeOptions
    from onnxtool.serving.serve import serve
    from onnxtool.serving.tokens import read_tokens
    from onnxtool.words import part_of, session_options

    options = part_of(
        ServeOptions,
        asked,
        tokens=() if asked.token_file is None else read_tokens(asked.token_file),
        limits=part_of(ServeLimits, asked),
        session=session_options(asked, spinning="runs"),
    )
    out.emit(serve(asked.models, options=options))
