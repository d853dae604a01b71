"""What a package's settings are made of: measured on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from onnxtool.model import io
from onnxtool.runtime import cpu
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import SessionOptions
from onnxtool.runtime.timing.timing import measure

_BASE_MB = 160  # of Python, the runtime and a server
_SECONDS = 1.0
# One process is simpler and takes less memory: several must gain this much.
_WORTH = 1.1
_QUICK = 2e-3  # below this the server's own work, in one process on one core, is most of a request


@dataclass(frozen=True)
class Figures:
    """Settings for a server on a machine like this one.

    Attributes:
        workers: processes.
        threads: of one run.
        runs: at a time in one process.
        cores: of this machine.
        latency: seconds of a run with these threads.
        memory_mb: for all processes together, with room for requests.
    """

    workers: int
    threads: int
    runs: int
    cores: int
    latency: float
    memory_mb: int


def measure_figures(model: Path, feeds: Mapping[str, np.ndarray], options: SessionOptions) -> Figures:
    """Find out whether one run should use all cores, or each core a run of its own.

    Args:
        model: an .onnx file.
        feeds: of one request.
        options: how it is run; its threads are tried out here.
    """
    cores = max(1, cpu.usable_cores())
    per_process = max(1, io.total_bytes(model) // 1_000_000 * 2)
    quiet = replace(options, spinning="runs")
    whole = OnnxRunner.open(model, replace(quiet, threads=cores))
    single = OnnxRunner.open(model, replace(quiet, threads=1))
    for runner in (whole, single):
        runner.run(feeds)
    with ThreadPoolExecutor(cores) as threads:

        def one_by_one() -> object:
            return [whole.run(feeds) for _ in range(cores)]

        def beside() -> object:
            return list(threads.map(lambda _: single.run(feeds), range(cores)))

        alone, apart = measure([one_by_one, beside], budget=_SECONDS, minimum=3, maximum=200, warmup=1)
    split = cores > 1 and alone.median / apart.median > _WORTH
    latency = (apart.median if split else alone.median / cores) if cores else 0.0
    workers = cores if split and latency < _QUICK else 1
    runs = 1 if workers > 1 else (cores if split else 2)
    return Figures(
        workers=workers,
        threads=1 if split else cores,
        runs=runs,
        cores=cores,
        latency=latency,
        memory_mb=int(workers * (_BASE_MB + per_process) * 1.5) + 256,
    )
