"""Fidelity: how far a candidate's outputs are from the float model's, and what that would cost in accuracy.

Several views, because no one of them fits every output; `output_kind` says what an output is for:

- classes (logits or probabilities over the last axis): the share of equal argmax, and the expected loss of
  accuracy. The latter takes the float model's own probabilities as the truth: a flip between two classes that it
  holds for equally likely costs nothing, one away from a sure class costs much.
- classes of a sequence with a blank (CTC, text and speech recognisers): edit distance of the texts that are read off,
  because a character may move by a step without being another one.
- scores in [0, 1] of a dense output (detections, masks): F1 of what exceeds a threshold (0.3, 0.5, 0.7; the worst);
  where the first four columns are boxes, what exceeds it and overlaps with where it was.
- vectors that are compared with one another (embeddings, hidden states): cosine, and neighbours kept.
- anything else: the signal-to-noise ratio, column by column and channel by channel, each on its own scale with its mean
  taken off, so that large box coordinates do not drown small scores; the worst one that carries information counts.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from onnxtool.errors import InputError
from onnxtool.quantization.evaluation.box_match import boxes_kept
from onnxtool.quantization.evaluation.column_noise import ColumnNoise, column_axis, columns_of, within_scores
from onnxtool.quantization.evaluation.ctc import collapse, edit_distance
from onnxtool.quantization.evaluation.neighbours import VectorAgreement
from onnxtool.quantization.evaluation.output_kind import OutputKind, kind_of
from onnxtool.quantization.evaluation.probabilities import probabilities
from onnxtool.report.quantize import Fidelity
from onnxtool.runtime.data.source import DataSource
from onnxtool.runtime.runner import Runner
from onnxtool.validation.equivalence.difference import Difference
from onnxtool.validation.equivalence.tolerance_policy import Tolerance

_THRESHOLDS = np.array([0.3, 0.5, 0.7])  # of a score, from which on people act on it
_MOST_TARGETS = 64
_MIN_DETECTIONS = 20
_BOX = 4  # columns of a box
_BLANK_SHARE = 0.3
_VALUES_GLANCED = 4096  # of the outputs
_LEAST_GLANCED, _MOST_GLANCED = 4, 8  # samples
_FIRST_LOOK = 16  # samples
_FIRST_LOOK_AT_MANY = 8  # where each gives so many results as
_MANY_RESULTS = 64
Outputs = Mapping[str, np.ndarray]


@dataclass
class Judgement:
    """What was seen of a candidate so far: statistics of its outputs, over the first so many batches."""

    views: dict[str, _OutputStatistics] = field(default_factory=dict)
    batches: int = 0


class FidelityEvaluator:
    """The float model's outputs on some samples, kept to judge many candidates against.

    Kept in memory up to `limit` bytes; samples beyond are left out (fidelity needs no more).
    """

    def __init__(
        self,
        model: ir.Model,
        runner: Runner,
        data: DataSource,
        *,
        batch: int = 8,
        limit: int = 256_000_000,
        kinds: Mapping[str, OutputKind] | None = None,
    ) -> None:
        """Run the float model; `kinds` says what outputs are for where the graph is not to be asked."""
        self.kinds = {v.name or "": kind_of(v) for v in model.graph.outputs} | dict(kinds or {})
        try:
            self._observe(runner, data, batch, limit)
        except InputError:
            if batch == 1:
                raise
            self._observe(runner, data, 1, limit)  # some models declare any batch and take 1 only

    def _observe(self, runner: Runner, data: DataSource, batch: int, limit: int) -> None:
        """Run the float model on the samples, `batch` at a time."""
        self.feeds: list[dict[str, np.ndarray]] = []
        self.outputs: list[dict[str, np.ndarray]] = []
        self.samples = 0
        held = 0
        for feeds in data.batches(batch):
            outputs = {name: np.asarray(v) for name, v in runner.run(feeds).items()}
            held += sum(a.nbytes for a in (*feeds.values(), *outputs.values()))
            self.feeds.append(feeds)
            self.outputs.append(outputs)
            self.samples += _rows(feeds, outputs)
            if held > limit:
                break
        self._scores = {
            name: within_scores([outputs[name] for outputs in self.outputs]) for name in (self.outputs or [{}])[0]
        }

    def judge(
        self,
        runner: Runner,
        few: bool = False,
        *,
        detailed: bool = False,
        check: Callable[[Outputs, Outputs], None] | None = None,
        begun: Judgement | None = None,
    ) -> Fidelity:
        """Run a candidate on the same samples.

        Args:
            runner: the candidate.
            few: on the first few of them only: 16, or 8 where each is classified in many places (tokens, pixels).
            detailed: each output's full difference goes into the result; it takes several times as long.
            check: called with the float model's outputs and the candidate's; may raise.
            begun: what an earlier call has seen of the same candidate, which is gone on with.
        """
        judgement = Judgement() if begun is None else begun
        views, first = judgement.views, judgement.batches
        end = self._batches_of_a_first_look() if few else len(self.feeds)
        for feeds, expected in zip(self.feeds[first:end], self.outputs[first:end], strict=True):
            actual, rows = runner.run(feeds), _rows(feeds, expected)
            if check is not None:
                check(expected, actual)
            for name, right in expected.items():
                kind = self.kinds.get(name, OutputKind.VALUES)
                view = views.setdefault(name, _OutputStatistics(name, kind, detailed, self._scores[name]))
                view.add(right, np.asarray(actual[name]), rows)
            judgement.batches += 1
        samples = sum(map(_rows, self.feeds[: judgement.batches], self.outputs))
        return _summary(list(views.values()), samples)

    def _batches_of_a_first_look(self) -> int:
        places = sum(
            a.size // a.shape[-1] // len(a)
            for name, a in self.outputs[0].items()
            if a.ndim > 2 and a.size and self.kinds.get(name) in (OutputKind.CLASSES, OutputKind.LINEAR)
        )
        left = _FIRST_LOOK_AT_MANY if places >= _MANY_RESULTS else _FIRST_LOOK
        for count, (feeds, outputs) in enumerate(zip(self.feeds, self.outputs, strict=True), 1):
            left -= _rows(feeds, outputs)
            if left <= 0:
                return count
        return len(self.feeds)

    def glance(self, runner: Runner) -> Fidelity:
        """Run a candidate on the few samples that give some thousand values: for how much noise there is, about."""
        values = sum(a.size for a in self.outputs[0].values()) / _rows(self.feeds[0], self.outputs[0])
        left = min(max(_LEAST_GLANCED, math.ceil(_VALUES_GLANCED / max(values, 1))), _MOST_GLANCED)
        glimpse = copy.copy(self)
        glimpse.feeds, glimpse.outputs = [], []
        for feeds, outputs in zip(self.feeds, self.outputs, strict=True):
            rows = _rows(feeds, outputs)
            rowwise = all(a.ndim and a.shape[0] == rows for a in (*feeds.values(), *outputs.values()))
            glimpse.feeds.append({name: a[:left] if rowwise else a for name, a in feeds.items()})
            glimpse.outputs.append({name: a[:left] if rowwise else a for name, a in outputs.items()})
            left -= rows
            if left <= 0:
                break
        return glimpse.judge(runner)


def _rows(feeds: Mapping[str, np.ndarray], outputs: Outputs) -> int:
    """How many samples a batch holds: the first dim that all inputs and some output have; one where there is none."""
    first = {a.shape[0] for a in feeds.values() if a.ndim}
    shared = first & {a.shape[0] for a in outputs.values() if a.ndim}
    return shared.pop() if len(first) == 1 and shared else 1


def _summary(views: list[_OutputStatistics], samples: int) -> Fidelity:
    floats = [v for v in views if v.is_float]
    agreements = [v.agreement for v in views if v.total]
    vectors = [v.vectors for v in floats if v.kind is OutputKind.VECTORS]
    worst = min((w for v in floats if (w := v.worst_column) is not None), key=lambda w: w[2], default=None)
    judged = [v for v in floats if v.kind is not OutputKind.VECTORS]
    return Fidelity(
        sqnr_db=min((v.sqnr_db for v in floats), default=float("inf")),
        cosine=min((v.cosine for v in floats), default=1.0),
        agreement=min(agreements, default=None),
        samples=samples,
        channel_db=min((v.channel_db for v in judged or floats), default=float("inf")),
        expected_drop=max((v.expected_drop for v in views if v.total), default=None),
        detection_f1=min((f for v in views if (f := v.detection_f1) is not None), default=None),
        sequences=any(v.is_ctc for v in views),
        outputs=tuple(v.difference.result() for v in views) if all(v.detailed for v in views) else (),
        column_db=None if worst is None else worst[2],
        weakest="" if worst is None else _column_name(worst[0], worst[1]),
        values_db=min((w[2] for v in floats if v.by_columns and (w := v.worst_column)), default=None),
        vector_cosine=min((v.cosine for v in vectors), default=None),
        neighbours=min((r for v in vectors if (r := v.recall) is not None), default=None),
        kinds={v.name: v.kind.value for v in views},
    )


def _column_name(output: str, column: int | None) -> str:
    return output if column is None else f"{output}[{column}]"


@dataclass
class _OutputStatistics:
    """Running sums over one output."""

    name: str
    kind: OutputKind
    detailed: bool
    scores: np.ndarray  # which columns lie within [0, 1], or whether all do
    difference: Difference = field(init=False)
    is_float: bool = False
    hits: int = 0
    total: int = 0
    lost: float = 0.0
    power: np.ndarray = field(default_factory=lambda: np.zeros(4))  # of float, of candidate, of noise; their product
    whole: ColumnNoise = field(default_factory=ColumnNoise)
    columns: ColumnNoise = field(default_factory=ColumnNoise)
    vectors: VectorAgreement = field(default_factory=VectorAgreement)
    blank: dict[int, int] = field(default_factory=dict)
    steps: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)  # the best class of each, float and here
    read: tuple[int, int, int, int] = (0, 0, 0, 0)  # the blank, how many of `steps`, edits and characters in them
    true: np.ndarray = field(default_factory=lambda: np.zeros(len(_THRESHOLDS), int))  # at each threshold
    both: np.ndarray = field(default_factory=lambda: np.zeros(len(_THRESHOLDS), int))
    found: np.ndarray = field(default_factory=lambda: np.zeros(len(_THRESHOLDS), int))

    def __post_init__(self) -> None:
        self.difference = Difference(self.name, Tolerance())

    def add(self, right: np.ndarray, actual: np.ndarray, rows: int) -> None:
        """Take in what a batch of so many `rows` gave, by the float model and by the candidate."""
        if self.detailed:
            self.difference.add(right, actual)
        if right.dtype.kind not in "fV" or right.shape != actual.shape or not right.size:
            return
        self.is_float = True
        right, actual = right.astype(np.float32, copy=False), actual.astype(np.float32, copy=False)
        noise = actual - right
        pairs = ((right, right), (actual, actual), (noise, noise), (right, actual))
        self.power += [float(np.multiply(a, b).sum(dtype=np.float64)) for a, b in pairs]
        classes = self.kind in (OutputKind.CLASSES, OutputKind.LINEAR)
        if classes and right.ndim == 1 and len(right) != rows:
            right, actual, noise = right[None], actual[None], noise[None]  # one sample's classes, without a batch
        if classes and right.ndim >= 2 and right.shape[-1] > 1:
            self._add_classes(right, actual)
        elif self.kind is OutputKind.VECTORS and right.ndim >= 2:
            self.vectors.add(right, actual)
        else:
            self._add_scores(right, actual)
        self.whole.add(right, noise, None)
        if self.kind is not OutputKind.CLASSES:
            self.columns.add(right, noise, column_axis(right.shape))

    @property
    def sqnr_db(self) -> float:
        """Signal-to-noise ratio in dB."""
        return float(10 * np.log10(max(self.power[0], 1e-300) / self.power[2])) if self.power[2] > 0 else float("inf")

    @property
    def cosine(self) -> float:
        """Cosine similarity."""
        norm = float(np.sqrt(self.power[0] * self.power[1]))
        return float(self.power[3] / norm) if norm > 0 else float(self.power[2] == 0)

    def _add_classes(self, right: np.ndarray, actual: np.ndarray) -> None:
        best, chosen = right.argmax(axis=-1), actual.argmax(axis=-1)
        flipped = best != chosen
        self.hits += int((~flipped).sum())
        self.total += best.size
        if flipped.any():
            likely = probabilities(right[flipped].astype(np.float64))
            rows = np.arange(len(likely))
            self.lost += float((likely[rows, best[flipped]] - likely[rows, chosen[flipped]]).sum())
        if right.ndim == 3:
            last = right.shape[-1] - 1
            for blank in (0, last):
                self.blank[blank] = self.blank.get(blank, 0) + int((best == blank).sum())
            self.steps += zip(best.astype(np.int32), chosen.astype(np.int32), strict=True)

    def _misread(self) -> float:
        """Share of characters that are others, in all samples so far."""
        blank = max(self.blank, key=lambda k: self.blank[k])
        known, count, edits, characters = self.read
        if known != blank:
            count, edits, characters = 0, 0, 0
        for a, b in self.steps[count:]:
            text = collapse(a, blank)
            edits += edit_distance(text, collapse(b, blank))
            characters += len(text)
        self.read = blank, len(self.steps), edits, characters
        return edits / max(characters, 1)

    @property
    def is_ctc(self) -> bool:
        """True when the first or last class is what most steps say: the blank of a CTC output."""
        return max(self.blank.values(), default=0) > _BLANK_SHARE * max(self.total, 1)

    @property
    def agreement(self) -> float:
        """Share of equal classes, or of equal characters."""
        return 1 - self._misread() if self.is_ctc else self.hits / self.total

    @property
    def expected_drop(self) -> float:
        """Accuracy to lose by the float model's own probabilities; for sequences, the share of characters."""
        return 1 - self.agreement if self.is_ctc else self.lost / self.total

    def _add_scores(self, right: np.ndarray, actual: np.ndarray) -> None:
        # Only columns that look like scores: within [0, 1], on either side of the threshold.
        a, b = columns_of(right), columns_of(actual)
        scores = np.broadcast_to(self.scores, len(a)).copy()
        # What one Sigmoid makes (a mask over frequencies, frame by frame) are scores all over, and not boxes.
        may_be_boxes = right.ndim == 3 and self.kind is not OutputKind.SCORES and scores[_BOX:].any()
        matching = boxes_kept(a, b) if may_be_boxes else None
        if matching is not None:
            scores[:_BOX] = False
        if not scores.any():
            return
        for index, threshold in enumerate(_THRESHOLDS):
            expected, found = a[scores] > threshold, b[scores] > threshold
            self.true[index] += int(expected.sum())
            self.found[index] += int(found.sum())
            same = expected & found if matching is None else expected & found & matching
            self.both[index] += int(same.sum())

    @property
    def by_columns(self) -> bool:
        """True where every column counts."""
        return self.kind in (OutputKind.VALUES, OutputKind.SCORES)

    @property
    def worst_column(self) -> tuple[str, int | None, float] | None:
        """(output, column, dB) of the weakest column; None where columns do not count, or none carries information.

        Of a linear layer with more columns than a few targets (tokens, many classes), rare ones are nearly constant:
        there the class view decides.
        """
        if self.kind in (OutputKind.CLASSES, OutputKind.VECTORS):
            return None
        found = self.columns.decibels(alike=self.kind is OutputKind.SCORES)
        if not found or (self.kind is OutputKind.LINEAR and len(found) > _MOST_TARGETS):
            return None
        column, ratio = found[0]
        return self.name, column if len(found) > 1 else None, ratio

    @property
    def channel_db(self) -> float:
        """Signal-to-noise ratio in dB without the mean: of the worst column where columns count, else of all."""
        found = self.worst_column if self.by_columns else None
        if found is not None:
            return found[2]
        return min((ratio for _, ratio in self.whole.decibels()), default=float("inf"))

    @property
    def detection_f1(self) -> float | None:
        """F1 of scores over a threshold, the worst one; None with too few of them to tell."""
        enough = self.true >= _MIN_DETECTIONS
        if not enough.any():
            return None
        return float((2 * self.both[enough] / (self.true + self.found)[enough]).min())


def noise_share(fidelity: Fidelity) -> float:
    """Noise power relative to the signal's: what adds up, roughly, over quantized nodes."""
    return float(10 ** (-min(fidelity.channel_db, 300.0) / 10))


def outputs_fit(expected: Mapping[str, np.ndarray], actual: Mapping[str, np.ndarray]) -> str | None:
    """Why a candidate's outputs cannot stand for the float model's; None when they can."""
    for name, right in expected.items():
        found = actual.get(name)
        if found is None or np.shape(found) != np.shape(right):
            return f"output {name!r} has another shape"
        is_float = np.asarray(right).dtype.kind == "f"
        if is_float and np.isfinite(right).all() and not np.isfinite(found).all():
            return f"output {name!r} is not finite"
    return None
