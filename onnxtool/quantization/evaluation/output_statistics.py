"""What is seen of one output of a candidate, by all the views that fit what the output is for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from onnxtool.equality.rule.difference import Difference
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.quantization.evaluation.bounds import CONFIDENCE
from onnxtool.quantization.evaluation.box_match import BOX, BoxOverlap, boxes_kept
from onnxtool.quantization.evaluation.class_agreement import ClassAgreement, LabelAgreement
from onnxtool.quantization.evaluation.column_noise import (
    DECADE_POWER,
    ColumnNoise,
    ColumnRatio,
    OrderedColumns,
    PlaceNoise,
    SampleOrder,
    TotalShift,
    column_axis,
    columns_of,
    proportion_noise,
)
from onnxtool.quantization.evaluation.neighbours import VectorAgreement
from onnxtool.quantization.evaluation.output_kind import OutputKind
from onnxtool.quantization.evaluation.score_agreement import ScoreAgreement
from onnxtool.quantization.evaluation.task_metric import samples_axis

# The least signal-to-noise ratio, dB, at the end of the interval. Maps and sequences may be looked at or heard, which
# takes 25. Targets may be sorted into bins or held against a tolerance: with noise of 23 dB the mean absolute error
# grows by a point of the spread where the float model's R2 is 0.94 (the root of 1 - R2 + noise, less that of 1 - R2);
# with 20 dB, which is all that a squared error asks for, where it is 0.76. Nobody looks at logits and scores: 20;
# logits that vary alike 20 together and 17 in each.
CLASSES_DB, VALUES_DB, TARGETS_DB, LOGITS_DB, ALIKE_DB, VECTORS_DB = 17.0, 25.0, 23.0, 20.0, 17.0, 10.0
_PLACES_DB = 3.0  # the noisiest eighth of the places of a map may be so far below its mean, a few columns below most
_SWAPPED_DB = 16.5  # of pairs 2.2 %: what 17 dB of normal noise cost (20 dB cost 1.1 %)
_OVERLAP_DB = 24.4  # boxes: 0.94 on the mean
_LOST = 1e15  # in place of what is not finite; its square is, in float32 too
_FEW = 5  # percent of the columns of vectors, and of targets that vary alike, which may be noisier


def _finite(right: np.ndarray, actual: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both without NaN and infinities: 0 where they have the same one, far apart where one of them has another."""
    odd = ~(np.isfinite(right) & np.isfinite(actual))
    if not odd.any():
        return right, actual
    same = (right == actual) | (np.isnan(right) & np.isnan(actual))
    found = np.where(same, 0, np.float32(_LOST))
    return np.where(odd, np.where(np.isfinite(right), right, 0), right), np.where(odd, found, actual)


class Weakest(NamedTuple):
    """What is furthest below what it needs: its name, its dB, these at least, and what it needs."""

    name: str
    db: float
    at_least: float
    needed: float


