"""`onnxtool verify`."""

from __future__ import annotations

from dataclasses import replace

from onnxtool.cli.output import Output
from onnxtool.errors import UsageError
from onnxtool.options.verify import VerifyCommand


def command(asked: VerifyCommand, out: Output) -> None:
    """Show whether a file is as onnxtool wrote it, and from what it was made.

    Every file that onnxtool writes bears a SHA-256 of its bytes and external data, and a history of the steps that made
    it. Exit 0 when the digest fits (and --source is in the history), 1 when not. The digest shows damage and edits; it
    is not a signature: that is what --sign and --public-key are for (extra "signing").
    """
    from onnxtool.generation.bundle import is_bundle
    from onnxtool.words import taken_by

    model, source = asked.model, asked.source
    if is_bundle(model) and asked.sign is None and asked.public_key is None:
        from onnxtool.generation.verify import verify_bundle

        out.emit(verify_bundle(model, source=source))
        return
    from onnxtool.model.provenance.verify import verify

    if not asked.replay:
        out.emit(verify(model, **taken_by(verify, asked)))
        return
    from onnxtool.cli.sources import source_options
    from onnxtool.conversion.replay import replay

    if source is None and asked.factory is None:
        raise UsageError("--replay needs what the model was made from: --source FILE, or --factory.")
    options = source_options(asked)
    known = source if source is not None and source.is_file() else None
    report = verify(model, **taken_by(verify, asked) | {"source": known})
    out.emit(replace(report, replay=replay(model, source, options)))
