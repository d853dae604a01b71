"""The whole job on the bundled model; it spans all packages, so it stands above them."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from onnxtool import progress
from onnxtool.bundled_data import bundled_folder
from onnxtool.conversion.convert import convert, open_source
from onnxtool.equality.compare import compare
from onnxtool.errors import UsageError, VerdictError
from onnxtool.lint.check import check
from onnxtool.model import io
from onnxtool.model.header import read_header
from onnxtool.optimization.optimize import optimize
from onnxtool.quantization.evaluation.metrics import accuracy
from onnxtool.quantization.quantize import quantize
from onnxtool.report.base import Report
from onnxtool.report.quickstart import QuickstartReport, Stage
from onnxtool.runtime.data.archive import read_npz
from onnxtool.runtime.runner import OnnxRunner, Runner
from onnxtool.runtime.session.session import SessionOptions
from onnxtool.runtime.timing.timing import measure, ratio

MAX_DROP = 0.01
BATCH = 64
_BUDGET = 2.0  # seconds for the latencies of all stages
FLOAT, OPTIMIZED, INT8 = "digits.onnx", "digits.opt.onnx", "digits.int8.onnx"
_SHAPE = "image:batch,1,8,8"
Say = Callable[[str, str], None]


def quickstart(folder: str | os.PathLike[str] = "quickstart", say: Say | None = None) -> QuickstartReport:
    """Convert, check, optimize, quantize, compare and measure the bundled digit classifier.

    Args:
        folder: where all files are left; made when missing, files of an earlier run are replaced.
        say: called after each step with the command that repeats it and its outcome.

    Returns:
        A report; `ok` when the int8 file's accuracy is within one point of float.

    Raises:
        UsageError: the folder cannot be made.
        VerdictError: a step found the model unsound or unequal.
    """
    job = _Job(Path(folder))
    steps = [job.original, job.convert, job.check, job.optimize, job.quantize, job.compare]
    with progress.task("quickstart", len(steps) + 1) as task:
        for step in steps:
            began = time.perf_counter()
            stage = step()
            job.stages.append(replace(stage, seconds=time.perf_counter() - began))
            if say is not None and stage.command:
                say(stage.command, stage.outcome)
            task.advance()
        stages = job.timed()
        if say is not None:
            say(
                f"onnxtool bench {FLOAT} {OPTIMIZED} {INT8} --batch {BATCH} --threads 1",
                "latency, side by side: see the table",
            )
    scores = {s.file: s.accuracy for s in stages if s.accuracy is not None}
    return QuickstartReport(
        folder=str(folder),
        original=job.form,
        stages=tuple(stages),
        images=len(job.labels),
        batch=BATCH,
        baseline=FLOAT,
        accuracy_drop=scores[FLOAT] - scores[INT8],
        max_drop=MAX_DROP,
        warnings=tuple(job.warnings),
    )


class _Job:
    """The steps; each gives its Stage."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.torch = find_spec("torch") is not None
        self.form = "PyTorch state_dict" if self.torch else "ONNX file"
        self.stages: list[Stage] = []
        self.warnings: list[str] = []
        names = ["calib.npz", "eval.npz", *(["digits_cnn.pt", "digits_cnn.py"] if self.torch else ["digits_cnn.onnx"])]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name in names:
                shutil.copyfile(bundled_folder() / name, folder / name)
        except OSError as error:
            raise UsageError(f"{folder}: cannot be used as the folder of results ({error.strerror}).") from error
        arrays = read_npz(folder / "eval.npz")
        self.images, self.labels = {"image": arrays["image"]}, arrays["label"]

    def original(self) -> Stage:
        if not self.torch:
            self.warnings.append(
                "PyTorch is not installed, so the job started from an ONNX file: "
                'pip install ".[pytorch]" in a clone of onnxtool shows the conversion too.'
            )
            return self._stage("original", "", "digits_cnn.onnx", "ONNX file")
        model = open_source(
            self.folder / "digits_cnn.pt",
            factory=f"{self.folder / 'digits_cnn.py'}:make",
            input_shapes={"image": ("batch", 1, 8, 8)},
        )
        return self._stage("original", "", "digits_cnn.pt", "PyTorch state_dict", model)

    def convert(self) -> Stage:
        if not self.torch:
            shutil.copyfile(self.folder / "digits_cnn.onnx", self.folder / FLOAT)
            return self._stage("convert", f"cp digits_cnn.onnx {FLOAT}", FLOAT, "is ONNX already")
        report = convert(
            self.folder / "digits_cnn.pt",
            self.folder / FLOAT,
            factory=f"{self.folder / 'digits_cnn.py'}:make",
            input_shapes={"image": ("batch", 1, 8, 8)},
            output_names=("logits",),
        )
        self._keep("convert", report)
        assert report.comparison is not None and report.comparison.worst is not None
        command = (
            f"onnxtool convert digits_cnn.pt --factory digits_cnn.py:make --input-shape {_SHAPE} "
            f"--output-names logits -o {FLOAT}"
        )
        outcome = f"equal to PyTorch, max error {report.comparison.worst.max_abs:.1e}"
        return self._stage("convert", command, FLOAT, outcome)

    def check(self) -> Stage:
        report = check(self.folder / FLOAT)
        self._keep("check", report)
        return self._stage("check", f"onnxtool check {FLOAT}", None, "sound: specification, shapes, runtime")

    def optimize(self) -> Stage:
        report = optimize(self.folder / FLOAT, self.folder / OPTIMIZED)
        self._keep("optimize", report)
        return self._stage(
            "optimize", f"onnxtool optimize {FLOAT} -o {OPTIMIZED}", OPTIMIZED, "equal to the float file"
        )

    def quantize(self) -> Stage:
        report = quantize(
            self.folder / OPTIMIZED,
            self.folder / INT8,
            mode="static",
            data=self.folder / "calib.npz",
            eval_data=self.folder / "eval.npz",
            labels="label",
        )
        self._keep("quantize", report)
        command = (
            f"onnxtool quantize {OPTIMIZED} -o {INT8} --mode static --data calib.npz --eval eval.npz --labels label"
        )
        return self._stage("quantize", command, INT8, "int8, calibrated on 128 real images")

    def compare(self) -> Stage:
        report = compare(self.folder / FLOAT, self.folder / OPTIMIZED, data=self.folder / "eval.npz")
        self._keep("compare", report)
        assert report.worst is not None
        outcome = f"equal on the labelled images, max error {report.worst.max_abs:.1e}"
        return self._stage("compare", f"onnxtool compare {FLOAT} {OPTIMIZED} --data eval.npz", None, outcome)

    def timed(self) -> list[Stage]:
        """The stages with latency: the three ONNX files alternate in one measurement."""
        files = [FLOAT, OPTIMIZED, INT8]
        # One thread, and its own processor time: what others do on the machine disturbs it least.
        runners = [OnnxRunner.open(self.folder / name, SessionOptions(threads=1)) for name in files]
        feeds = {"image": np.resize(self.images["image"], (BATCH, 1, 8, 8))}
        calls = [lambda r=r: r.run(feeds) for r in runners]
        timings = measure(calls, budget=_BUDGET, minimum=30, clock=time.thread_time)
        ratios = {name: ratio(t, timings[0]) for name, t in zip(files, timings, strict=True)}
        return [
            s
            if s.file not in ratios
            else replace(
                s, latency_ratio=ratios[s.file].value, latency_interval=(ratios[s.file].low, ratios[s.file].high)
            )
            for s in self.stages
        ]

    def _stage(self, name: str, command: str, file: str | None, outcome: str, runner: Runner | None = None) -> Stage:
        score = nodes = None
        onnx_file = file is not None and file.endswith(".onnx")
        if file is not None and onnx_file:
            runner = OnnxRunner.open(self.folder / file)
            nodes = read_header(io.read_proto(self.folder / file)).nodes
        if runner is not None:
            score = accuracy(runner.run(self.images), self.labels)
        size = None if file is None else io.total_bytes(self.folder / file)
        return Stage(name, command, file, size, nodes, score, None, None, outcome, 0.0)

    def _keep(self, name: str, report: Report) -> None:
        """Leave the report beside the models; a bad verdict ends the job."""
        import json

        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(report.to_dict(), indent=2) + "\n", encoding="utf-8")
        if not report.ok:
            raise VerdictError(f"the step {name!r} failed; see {shlex.quote(str(path))}.")
