"""What quantizing a model gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onnxtool.report.base import NOT_IN_JSON, Report
from onnxtool.report.compare import ProviderProof, TensorDifference
from onnxtool.report.measurement.bench import LatencyRatio


@dataclass(frozen=True)
class Fidelity:
    """How far the quantized model's outputs are from the float model's on the same real inputs.

    Attributes:
        sqnr_db: signal-to-quantization-noise ratio in dB, the worst output's.
        cosine: cosine similarity, the worst output's.
        agreement: share of equal argmax over outputs of classes, the worst output's; None where there is none.
        samples: number of samples compared.
        channel_db: signal-to-noise ratio without the mean, dB, the worst output's: of its weakest column or channel
            that carries information; of all elements where the output is classes.
        expected_drop: loss of accuracy to expect, with the float model's own probabilities as the truth; None
            where no output holds classes.
        sequences: `agreement` is of characters in what a CTC decoder reads off, not of single steps.
        flips_at_most: share of other classes (1 - `agreement`) at most, at the confidence asked for.
        flips_counted: 1 - `agreement`, less where float's probabilities say that its best class is not sure.
        drop_at_most: `expected_drop` at most, likewise; it counts what is near a tie and did not flip.
        detection_f1: F1 against the float model of scores over 0.3, 0.5 or 0.7, the worst; None where no output holds
            scores.
        outputs: each output by itself.
        column_db: signal-to-noise ratio of the weakest column of all outputs, linear layers' too; None where there
            is none that counts by itself.
        weakest: its name: "boxes[3]".
        margin_db: by how many dB the weakest output is above what it needs, negative below: 25 for maps and sequences,
            20 for classes, matrices and linear layers, 10 for vectors.
        vector_cosine: mean cosine to the float model's rows, of outputs that are compared with one another; None
            where there is none.
        neighbours: what their ten nearest rows are worth, by how much nearer these are than the mean row by the float
            model's cosines, of what its own ten nearest are; None with too few rows.
        detection_cost: how far from the threshold the float model's scores of what differs, or may differ, are, summed,
            of how many it finds, at most; None where no output holds scores.
        detections: how many the float model finds.
        sample_f1: F1 of scores over 0.5, the mean of each sample's (masks, where large objects would hide small ones);
            None where samples are no pictures of scores.
        sample_cost: `detection_cost` in the same way.
        total_shift: by how much the sum of a map of amounts is off, 0.01 is one in a hundred; None where there is none.
        rare_shift: how far scores over 0.9, or over a threshold that fewer than 20 exceed, move on the mean.
        rare_f1: F1 of these against labels that the float model's scores are the chances of, over its own, on the mean
            of thresholds in a band of a tenth, the worst; None where none is as high.
        class_f1_lost: what the mean F1 of classes loses, 0.01 is a point, against labels that the float model's
            probabilities are the chances of; None where no class is named often enough.
        kinds: what each output was taken for: "classes", "linear", "vectors", "scores", "labels", "detections" or
            "values"; "follows" where nothing of its own can change.
        bounds: the ends of the intervals at the confidence asked for, by the name of the field that each is of:
            `margin_db`, `vector_cosine`, `neighbours`, `detection_f1` and `sample_f1` at least, `sample_cost`,
            `total_shift`, `rare_shift` and `class_f1_lost` at most.
        parts: the same of each output by itself, where there are several.
    """

    sqnr_db: float
    cosine: float
    agreement: float | None
    samples: int
    channel_db: float = float("inf")
    expected_drop: float | None = None
    flips_at_most: float | None = None
    flips_counted: float | None = None
    drop_at_most: float | None = None
    detection_f1: float | None = None
    sequences: bool = False
    outputs: tuple[TensorDifference, ...] = ()
    column_db: float | None = None
    weakest: str = ""
    margin_db: float = float("inf")
    vector_cosine: float | None = None
    neighbours: float | None = None
    detection_cost: float | None = None
    detections: int = 0
    sample_f1: float | None = None
    sample_cost: float | None = None
    total_shift: float | None = None
    rare_shift: float | None = None
    rare_f1: float | None = None
    class_f1_lost: float | None = None
    kinds: Mapping[str, str] = field(default_factory=dict)
    bounds: Mapping[str, float] = field(default_factory=dict)
    parts: tuple[Fidelity, ...] = field(default=(), repr=False, compare=False, metadata=NOT_IN_JSON)

    def at_bound(self, name: str) -> float | None:
        """A field at the end of its interval; as measured where it has none."""
        measured: float | None = getattr(self, name)
        return self.bounds.get(name, measured)


@dataclass(frozen=True)
class TaskMetric:
    """Quality on labelled data, higher is better.

    Attributes:
        name: "accuracy", or the file and function that computed it.
        float_value: of the float model.
        value: of the quantized model.
        samples: number of labelled samples.
        drop_at_most: what is lost at most, at the confidence asked for; None where it cannot be told.
        needed: labelled samples that would show that the budget is kept; None where these do, or none would.
    """

    name: str
    float_value: float
    value: float
    samples: int
    drop_at_most: float | None = None
    needed: int | None = None

    @property
    def drop(self) -> float:
        """What was lost against float; negative when quantization helped."""
        return self.float_value - self.value


@dataclass(frozen=True)
class Candidate:
    """One recipe that `auto` tried.

    Attributes:
        name: what sets it apart.
        recipe: one line.
        bytes: file size.
        latency: against the float model; None when it was dropped before timing.
        fidelity: against the float model; None when it was dropped before measuring.
        metric: on labelled data; None without labels.
        within_budget: it keeps the accuracy budget.
        chosen: it is the one that was written.
        note: why it was dropped.
    """

    name: str
    recipe: str
    bytes: int
    latency: LatencyRatio | None = None
    fidelity: Fidelity | None = None
    metric: TaskMetric | None = None
    within_budget: bool = False
    chosen: bool = False
    note: str = ""


@dataclass(frozen=True, repr=False)
class QuantizeReport(Report, kind="quantize", version=2):
    """One quantization.

    Attributes:
        source: the float model.
        output: the file written; None when nothing was.
        mode: what was asked for.
        summary: the recipe that was applied, in one line.
        recipe: the same in full, without ranges (those are in the file that --recipe writes).
        budget: the accuracy budget in words; empty when none was set.
        confidence: of what is said to be lost at most.
        bytes_before: size of the float model on disk.
        bytes_after: size of the quantized model.
        quantized: per operator type, (nodes quantized, nodes of that type).
        kernels: operators of the runtime's own optimized graph, by number.
        latency: against the float model.
        fidelity: against the float model.
        metric: on labelled data; None without.
        frontier: what `auto` tried, in the order it was tried.
        calibration: where the ranges came from ("128 samples of calib.npz"); empty when none were needed.
        recipe_file: where the recipe was saved to, or came from.
        seconds: time taken for all of it.
        verdict: one sentence; why nothing was written, when nothing was.
        providers: the result on the providers that were asked for, held against the CPU; there it may be off by as much
            as quantizing it took.
        result: the written model as an `onnx_ir.Model` where no output path was named; not part of the JSON form.
    """

    source: str
    output: str | None
    mode: str
    summary: str
    recipe: Mapping[str, Any]
    bytes_before: int
    bytes_after: int
    quantized: Mapping[str, tuple[int, int]]
    kernels: Mapping[str, int]
    latency: LatencyRatio | None
    fidelity: Fidelity | None
    metric: TaskMetric | None = None
    budget: str = ""
    confidence: float = 0.95
    frontier: tuple[Candidate, ...] = ()
    calibration: str = ""
    recipe_file: str = ""
    seconds: float = 0.0
    verdict: str = ""
    warnings: tuple[str, ...] = ()
    providers: tuple[ProviderProof, ...] = ()
    result: Any = field(default=None, repr=False, compare=False, metadata=NOT_IN_JSON)

    @property
    def ok(self) -> bool:
        """True when a file was written, which gives on each provider what it gives on the CPU."""
        return self.output is not None and all(p.ok for p in self.providers)

    @property
    def size_ratio(self) -> float:
        """Size on disk against the float model."""
        return self.bytes_after / max(self.bytes_before, 1)
