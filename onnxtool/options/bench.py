"""The options of `bench`."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path

from onnxtool.options.option import INPUT, SELDOM, SPEED, option
from onnxtool.options.shared import (
    CUSTOM_OPS,
    DATA,
    HTML,
    JUNIT,
    MARKDOWN,
    REPORT_FILES,
    REQUIRE_PROVIDER,
    SEED,
    TRUST,
    Providers,
    Shown,
)


@dataclass(frozen=True)
class BenchCommand(Providers, Shown):
    """What `bench` takes."""

    models: tuple[Path, ...] = option(
        MISSING,
        "The .onnx files; ratios are to the first. Or the URL or package folder of a server, and its file.",
        argument=True,
        metavar="MODEL...",
    )
    data: Path | None = DATA()
    batches: tuple[int, ...] = option(
        (), "Batch sizes, such as 1,8.", "--batch", kind="counts", metavar="N[,N...]", group=INPUT
    )
    threads: tuple[int, ...] = option(
        (), "Numbers of threads, such as 1,2.", kind="counts", metavar="N[,N...]", group=SPEED
    )
    budget: float = option(2.0, "Time for each model in each setting.", low=0.0, metavar="SECONDS", group=SPEED)
    profiled: bool = option(False, "Also show the time of each operator and node.", "--profile", group=SPEED)
    trace: Path | None = option(
        None, "Leave the first model's profile as Chrome trace.", metavar="FILE.json", step=False, group=SELDOM
    )
    baseline: Path | None = option(
        None, "An earlier --json report; slower is exit 1.", metavar="FILE.json", role="file", group=SPEED
    )
    max_regression: float = option(
        0.05,
        "How much slower than --baseline is allowed.",
        kind="percentage",
        metavar="PERCENT",
        shown="5%",
        group=SPEED,
    )
    connections: tuple[int, ...] = option(
        (), "URL: connections that send without pause.", kind="counts", metavar="N[,N...]", step=False
    )
    rates: tuple[float, ...] = option(
        (), "URL: requests a second, answered or not. Repeatable.", "--rate", metavar="N", step=False
    )
    trust: bool = TRUST(step=False)
    peers: tuple[Path, ...] = option(
        (),
        "Bundle: the same model elsewhere: its Hugging Face folder, or a GGUF file for llama.cpp. Repeatable.",
        "--peer",
        metavar="PATH",
        step=False,
    )
    session_settings: bool = option(
        False, "Also try spinning, arena, memory pattern, execution mode, graph level, ...", step=False
    )
    best: bool = option(False, "Show the fastest setting that is equal, as JSON and as code.", step=False)
    seed: int = SEED()
    require_provider: bool = REQUIRE_PROVIDER()
    custom_op_library: tuple[Path, ...] = CUSTOM_OPS()
    report_files: tuple[str, ...] = REPORT_FILES()
    junit: Path | None = JUNIT()
    markdown: Path | None = MARKDOWN()
    html: Path | None = HTML()
