"""What `quickstart` gives: the whole job on the bundled model, stage by stage."""

from __future__ import annotations

from dataclasses import dataclass

from onnxtool.report.base import Report


@dataclass(frozen=True)
class Stage:
    """One step of the job.

    Attributes:
        name: "original", "convert", "check", "optimize", "quantize" or "compare".
        command: the same step at the command line, to be repeated by hand inside the folder.
        file: what the step wrote, relative to the folder; None when it writes none.
        bytes: size of that file, weights included.
        nodes: nodes of the graph, subgraphs included; None for a framework file.
        accuracy: share of right answers on the labelled digits; None where not measured.
        latency_ratio: median time of one run against the converted float file; below 1 is faster.
        latency_interval: its 95 % confidence interval.
        outcome: the step's result in a few words.
        seconds: time that the step took.
    """

    name: str
    command: str
    file: str | None
    bytes: int | None
    nodes: int | None
    accuracy: float | None
    latency_ratio: float | None
    latency_interval: tuple[float, float] | None
    outcome: str
    seconds: float


@dataclass(frozen=True, repr=False)
class QuickstartReport(Report, kind="quickstart"):
    """The whole job on the bundled real model.

    Attributes:
        folder: where every artefact lies.
        original: the model that was started from: "PyTorch state_dict" or "ONNX file".
        stages: the steps in their order.
        images: labelled images that accuracy was measured on.
        batch: batch size of the latency measurement.
        baseline: the file that latency ratios are to.
        accuracy_drop: accuracy of the float file minus that of the int8 file.
        max_drop: what it may be.
    """

    folder: str
    original: str
    stages: tuple[Stage, ...]
    images: int
    batch: int
    baseline: str
    accuracy_drop: float
    max_drop: float
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True when the int8 file keeps its accuracy."""
        return self.accuracy_drop <= self.max_drop
