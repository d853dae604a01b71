"""Fidelity: how far a candidate's outputs are from the float model's, and what that would cost in accuracy.

Several views, because no one of them fits every output; `output_kind` says what an output is for:

- classes (logits or probabilities over the last axis, or the channels of a map that compete): the share of equal
  argmax, and the expected loss of accuracy and of the mean F1 of classes. These take the float model's own
  probabilities as the truth: a flip between two classes that it holds for equally likely costs no accuracy, one away
  from a sure class costs much.
- classes of a sequence with a blank (CTC, text and speech recognisers): edit distance of the texts that are read off,
  because a character may move by a step without being another one.
- scores in [0, 1] of a dense output (detections, masks): F1 of what exceeds a threshold (0.3, 0.5, 0.7; the worst), and
  how far from it the float model's scores of what differs are; where the first four columns are boxes, what exceeds it
  and overlaps with where it was. Boxes that are an output of their own: those whose score in the output beside them
  exceeds 0.3.
  Behind a NonMaxSuppression: rows that are found again.
- vectors that are compared with one another (embeddings, hidden states): cosine, and neighbours kept.
- anything else: the signal-to-noise ratio, column by column and channel by channel, each on its own scale with its mean
  taken off, so that large box coordinates do not drown small scores; the worst one that carries information counts.
  Columns in ascending order (quantiles) are judged by their differences too, maps of amounts by their sum.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from onnxtool.errors import InputError
from onnxtool.quantization.evaluation.bounds import CONFIDENCE
from onnxtool.quantization.evaluation.box_match import BoxOverlap, boxes_looked_at, form_of_boxes
from onnxtool.quantization.evaluation.class_agreement import are_distributions, class_axis, gain_of_best
from onnxtool.quantization.evaluation.column_noise import (
    amounts_of,
    are_alike,
    are_of_one_length,
    within_scores,
)
from onnxtool.quantization.evaluation.detections import Detections
from onnxtool.quantization.evaluation.output_kind import (
    OutputKind,
    is_computed,
    is_rounded,
    kind_of,
    may_be_scores,
    table_sizes,
)
from onnxtool.quantization.evaluation.output_statistics import OutputStatistics
from onnxtool.report.quantize import Fidelity
from onnxtool.runtime.data.source import DataSource
from onnxtool.runtime.feeds import Feeds, Outputs
from onnxtool.runtime.runner import Runner

_VALUES_GLANCED = 4096  # of the outputs
_LEAST_GLANCED, _MOST_GLANCED = 4, 8  # samples
_FIRST_LOOK = 16  # samples
_FIRST_LOOK_AT_MANY = 8  # where each gives so many results as
_MANY_RESULTS = 64


@dataclass
class Judgement:
    """What was seen of a candidate so far: statistics of its outputs, over the first so many batches."""

    views: dict[str, OutputStatistics] = field(default_factory=dict)
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
        confidence: float = CONFIDENCE,
    ) -> None:
        """Run the float model; `kinds` says what outputs are for where the graph is not to be asked."""
        self.confidence = confidence
        try:
            self._observe(runner, data, batch, limit)
        except InputError:
            if batch == 1:
                raise
            self._observe(runner, data, 1, limit)  # some models declare any batch and take 1 only
        first = self.outputs[0] if self.outputs else {}
        # What is declared may be missing, or untrue.
        alike = {name: are_alike([o[name] for o in self.outputs]) for name in first}
        self.kinds = {
            name: kind_of(v, first[name].shape, alike=alike[name])
            for v in model.graph.outputs
            if (name := v.name or "") in first
        }
        sure = (OutputKind.CLASSES, OutputKind.SCORES)
        untold = [name for name, kind in self.kinds.items() if kind not in sure]
        self.kinds |= {n: OutputKind.CLASSES for n in untold if are_distributions([o[n] for o in self.outputs])}
        matrices = {name for name, a in first.items() if a.ndim in (2, 3) and a.shape[-1] > 1}
        self._one_length = {
            n
            for n in untold
            if n in matrices
            and self.kinds[n] is not OutputKind.CLASSES
            and are_of_one_length([o[n] for o in self.outputs])
        }
        self.kinds |= dict.fromkeys(self._one_length, OutputKind.VECTORS)
        self._alike = {name for name in matrices if alike[name]}
        by_name = {v.name or "": v for v in model.graph.outputs}
        self._amounts = {
            name: amounts_of([o[name] for o in self.outputs], name in self._alike, may_be_scores(by_name.get(name)))
            for name in first
        }
        self._units = {name for name, same in alike.items() if not same}
        self.detections = Detections.of(model.graph, self.outputs)
        self.kinds |= dict.fromkeys(self.detections.names if self.detections else (), OutputKind.DETECTIONS)
        self.kinds |= self._kinds_of_labels(by_name)
        self.kinds |= dict(kinds or {})
        self._scores = {name: within_scores([outputs[name] for outputs in self.outputs]) for name in first}
        tables = table_sizes(model.graph)
        self._class_axes = {name: self._class_axis(name, tables) for name in first}
        self._gains = {
            name: gain_of_best([o[name] for o in self.outputs])
            for name, axis in self._class_axes.items()
            if axis is None and self.kinds.get(name) is OutputKind.LINEAR
        }
        told = (OutputKind.CLASSES, OutputKind.VECTORS, OutputKind.DETECTIONS)
        forms = {n: form_of_boxes([o[n] for o in self.outputs]) for n in first if self.kinds.get(n) not in told}
        self._forms = {name: form for name, form in forms.items() if form is not None}
        self._boxes = self._counting_boxes()

    def _kinds_of_labels(self, graph_outputs: Mapping[str, ir.Value]) -> dict[str, OutputKind]:
        """Of the outputs that are no floats, but for amounts and rows that are found."""
        first = self.outputs[0] if self.outputs else {}
        floats = [n for n, a in first.items() if a.dtype.kind in "fV"]
        kinds = {}
        for name in first:
            if name in floats or self.kinds.get(name) is OutputKind.DETECTIONS or name not in graph_outputs:
                continue
            follows = self.detections is not None or not is_computed(graph_outputs[name])  # how many, and sizes
            if follows or any(self._tells(scores, name) for scores in floats):
                kinds[name] = OutputKind.FOLLOWS
            elif not is_rounded(graph_outputs[name]):
                kinds[name] = OutputKind.LABELS
        return kinds

    def _tells(self, scores: str, labels: str) -> bool:
        """Whether labels are the places of the highest scores, or say which of these are over a threshold. Of labels
        that are always the same this may be chance.
        """
        pairs = [(o[scores], o[labels]) for o in self.outputs]
        if len(set(np.concatenate([b.ravel() for _, b in pairs]).tolist())) < 2:
            return False
        if pairs[0][1].dtype.kind == "b":
            if any(a.shape != b.shape for a, b in pairs):
                return False
            yes, no = (np.concatenate([a[b == wanted] for a, b in pairs]) for wanted in (True, False))
            return bool(yes.min() >= no.max())
        axes = range(pairs[0][0].ndim)
        return any(all(np.array_equal(a.argmax(axis).ravel(), b.ravel()) for a, b in pairs) for axis in axes)

    def _counting_boxes(self) -> list[dict[str, np.ndarray]]:
        """Of each batch, which of its boxes count, by output."""
        return [{name: boxes_looked_at(name, o, self._scores) for name in self._forms} for o in self.outputs]

    def _class_axis(self, name: str, tables: Collection[int]) -> int | None:
        """Where an output that may be values has classes that exclude one another; `tables`: of the model's inputs."""
        kind, outputs = self.kinds.get(name), [o[name] for o in self.outputs]
        if kind is OutputKind.LINEAR and outputs[0].shape[-1] in tables:
            return -1
        if kind is OutputKind.VALUES and outputs[0].ndim > 2:
            return class_axis(outputs)
        return class_axis(outputs, (-1,), sys.maxsize) if kind in (OutputKind.LINEAR, OutputKind.VALUES) else None

    def _observe(self, runner: Runner, data: DataSource, batch: int, limit: int) -> None:
        """Run the float model on the samples, `batch` at a time."""
        self.feeds: list[Feeds] = []
        self.outputs: list[dict[str, np.ndarray]] = []
        self.samples = 0
        held = 0
        for feeds in data.batches(batch):
            outputs = _tensors(runner.run(feeds))
            held += sum(a.nbytes for a in (*feeds.values(), *outputs.values()))
            self.feeds.append(feeds)
            self.outputs.append(outputs)
            self.samples += _rows(feeds, outputs)
            if held > limit:
                break

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
        seen = zip(self.feeds[first:end], self.outputs[first:end], self._boxes[first:end], strict=True)
        for feeds, expected, boxes in seen:
            actual, rows = _tensors(runner.run(feeds)), _rows(feeds, expected)
            if check is not None:
                check(expected, actual)
            matched = self.detections.match(expected, actual) if self.detections else None
            for name, right in expected.items():
                kind = self.kinds.get(name, OutputKind.VALUES)
                view = views.setdefault(name, self._statistics(name, kind, detailed))
                if matched is not None and name in matched.rows:
                    view.add(*matched.rows[name], rows)
                    if self.detections and name == self.detections.names[0]:
                        view.found.add_found(matched.true, matched.found, len(matched.rows[name][0]))
                else:
                    view.add(right, actual[name], rows, boxes.get(name))
            judgement.batches += 1
        samples = sum(map(_rows, self.feeds[: judgement.batches], self.outputs))
        return _summary(list(views.values()), samples, self.confidence)

    def _statistics(self, name: str, kind: OutputKind, detailed: bool) -> OutputStatistics:
        one_length = kind is OutputKind.VECTORS and name in self._one_length
        alike, units = name in self._alike, name in self._units
        views = (alike, one_length, units, self._amounts[name], self.confidence, self._class_axes.get(name))
        overlap = BoxOverlap(self._forms[name]) if name in self._forms else None
        return OutputStatistics(name, kind, detailed, self._scores[name], *views, self._gains.get(name), overlap)

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
        few = min(max(_LEAST_GLANCED, math.ceil(_VALUES_GLANCED / max(values, 1))), _MOST_GLANCED)
        return self.limited(few).judge(runner)

    def limited(self, samples: int) -> FidelityEvaluator:
        """The same on the first few samples."""
        limited = copy.copy(self)
        limited.feeds, limited.outputs = [], []
        for feeds, outputs in zip(self.feeds, self.outputs, strict=True):
            rows = _rows(feeds, outputs)
            rowwise = all(a.ndim and a.shape[0] == rows for a in (*feeds.values(), *outputs.values()))
            limited.feeds.append({name: a[:samples] if rowwise else a for name, a in feeds.items()})
            limited.outputs.append({name: a[:samples] if rowwise else a for name, a in outputs.items()})
            samples -= rows
            if samples <= 0:
                break
        limited._boxes = limited._counting_boxes()
        return limited


