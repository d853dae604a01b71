"""`onnxtool run`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TextIO

import typer

from onnxtool.cli import completion as complete
from onnxtool.cli import options as o
from onnxtool.cli.output import Output

_BUNDLE = "Language models"


def command(
    model: o.ModelArgument,
    data: o.DataOption = None,
    image: o.ImageOption = "",
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            autocompletion=complete.input_files,
            metavar="NAME=FILE.npy",
            help="One input from one file. Repeatable.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT.npz|.npy|.csv",
            help="Write the outputs: all of them (.npz), the only one (.npy), or a row for each sample (.csv).",
            show_default=False,
        ),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option("--batch", min=1, help="Batch size of random inputs, where it is dynamic.", show_default=False),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option(
            "--prompt", metavar="TEXT", help="Continue this text.", rich_help_panel=_BUNDLE, show_default=False
        ),
    ] = None,
    chat: Annotated[
        str | None,
        typer.Option(
            "--chat", metavar="TEXT", help="Answer this in a chat.", rich_help_panel=_BUNDLE, show_default=False
        ),
    ] = None,
    system: Annotated[
        str | None,
        typer.Option(
            "--system", metavar="TEXT", help="How to answer in the chat.", rich_help_panel=_BUNDLE, show_default=False
        ),
    ] = None,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", min=1, help="The most new tokens.", rich_help_panel=_BUNDLE)
    ] = 256,
    temperature: Annotated[
        float,
        typer.Option(
            "--temperature", min=0.0, help="0 takes the most probable token, 1 draws one.", rich_help_panel=_BUNDLE
        ),
    ] = 0.0,
    top_p: Annotated[
        float,
        typer.Option(
            "--top-p",
            min=0.0,
            max=1.0,
            help="Draw from the tokens that have this probability together.",
            rich_help_panel=_BUNDLE,
        ),
    ] = 1.0,
    adapter: Annotated[
        Path | None,
        typer.Option(
            "--adapter",
            metavar="FILE.onnx_adapter",
            help="Add the weights of a LoRA adapter that was kept apart.",
            rich_help_panel=_BUNDLE,
            show_default=False,
        ),
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option(
            "--stop", metavar="TEXT", help="End at this text. Repeatable.", rich_help_panel=_BUNDLE, show_default=False
        ),
    ] = None,
    seed: o.SeedOption = 0,
    provider: o.ProviderOption = None,
    ep_library: o.EpLibraryOption = None,
    require_provider: o.RequireProviderOption = False,
    threads: o.ThreadsOption = None,
    custom_op_library: o.CustomOpOption = None,
    json: o.JsonOption = None,
    verbose: o.VerboseOption = 0,
    quiet: o.QuietOption = False,
) -> None:
    """Run a model once on given or, without --data and --input, random inputs.

    A bundle (see convert) continues a --prompt or answers a --chat; its text is written as it comes, with -q alone.
    """
    with Output(json, verbose, quiet) as out:
        from onnxtool.generation.bundle import is_bundle

        if is_bundle(model):
            from onnxtool.generation.generate import generate
            from onnxtool.generation.sampling import Sampling

            answer = generate(
                model,
                prompt=prompt,
                messages=_messages(system, chat),
                max_tokens=max_tokens,
                sampling=Sampling(temperature, top_p=top_p, seed=seed),
                stop=stop or (),
                threads=threads,
                adapter=adapter,
                write=_writer(json, verbose),
            )
            out.emit(answer)
            return
        from onnxtool.cli.session import session_options
        from onnxtool.runtime.run import run

        options = session_options(provider, threads, custom_op_library, ep_library)
        out.emit(
            run(
                model,
                data=data,
                inputs=_pairs(inputs or []),
                output=output,
                batch=batch,
                seed=seed,
                options=options,
                images=image,
                require_provider=require_provider,
            )
        )


def _messages(system: str | None, chat: str | None) -> list[dict[str, str]]:
    roles = (("system", system), ("user", chat))
    return [{"role": role, "content": text} for role, text in roles if text is not None] if chat is not None else []


def _writer(json: str | None, verbose: int) -> Callable[[str], None] | None:
    """Where the text goes as it comes; with JSON on stdout, which has the text, only -v shows it beside."""
    if json == "-":
        return _write(sys.stderr) if verbose else None
    return _write(sys.stdout)


def _write(stream: TextIO) -> Callable[[str], None]:
    """Writes a piece of text at once, control characters but line ends and tabs made visible."""

    def write(text: str) -> None:
        from onnxtool.cli.render.text import clean

        if text:
            stream.write("".join(c if c in "\n\t" else clean(c) for c in text))
        else:
            stream.write("\n")
        stream.flush()

    return write


def _pairs(texts: list[str]) -> dict[str, str]:
    from onnxtool.errors import UsageError

    pairs: dict[str, str] = {}
    for text in texts:
        # Input names may hold "=" less likely than file names do; the first one separates.
        name, separator, file = text.partition("=")
        if not (name and separator and file):
            raise UsageError(f"--input {text}: write NAME=FILE.npy.")
        if name in pairs:
            raise UsageError(f"--input names {name!r} twice.")
        pairs[name] = file
    return pairs
