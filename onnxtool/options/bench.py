"""The options of `bench`."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path

from onnxtool.options import shared
from onnxtool.options.option import input_option, option, seldom_option, speed_option
from onnxtool.options.shared import Decimal, Providers, Shown


@dataclass(frozen=True)
class BenchCommand(Providers, Shown):
    """What `bench` takes."""

    models: tuple[Path, ...] = option(
        MISSING,
        "The .onnx files; ratios are to the first. Or the URL or package folder of a server, and its file.",
        argument=True,
        metavar="MODEL...",
    )
    data: Path | None = shared.DATA()
    decimal: Decimal = shared.DECIMAL()
    batches: tuple[int, ...] = input_option(
        (), "Batch sizes, such as 1,8.", "--batch", kind="counts", metavar="N[,N...]"
    )
    threads: tuple[int, ...] = speed_option((), "Numbers of threads, such as 1,2.", kind="counts", metavar="N[,N...]")
    budget: float = speed_option(2.0, "Time for each model in each setting.", low=0.0, metavar="SECONDS")
    profiled: bool = speed_option(False, "Also show the time of each operator and node.", "--profile")
    trace: Path | None = seldom_option(
        None, "Leave the first model's profile as Chrome trace.", metavar="FILE.json", step=False
    )
    baseline: Path | None = speed_option(
        None, "An earlier --json report; slower is exit 1.", metavar="FILE.json", role="file"
    )
    max_regression: float = speed_option(
        0.05, "How much slower than --baseline is allowed.", kind="percentage", metavar="PERCENT", shown="5%"
    )
    connections: tuple[int, ...] = option(
        (), "URL: connections that send without pause.", kind="counts", metavar="N[,N...]", step=False
    )
    rates: tuple[float, ...] = option(
        (), "URL: requests a second, answered or not. Repeatable.", "--rate", metavar="N", step=False
    )
    trust: bool = shared.TRUST(step=False)
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
    seed: int = shared.SEED()
    require_provider: bool = shared.REQUIRE_PROVIDER()
    custom_op_library: tuple[Path, ...] = shared.CUSTOM_OPS()
    report_files: tuple[str, ...] = shared.REPORT_FILES()
    junit: Path | None = shared.JUNIT()
    markdown: Path | None = shared.MARKDOWN()
    html: Path | None = shared.HTML()
