"""`onnxtool build`."""

from __future__ import annotations

from onnxtool.cli.output import Output
from onnxtool.options.build import BuildCommand


def command(asked: BuildCommand, out: Output) -> None:
    """Build every model of a file: run the steps whose ingredients changed, take all others from the cache.

    Exit 0 when all is built and within its limits, 1 when a model failed, misses them, or (--check) is stale. One
    failing model does not stop the others.
    """
    from onnxtool.words import taken_by
    from onnxtool.workflow.build import build, build_history
    from onnxtool.workflow.file import FILE_NAME

    given = asked.arguments
    named = bool(given) and given[0].endswith(".toml")
    file, targets = (given[0], given[1:]) if named else (FILE_NAME, given)
    if asked.history:
        out.emit(build_history(file, cache=asked.cache))
        return
    report = build(file, targets, **taken_by(build, asked))
    if asked.html is not None:
        from onnxtool.cli.forms.html import write_model_pages

        write_model_pages(report, asked.html)
    out.emit(report)
