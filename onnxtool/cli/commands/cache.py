"""`onnxtool cache`."""

from __future__ import annotations

from onnxtool.cli.output import Output
from onnxtool.options.cache import CacheCommand


def command(asked: CacheCommand, out: Output) -> None:
    """Look after the cache of build.

    Exit 1 when verify finds something damaged; it removes that, so that the next build makes it again.
    """
    from onnxtool.words import taken_by
    from onnxtool.workflow.cache import cache

    out.emit(cache(asked.action, **taken_by(cache, asked)))
