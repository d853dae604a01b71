"""What is seen of one output of a candidate, by all the views that fit what the output is for."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from onnxtool.equality.rule.difference import Difference
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.quantization.evaluation.box_match import BOX, boxes_found, boxes_kept
from onnxtool.quantization.evaluation.class_agreement import ClassAgreement
from onnxtool.quantization.evaluation.column_noise import (
    ColumnNoise,
    OrderedColumns,
    TotalShift,
    column_axis,
    columns_of,
)
from onnxtool.quantization.evaluation.neighbours import VectorAgreement
from onnxtool.quantization.evaluation.output_kind import OutputKind
from onnxtool.quantization.evaluation.score_agreement import ScoreAgreement
from onnxtool.quantization.evaluation.task_metric import samples_axis

# The least signal-to-noise ratio, dB. A column may be a target of its own: 20 dB are an R2 of 0.99 to float, 17 of
# 0.98, 10 of 0.9. Many columns that vary alike are refused only where a target would lose two points.
CLASSES_DB, VALUES_DB, TARGETS_DB, ALIKE_DB, VECTORS_DB = 20.0, 25.0, 20.0, 17.0, 10.0


@dataclass
class OutputStatistics:
    """Running sums over one output.

    Attributes:
        name: of the output.
        kind: what it is for.
        detailed: keep its full difference.
        scores: which of its columns lie within [0, 1], or whether all do.
        alike: its columns vary about as much as one another, and there are as many as a vector has.
        one_length: its rows are all of one length.
        units: its columns do not vary alike, so that none of them is larger than another in any sense.
    """

    name: str
    kind: OutputKind
    detailed: bool
    scores: np.ndarray
    alike: bool = False
    one_length: bool = False
    units: bool = False
    difference: Difference = field(init=False)
    is_float: bool = False
    power: np.ndarray = field(default_factory=lambda: np.zeros(4))  # of float, of candidate, of noise; their product
    whole: ColumnNoise = field(default_factory=ColumnNoise)
    columns: ColumnNoise = field(default_factory=ColumnNoise)
    ordered: OrderedColumns = field(default_factory=OrderedColumns)
    total: TotalShift = field(default_factory=TotalShift)
    vectors: VectorAgreement = field(default_factory=VectorAgreement)
    classes: ClassAgreement = field(default_factory=ClassAgreement)
    found: ScoreAgreement = field(default_factory=ScoreAgreement)

    def __post_init__(self) -> None:
        self.difference = Difference(self.name, Tolerance())

    def add(self, right: np.ndarray, actual: np.ndarray, rows: int, boxes: np.ndarray | None = None) -> None:
        """Take in a batch.

        Args:
            right: what the float model gave.
            actual: what the candidate gave.
            rows: samples in the batch.
            boxes: where the output is boxes, those that count.
        """
        if self.detailed:
            self.difference.add(right, actual)
        if right.dtype.kind not in "fV" or right.shape != actual.shape or not right.size:
            return
        self.is_float = True
        right, actual = right.astype(np.float32, copy=False), actual.astype(np.float32, copy=False)
        noise = actual - right
        pairs = ((right, right), (actual, actual), (noise, noise), (right, actual))
        self.power += [float(np.multiply(a, b).sum(dtype=np.float64)) for a, b in pairs]
        classes = self.kind is OutputKind.CLASSES or (self.kind is OutputKind.LINEAR and not self.units)
        if classes and right.ndim == 1 and len(right) != rows:
            right, actual, noise = right[None], actual[None], noise[None]  # one sample's classes, without a batch
        if classes and right.ndim >= 2 and right.shape[-1] > 1 and boxes is None:
            behind_steps = samples_axis(right, rows) == 1
            self.classes.add(*(a.swapaxes(0, 1) if behind_steps else a for a in (right, actual)))
        elif self.kind is OutputKind.VECTORS and right.ndim >= 2:
            self.vectors.add(right, actual)
        elif self.kind is OutputKind.DETECTIONS:
            pass  # counted by rows
        elif self.kind is OutputKind.LINEAR:
            pass  # each column by itself
        elif boxes is not None:
            self._add_boxes(right, actual, boxes)
        else:
            self._add_scores(right, actual, rows)
        self.whole.add(right, noise, None)
        if self.kind is not OutputKind.CLASSES:
            self.columns.add(right, noise, column_axis(right.shape))
            self.ordered.add(right, noise)
            self.total.add(right, noise)

    def _add_boxes(self, right: np.ndarray, actual: np.ndarray, counting: np.ndarray) -> None:
        """Boxes of which some count: each is found where it was, or it is not found."""
        kept = boxes_found(right, actual)
        if kept is not None:
            sure = np.ones(int(counting.sum()), np.float32)
            self.found.add(sure, sure, kept[counting])

    def _add_scores(self, right: np.ndarray, actual: np.ndarray, rows: int) -> None:
        # Only columns that look like scores: within [0, 1], on either side of the threshold.
        a, b = columns_of(right), columns_of(actual)
        scores = np.broadcast_to(self.scores, len(a)).copy()
        # What one Sigmoid makes (a mask over frequencies, frame by frame) are scores all over, and not boxes.
        may_be_boxes = right.ndim == 3 and self.kind is not OutputKind.SCORES and scores[BOX:].any()
        matching = boxes_kept(a, b) if may_be_boxes else None
        if matching is not None:
            scores[:BOX] = False
        if not scores.any():
            return
        self.found.add(a[scores], b[scores], True if matching is None else matching)
        if scores.all() and right.ndim > 1 and len(right) == rows:
            self.found.add_samples(right.reshape(rows, -1), actual.reshape(rows, -1))

    @property
    def sqnr_db(self) -> float:
        """Signal-to-noise ratio in dB."""
        return float(10 * np.log10(max(self.power[0], 1e-300) / self.power[2])) if self.power[2] > 0 else float("inf")

    @property
    def cosine(self) -> float:
        """Cosine similarity."""
        norm = float(np.sqrt(self.power[0] * self.power[1]))
        return float(self.power[3] / norm) if norm > 0 else float(self.power[2] == 0)

    @property
    def by_columns(self) -> bool:
        """True where every column counts."""
        return self.kind in (OutputKind.VALUES, OutputKind.SCORES)

    @property
    def counted(self) -> bool:
        """True where what it is used for was counted: scores over a threshold, in all of its columns."""
        return self.kind is OutputKind.SCORES and self.found.f1 is not None

    @property
    def least_db(self) -> float:
        """Signal-to-noise ratio that the weakest column needs, dB."""
        if self.kind is OutputKind.VECTORS:
            return VECTORS_DB
        if self.counted:
            return TARGETS_DB
        if self.kind is OutputKind.LINEAR:
            several = max(self.columns.sums, default=1) > 1  # one alone is like no other
            return ALIKE_DB if several and not self.units else TARGETS_DB
        return ALIKE_DB if self.alike and self.kind is not OutputKind.SCORES else VALUES_DB

    @property
    def worst_column(self) -> tuple[str, float] | None:
        """(name, dB) of the weakest column; None where columns do not count, or none carries information.

        Where columns are in ascending order, their differences are one more.
        """
        if self.kind in (OutputKind.CLASSES, OutputKind.DETECTIONS) or self.one_length:
            return None
        if self.kind is OutputKind.VECTORS:
            together = self.columns.together  # who compares vectors adds up their columns
            return None if together is None else (self.name, together)
        found = self.columns.decibels(alike=self.kind is OutputKind.SCORES)
        if not found:
            return None
        column, ratio = found[0]
        steps = self.ordered.decibels
        if steps is not None and steps < ratio:
            return f"{self.name} (from column to column)", steps
        return self.name if len(found) == 1 else f"{self.name}[{column}]", ratio

    @property
    def margin_db(self) -> float:
        """By how many dB it is above what it needs, negative below."""
        worst = self.worst_column
        column = float("inf") if worst is None else worst[1] - self.least_db
        if self.kind is OutputKind.VECTORS:
            return column
        least = CLASSES_DB if self.classes.total else self.least_db
        return min(column, self.channel_db - least)

    @property
    def channel_db(self) -> float:
        """Signal-to-noise ratio in dB without the mean: of the worst column where columns count, else of all."""
        found = self.worst_column if self.by_columns else None
        if found is not None:
            return found[1]
        return min((ratio for _, ratio in self.whole.decibels()), default=float("inf"))