def _tensors(outputs: Outputs) -> dict[str, np.ndarray]:
    """Outputs as arrays: a sequence's under NAME[0] and so on, a ZipMap's maps from classes to scores as [samples,
    classes].
    """
    found = {}
    for name, value in outputs.items():
        if not isinstance(value, (list, tuple)):
            found[name] = np.asarray(value)
        elif value and isinstance(value[0], Mapping):
            found[name] = np.array([list(row.values()) for row in value], np.float32)
        else:
            found |= {f"{name}[{place}]": np.asarray(item) for place, item in enumerate(value)}
    return found


def _rows(feeds: Mapping[str, np.ndarray], outputs: Outputs) -> int:
    """How many samples a batch holds: the first dim that all inputs and some output have; one where there is none.

    An output may have steps first, and samples behind them.
    """
    first = {a.shape[0] for a in feeds.values() if a.ndim}
    shared = first & {dim for a in outputs.values() for dim in a.shape[: 2 if a.ndim == 3 else 1]}
    return shared.pop() if len(first) == 1 and shared else 1


def _summary(views: list[OutputStatistics], samples: int, confidence: float) -> Fidelity:
    parts = tuple(_summary([view], samples, confidence) for view in views) if len(views) > 1 else ()
    floats = [v for v in views if v.is_float]
    classes = [v.classes for v in views if v.classes.total]
    vectors = [v.vectors for v in floats if v.kind is OutputKind.VECTORS]
    weakest = min(
        (w for v in floats if (w := v.weakest) is not None), key=lambda w: w.at_least - w.needed, default=None
    )
    margins = [v.margin_db for v in floats]
    judged = [v for v in floats if v.kind is not OutputKind.VECTORS]
    found = [v.found for v in views]
    totals = [v.total for v in floats if v.kind is OutputKind.VALUES]
    rare = [s for f in found if (s := f.rare_shift(confidence)) is not None]
    bounds = {
        "margin_db": min((least for _, least in margins), default=float("inf")),
        "vector_cosine": _least(v.cosine(confidence) for v in vectors),
        "neighbours": _least(v.recall(confidence) for v in vectors),
        "detection_f1": _least(f.f1(confidence) for f in found),
        "sample_f1": _least(p[0] for f in found if (p := f.of_samples(confidence)) is not None),
        "sample_cost": _most(p[1] for f in found if (p := f.of_samples(confidence)) is not None),
        "total_shift": _most(t.value(confidence) for t in totals),
        "rare_shift": _most(most for _, most in rare),
        "class_f1_lost": _most(c.f1_lost(confidence) for c in classes),
    }
    return Fidelity(
        sqnr_db=min((v.sqnr_db for v in floats), default=float("inf")),
        cosine=min((v.cosine for v in floats), default=1.0),
        agreement=min((c.agreement for c in classes), default=None),
        samples=samples,
        channel_db=min((v.channel_db for v in judged or floats), default=float("inf")),
        expected_drop=max((c.expected_drop for c in classes), default=None),
        flips_at_most=max((c.flips_at_most(confidence) for c in classes), default=None),
        flips_counted=max((c.flips_counted for c in classes), default=None),
        drop_at_most=max((c.drop_at_most(confidence) for c in classes), default=None),
        detection_f1=_least(f.f1() for f in found),
        detection_cost=_most(f.cost(confidence) for f in found),
        detections=min((f.count for f in found if f.f1() is not None), default=0),
        sample_f1=_least(p[0] for f in found if (p := f.of_samples()) is not None),
        sample_cost=_most(p[1] for f in found if (p := f.of_samples()) is not None),
        sequences=any(c.is_ctc for c in classes),
        outputs=tuple(v.difference.result() for v in views) if all(v.detailed for v in views) else (),
        column_db=None if weakest is None else weakest.db,
        weakest="" if weakest is None else weakest.name,
        margin_db=min((measured for measured, _ in margins), default=float("inf")),
        total_shift=_most(t.value() for t in totals),
        rare_shift=_most(measured for measured, _ in rare),
        rare_f1=_least(v.found.rare_f1 for v in views if v.kind is OutputKind.SCORES),
        class_f1_lost=_most(c.f1_lost() for c in classes),
        vector_cosine=_least(v.cosine() for v in vectors),
        neighbours=_least(v.recall() for v in vectors),
        kinds={v.name: v.kind.value for v in views},
        bounds={name: value for name, value in bounds.items() if value is not None},
        parts=parts,
    )


def _least(values: Iterable[float | None]) -> float | None:
    return min((v for v in values if v is not None), default=None)


def _most(values: Iterable[float | None]) -> float | None:
    return max((v for v in values if v is not None), default=None)


def noise_share(fidelity: Fidelity) -> float:
    """Noise power relative to the signal's: what adds up, roughly, over quantized nodes."""
    return float(10 ** (-min(fidelity.channel_db, 300.0) / 10))


def outputs_fit(expected: Outputs, actual: Outputs, found_rows: Collection[str] = ()) -> str | None:
    """Why a candidate's outputs cannot stand for the float model's; None when they can.

    Args:
        expected: what the float model gave.
        actual: what the candidate gave.
        found_rows: outputs that have as many rows as objects were found.
    """
    for name, right in expected.items():
        found = actual.get(name)
        start = 1 if name in found_rows else 0
        if found is None or np.ndim(found) != np.ndim(right) or np.shape(found)[start:] != np.shape(right)[start:]:
            return f"output {name!r} has another shape"
        is_float = np.asarray(right).dtype.kind == "f"
        if is_float and np.isfinite(right).all() and not np.isfinite(found).all():
            return f"output {name!r} is not finite"
    return None
