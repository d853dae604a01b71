"""`onnxtool run`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from onnxtool.cli.output import Output
from onnxtool.options.run import RunCommand


def command(asked: RunCommand, out: Output) -> None:
    """Run a model once on given or, without --data and --input, random inputs.

    A bundle (see convert) continues a --prompt or answers a --chat; its text is written as it comes, with -q alone.
    """
    from onnxtool.generation.bundle import is_bundle
    from onnxtool.words import taken_by

    if is_bundle(asked.model):
        from onnxtool.generation.generate import generate
        from onnxtool.generation.sampling import Sampling

        sampling = Sampling(asked.temperature, top_p=asked.top_p, seed=asked.seed)
        keywords = taken_by(generate, asked) | {"messages": _messages(asked), "sampling": sampling}
        out.emit(generate(asked.model, **keywords, write=_writer(asked)))
        return
    from onnxtool.runtime.run import run

    if str(asked.output) != "-":
        out.emit(run(asked.model, **taken_by(run, asked)))
        return
    from onnxtool.runtime.output_files import table_bytes

    stdout = out.take_stdout()
    report = run(asked.model, **taken_by(run, asked) | {"output": None})
    stdout.write(table_bytes(Path("-.csv"), report.values, report.columns).decode())
    out.emit(replace(report, written="standard output"))


def _messages(asked: RunCommand) -> list[dict[str, str]]:
    if asked.chat is None:
        return []
    system = [] if asked.system is None else [{"role": "system", "content": asked.system}]
    return [*system, {"role": "user", "content": asked.chat}]


def _writer(asked: RunCommand) -> Callable[[str], None] | None:
    """Where the text goes as it comes; with JSON on stdout, which has the text, only -v shows it beside."""
    if asked.json == "-":
        return _write(sys.stderr) if asked.verbose else None
    return _write(sys.stdout)


def _write(stream: TextIO) -> Callable[[str], None]:
    """Writes a piece of text at once, control characters but line ends and tabs made visible."""

    def write(text: str) -> None:
        from onnxtool.cli.text import clean

        if text:
            stream.write("".join(c if c in "\n\t" else clean(c) for c in text))
        else:
            stream.write("\n")
        stream.flush()

    return write
