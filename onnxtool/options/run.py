"""The options of `run`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onnxtool.options import shared
from onnxtool.options.option import input_option, option, output_option, seldom_option
from onnxtool.options.shared import Decimal, Runtime, Shown


@dataclass(frozen=True)
class RunCommand(Runtime, Shown):
    """What `run` takes."""

    model: Path = shared.MODEL()
    data: Path | None = shared.DATA()
    decimal: Decimal = shared.DECIMAL()
    images: str = shared.IMAGES()
    inputs: Mapping[str, str] = input_option(
        {},
        "One input from one file. Repeatable.",
        "--input",
        kind="files",
        metavar="NAME=FILE.npy",
        complete="input_files",
    )
    output: Path | None = output_option(
        None,
        "Write the outputs: all of them (.npz), the only one (.npy), or a table with a row for each sample (.csv, "
        ".tsv, .jsonl, .parquet, .feather; - for CSV on stdout).",
        "--output",
        "-o",
        metavar="FILE",
    )
    batch: int | None = input_option(None, "Batch size of random inputs, where it is dynamic.", low=1)
    prompt: str | None = option(None, "Continue this text.", metavar="TEXT")
    chat: str | None = option(None, "Answer this in a chat.", metavar="TEXT")
    system: str | None = option(None, "How to answer in the chat.", metavar="TEXT")
    max_tokens: int = option(256, "The most new tokens.", low=1)
    temperature: float = option(0.0, "0 takes the most probable token, 1 draws one.", low=0.0)
    top_p: float = option(1.0, "Draw from the tokens that have this probability together.", low=0.0, high=1.0)
    adapter: Path | None = seldom_option(
        None, "Add the weights of a LoRA adapter that was kept apart.", metavar="FILE.onnx_adapter"
    )
    stop: tuple[str, ...] = option((), "End at this text. Repeatable.", metavar="TEXT")
    seed: int = shared.SEED()
    require_provider: bool = shared.REQUIRE_PROVIDER()
