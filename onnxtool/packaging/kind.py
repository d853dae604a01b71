"""What a kind of package is, what it is given, and the figures that its README states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from onnxtool.errors import OnnxToolError
from onnxtool.model import io
from onnxtool.model.spec import TensorSpec
from onnxtool.options.package import WebOptions
from onnxtool.options.session import DEFAULT
from onnxtool.report.package import Started
from onnxtool.runtime import cpu
from onnxtool.runtime.empty_inputs import empty_sizes
from onnxtool.runtime.feeds import random_feeds
from onnxtool.runtime.runner import OnnxRunner, Runner, closing
from onnxtool.runtime.session.session import SessionOptions
from onnxtool.runtime.timing.timing import measure
from onnxtool.runtime.worker.worker import Worker

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


TEMPLATES = Path(__file__).parent / "templates"
MODEL = "model.onnx"


@dataclass(frozen=True)
class Subject:
    """The model that is packaged.

    Attributes:
        path: the .onnx file.
        name: as endpoints and files call it: letters, digits, - and _.
        inputs, outputs: of the model.
        feeds: the inputs it is proven on, one mapping for each run.
        figures: what was measured: threads, workers, batches, memory.
        versions: of the packages that requirements pin.
        web: what the kind "web" takes.
        fresh: make a fresh virtual environment for what is started (this installs packages).
        options: how the file is run.
    """

    path: Path
    name: str
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    feeds: Sequence[Mapping[str, np.ndarray]]
    figures: Figures
    versions: Mapping[str, str] = field(default_factory=dict)
    web: WebOptions = field(default_factory=WebOptions)
    fresh: bool = False
    options: SessionOptions = DEFAULT

    @property
    def takes_extensions(self) -> bool:
        """Whether it runs with the operators of onnxruntime-extensions."""
        return bool(self.options.custom_op_libraries)

    def takes_empty(self) -> bool:
        """Whether the model runs on every dynamic dim of 0; tried in a process that it may crash."""
        sizes = empty_sizes(self.inputs)
        together = {name: 0 for size in sizes for name in size.get("dims", ())}
        try:
            worker = Worker(self.path, self.options)
            with closing(worker):
                for size in (*sizes, {"dims": together}):
                    worker.run(random_feeds(self.inputs, **size))
        except OnnxToolError:
            return False
        return True


class PackageKind:
    """Base of a kind of package. A subclass writes a folder, and says how what it wrote is run.

    Attributes:
        name: for --for.
        title: what the folder is, in the first line of its README.
        commands: the two commands that its README shows.
        carries_extensions: whether onnxruntime-extensions (tokenizers, decoding of pictures) can go with the model.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    commands: ClassVar[tuple[str, ...]]
    carries_extensions: ClassVar[bool] = False

    def model_path(self, name: str) -> str:
        """Where the model lies in the folder.

        Args:
            name: as the package calls the model.
        """
        del name
        return MODEL

    def write(self, folder: Path, subject: Subject) -> None:
        """Write everything but the model, golden files, provenance and README, which all kinds have.

        Raises:
            UnsupportedError: the model has what this kind cannot carry.
        """
        raise NotImplementedError

    def start(self, folder: Path, subject: Subject | None) -> tuple[Runner, Started]:
        """Run what was written, as a Runner with a `close`.

        Args:
            folder: the package.
            subject: None when a package of earlier is run (`compare`), from its folder alone.

        Raises:
            MissingExtraError, UnsupportedError: what it takes is not here.
            InputError: it does not start.
        """
        raise NotImplementedError

    def note(self, subject: Subject) -> str:
        """A paragraph of the README on this kind; empty for none."""
        del subject
        return ""


def filled(template: str, values: Mapping[str, object]) -> str:
    """A template file with its @NAME@ places filled."""
    text = (TEMPLATES / template).read_text(encoding="utf-8")
    for key, value in values.items():
        text = text.replace(f"@{key}@", str(value))
    return text


def constants(template: str, values: Mapping[str, object]) -> str:
    """A Python template, which runs as it is, with other values for constants of its own: lines `NAME = ...`."""
    lines = (TEMPLATES / template).read_text(encoding="utf-8").splitlines()
    for key, value in values.items():
        at = next(i for i, line in enumerate(lines) if line.startswith((f"{key} = ", f"{key}: ")))
        lines[at] = f"{key} = {value}"
    return "\n".join(lines) + "\n"


def write_smoke_test(folder: Path, template: str, values: Mapping[str, object] = MappingProxyType({})) -> None:
    """smoke_test.py from a template, and what holds its answers against the recorded ones.

    Args:
        folder: of the package.
        template: a file among the templates.
        values: of constants in it.
    """
    (folder / "smoke_test.py").write_text(constants(template, values), encoding="utf-8")
    (folder / "recorded.py").write_text(constants("every/recorded.py", {}), encoding="utf-8")