@dataclass
class OutputStatistics:
    """Running sums over one output.

    Attributes:
        name: of the output.
        kind: what it is for.
        detailed: keep its full difference.
        scores: which of its columns lie within [0, 1], or whether all do.
        alike: its columns vary about as much as one another; False where there is one alone, or it is no matrix.
        one_length: its rows are all of one length.
        units: its columns do not vary alike, so that none of them is larger than another in any sense.
        amounts: which of its columns are read in proportion, bool [columns]; empty where nothing is known.
        confidence: of what is lost at most.
        class_axis: of classes that exclude one another, where the graph says no more than values or a linear layer.
        gain: of a linear layer's values that are no such classes: what is gained by choosing the highest.
        overlap: of boxes that are an output of their own.
    """

    name: str
    kind: OutputKind
    detailed: bool
    scores: np.ndarray
    alike: bool = False
    one_length: bool = False
    units: bool = False
    amounts: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    confidence: float = CONFIDENCE
    class_axis: int | None = None
    gain: float | None = None
    overlap: BoxOverlap | None = None
    difference: Difference = field(init=False)
    is_float: bool = False
    power: np.ndarray = field(default_factory=lambda: np.zeros(4))  # of float, of candidate, of noise; their product
    whole: ColumnNoise = field(default_factory=ColumnNoise)
    columns: ColumnNoise = field(default_factory=ColumnNoise)
    proportions: ColumnNoise = field(default_factory=ColumnNoise)
    order: SampleOrder = field(default_factory=SampleOrder)
    places: PlaceNoise = field(default_factory=PlaceNoise)
    ordered: OrderedColumns = field(default_factory=OrderedColumns)
    total: TotalShift = field(default_factory=TotalShift)
    vectors: VectorAgreement = field(default_factory=VectorAgreement)
    classes: ClassAgreement = field(init=False)
    found: ScoreAgreement = field(default_factory=ScoreAgreement)

    def __post_init__(self) -> None:
        self.difference = Difference(self.name, Tolerance())
        self.classes = LabelAgreement() if self.kind is OutputKind.LABELS else ClassAgreement(self.gain)

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
        if right.shape != actual.shape or not right.size or self.kind is OutputKind.FOLLOWS:
            return
        if self.kind is OutputKind.LABELS:
            whole = right.ndim == 0 or len(right) != rows  # the batch is one sample
            self.classes.add(*(a[None] if whole else a for a in (right, actual)))
        elif right.dtype.kind in ("fV" if self.kind is OutputKind.DETECTIONS else "fViu"):
            self._add_numbers(right, actual, rows, boxes)

    def _add_numbers(self, right: np.ndarray, actual: np.ndarray, rows: int, boxes: np.ndarray | None) -> None:
        self.is_float = True
        right, actual = _finite(right.astype(np.float32, copy=False), actual.astype(np.float32, copy=False))
        noise = actual - right
        pairs = ((right, right), (actual, actual), (noise, noise), (right, actual))
        self.power += [float(np.multiply(a, b).sum(dtype=np.float64)) for a, b in pairs]
        corners = self.overlap is not None and self.overlap.form == "corners"  # four sizes may look like a middle
        classes = self.kind is OutputKind.CLASSES or (self.kind is OutputKind.LINEAR and not self.units)
        if classes and right.ndim == 1 and len(right) != rows:
            right, actual, noise = right[None], actual[None], noise[None]  # one sample's classes, without a batch
        if classes and right.ndim >= 2 and right.shape[-1] > 1 and not corners:
            behind_steps = samples_axis(right, rows) == 1
            self.classes.add(*(a.swapaxes(0, 1) if behind_steps else a for a in (right, actual)))
        elif self.kind is OutputKind.VECTORS and right.ndim >= 2:
            self.vectors.add(right, actual, rows)
        elif self.kind is OutputKind.DETECTIONS:
            pass  # counted by rows
        elif self.kind is OutputKind.LINEAR:
            pass  # each column by itself
        elif not corners:
            self._add_scores(right, actual, rows)
        if self.overlap is not None and boxes is not None:
            self._add_boxes(right, actual, boxes, corners or not self.scores.any())
        if self.class_axis is not None and self.kind is OutputKind.VALUES and len(right) == rows:
            self.classes.add(*(np.moveaxis(a, self.class_axis, -1) for a in (right, actual)))
        axis = samples_axis(right, rows)
        batch = axis if right.ndim > axis and right.shape[axis] == rows else None
        self.whole.add(right, noise, None, batch)
        if self.kind is OutputKind.CLASSES:
            return
        columns = column_axis(right.shape)
        # What a linear layer gives has its results in the last axis, however many dims are before it.
        is_linear = self.kind is OutputKind.LINEAR and right.ndim > 1
        self.columns.add(right, noise, right.ndim - 1 if is_linear else columns, batch)
        self.ordered.add(right, noise)
        self.total.add(right, noise)
        if self.amounts.any() and self.kind in (OutputKind.VALUES, OutputKind.LINEAR):
            self.proportions.add(*proportion_noise(right, actual), columns, batch)
        if right.ndim == 2 or (right.ndim == 1 and len(right) == rows):
            self.order.add(*(a.reshape(len(a), -1) for a in (right, actual)))
        if columns is not None and batch is not None and columns != batch and right.ndim > 2:
            self.places.add(right, noise, columns, batch)

    def _add_boxes(self, right: np.ndarray, actual: np.ndarray, counting: np.ndarray, sure: bool) -> None:
        """Boxes of which some count: each is found where it was, or it is not; unless they may be scores."""
        assert self.overlap is not None
        found = self.overlap.add(right, actual, counting)
        if sure:
            ones = np.ones(len(found), np.float32)
            self.found.add(ones, ones, found)

    def _add_scores(self, right: np.ndarray, actual: np.ndarray, rows: int) -> None:
        # Only columns that look like scores: within [0, 1], on either side of the threshold.
        a, b = (right[None], actual[None]) if right.ndim == 1 else (columns_of(right), columns_of(actual))
        scores = np.broadcast_to(self.scores, len(a)).copy()
        # What one Sigmoid makes (a mask over frequencies, frame by frame) are scores all over, and not boxes.
        may_be_boxes = right.ndim == 3 and self.kind is not OutputKind.SCORES and scores[BOX:].any()
        matching = boxes_kept(a, b) if may_be_boxes else None
        samples = rows if right.ndim and len(right) == rows else 1
        if matching is not None:
            scores[:BOX] = False
        if not scores.any():
            return
        self.found.add(a[scores], b[scores], True if matching is None else matching, samples)
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
    def least_db(self) -> float:
        """Signal-to-noise ratio that the weakest column needs, dB."""
        if self.kind is OutputKind.VECTORS:
            return VECTORS_DB if self.vectors.recall() is not None else ALIKE_DB
        if self.kind is OutputKind.LINEAR and self.class_axis is not None and self.alike:
            return ALIKE_DB
        if self.kind is OutputKind.SCORES or self.class_axis is not None:
            return LOGITS_DB
        return TARGETS_DB if self.are_targets else VALUES_DB

    @property
    def are_targets(self) -> bool:
        """Columns that are values of their own, and neither vectors, scores, classes nor a map's."""
        told = self.kind in (OutputKind.VECTORS, OutputKind.SCORES) or self.class_axis is not None
        return not told and (self.kind is OutputKind.LINEAR or self.order.samples > 0)

    def _needed(self, column: int) -> float:
        """What a column needs, dB: amounts are held against a tolerance in proportion."""
        return LOGITS_DB if self.are_targets and self.amounts.any() and self.amounts[column] else self.least_db

    @property
    def weakest(self) -> Weakest | None:
        """What is furthest below what it needs; None where columns do not count, or none carries information."""
        if self.kind in (OutputKind.CLASSES, OutputKind.DETECTIONS):
            return None
        together = self.columns.together(self.confidence)
        if self.kind is OutputKind.VECTORS and self.one_length and self.vectors.recall() is not None:
            return None
        found = self.columns.decibels(scores=self.kind is OutputKind.SCORES, confidence=self.confidence)
        found.sort(key=lambda one: one.at_least - self._needed(one.column))
        if not found or together is None:
            return None
        # Who compares vectors adds up their columns; they may be targets all the same.
        if self.kind is OutputKind.VECTORS:
            losses = [Weakest(self.name, together.db, together.at_least, self.least_db)]
            if not self.one_length:
                most = float(np.percentile([one.db for one in found], _FEW, method="lower"))
                losses.append(Weakest(f"{self.name} (its weaker columns)", most, most, ALIKE_DB))
            return min(losses, key=lambda loss: loss.at_least - loss.needed)

        def named(one: ColumnRatio, where: str = "") -> str:
            return (self.name if len(found) == 1 else f"{self.name}[{one.column}]") + where

        few = len(found) * _FEW // 100 if self.are_targets and self.alike else 0
        losses = [
            Weakest(named(one), one.db, one.at_least, self._needed(one.column) - below)
            for one, below in ((found[few], 0.0), (found[0], _PLACES_DB if few else 0.0))
        ]
        if self.alike and self.least_db < TARGETS_DB:
            losses.append(Weakest(f"{self.name} (all columns)", together.db, together.at_least, LOGITS_DB))
        overlap = None if self.overlap is None else self.overlap.decibels(self.confidence)
        if overlap is not None:
            losses.append(Weakest(f"{self.name} (overlap of boxes)", *overlap, _OVERLAP_DB))
        steps = self.ordered.decibels
        if steps is not None:
            losses.append(Weakest(f"{self.name} (from column to column)", steps, steps, LOGITS_DB))
        for one in self.proportions.decibels(confidence=self.confidence, signal_power=DECADE_POWER):
            if self.amounts[one.column]:
                losses.append(Weakest(named(one, " (in proportion)"), one.db, one.at_least, LOGITS_DB))
                break
        swapped = np.zeros(0) if self.kind is OutputKind.SCORES else self.order.swapped()
        if len(swapped):
            one = max(found, key=lambda one: swapped[one.column])
            db = -10 * float(np.log10(max(swapped[one.column], 1e-9)))
            losses.append(Weakest(named(one, " (order of samples)"), db, db, _SWAPPED_DB))
        excess = self.places.excess() if self.kind is OutputKind.VALUES and self.found.f1() is None else np.zeros(0)
        if len(excess):
            one = min(found, key=lambda one: one.db - excess[one.column])
            db = one.db - float(excess[one.column])
            losses.append(Weakest(named(one, " (noisiest eighth)"), db, db, self.least_db - _PLACES_DB))
        return min(losses, key=lambda loss: loss.at_least - loss.needed)

    @property
    def margin_db(self) -> tuple[float, float]:
        """By how many dB it is above what it needs, negative below: as measured, and at least."""
        weakest = self.weakest
        losses = [] if weakest is None else [weakest]
        if self.kind is not OutputKind.VECTORS and not ((self.by_columns or self.are_targets) and losses):
            needed = CLASSES_DB if self.classes.total else self.least_db
            whole = self.whole.decibels(confidence=self.confidence)
            losses += [Weakest(self.name, one.db, one.at_least, needed) for one in whole]
            if not whole and self.power[2] > 0:  # what is the same in nearly all samples has to stay it
                losses.append(Weakest(self.name, self.sqnr_db, self.sqnr_db, needed))
        measured = min((one.db - one.needed for one in losses), default=np.inf)
        return float(measured), float(min((one.at_least - one.needed for one in losses), default=np.inf))

    @property
    def channel_db(self) -> float:
        """Signal-to-noise ratio in dB without the mean: of the worst column where columns count, else of all."""
        columns = self.columns.decibels(scores=self.kind is OutputKind.SCORES) if self.by_columns else []
        if columns:
            return min(one.db for one in columns)
        return min((one.db for one in self.whole.decibels()), default=float("inf"))
