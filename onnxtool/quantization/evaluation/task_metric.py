"""The task metric of a model on labelled data."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from onnxtool import progress
from onnxtool.errors import InputError, UsageError
from onnxtool.quantization.evaluation.bounds import CONFIDENCE, paired_bound, resampled_bound, samples_to_show
from onnxtool.quantization.evaluation.box_match import MatchedImages, mean_average_precision
from onnxtool.quantization.evaluation.metrics import METRICS, chosen
from onnxtool.report.quantize import TaskMetric
from onnxtool.runtime.data.open_data import read_labels
from onnxtool.runtime.data.source import DataSource
from onnxtool.runtime.feeds import Outputs
from onnxtool.runtime.runner import Runner
from onnxtool.user_code import load_function

Metric = Callable[[Mapping[str, np.ndarray], np.ndarray], float]
BATCH = 32


def _rows(feeds: Mapping[str, np.ndarray]) -> int:
    return max((a.shape[0] for a in feeds.values() if a.ndim), default=1)


def samples_axis(output: np.ndarray, rows: int) -> int:
    """The axis of the samples, of which there are so many: the first, or the second of [steps, samples, classes]."""
    return int(output.ndim == 3 and output.shape[0] != rows and output.shape[1] == rows)


class LabelledTask:
    """Labelled data and the metric that judges outputs on it; higher is better."""

    def __init__(
        self, data: DataSource, labels: np.ndarray, metric: Metric, name: str, confidence: float = CONFIDENCE
    ) -> None:
        self.data = data
        self.labels = labels
        self.metric = metric
        self.name = name
        self.confidence = confidence

    def score(self, runner: Runner) -> float:
        """The metric of a model.

        Raises:
            InputError: the labels do not fit the outputs.
        """
        return self._value(self.predict(runner), self.labels)

    def predict(self, runner: Runner) -> Outputs:
        """The outputs of a model on all samples."""
        try:
            gathered = self._gathered(runner, BATCH)
        except InputError:
            gathered = self._gathered(runner, 1)  # some models declare any batch and take 1 only
        try:
            return {name: np.concatenate(parts, axis=self._axes[name]) for name, parts in gathered.items()}
        except ValueError as error:
            raise InputError(f"the metric {self.name} failed: {type(error).__name__}: {error}") from error

    def compared(self, before: Outputs, after: Outputs, limit: float) -> TaskMetric:
        """What a candidate has lost, and at most; `limit` is what it may lose.

        Args:
            before: what the float model gave on all samples.
            after: what the candidate gave.
            limit: 0.01 is one point.
        """
        values = [self._value(outputs, self.labels) for outputs in (before, after)]
        bound, samples = self._drop_at_most(before, after)
        found = TaskMetric(self.name, values[0], values[1], samples, bound)
        if bound is None or bound <= limit:
            return found
        return replace(found, needed=samples_to_show(samples, found.drop, bound, limit))

    def _drop_at_most(self, before: Outputs, after: Outputs) -> tuple[float | None, int]:
        """What is lost at most, and on how many samples; None on a single one."""
        if self.name == "accuracy" and self.labels.ndim == 1:
            hits = [chosen(outputs, self.labels) == self.labels for outputs in (before, after)]
            return paired_bound(hits[0], hits[1], self.confidence), len(self.labels)
        if self.metric is mean_average_precision:  # its labels are objects, its samples are images
            images = [MatchedImages.of(outputs, self.labels) for outputs in (before, after)]
            count = images[0].count
            drop_of_images = lambda i: images[0].precision(i) - images[1].precision(i)  # noqa: E731
            return (resampled_bound(drop_of_images, count, self.confidence) if count > 1 else None), count
        count = len(self.labels)
        if count < 2:
            return None, count

        def drop(indices: np.ndarray) -> float:
            parts = [
                {name: np.take(a, indices, axis=self._axes.get(name, 0)) for name, a in outputs.items()}
                for outputs in (before, after)
            ]
            try:
                return self._value(parts[0], self.labels[indices]) - self._value(parts[1], self.labels[indices])
            except InputError:
                return float("nan")  # labels of one class only

        return resampled_bound(drop, count, self.confidence), count

    def _value(self, outputs: Outputs, labels: np.ndarray) -> float:
        try:
            return float(self.metric(outputs, labels))
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"the metric {self.name} failed: {type(error).__name__}: {error}") from error

    def _gathered(self, runner: Runner, batch: int) -> dict[str, list[np.ndarray]]:
        """The outputs of all samples, `batch` of them at a time."""
        found: dict[str, list[np.ndarray]] = {}
        self._axes: dict[str, int] = {}
        with progress.task(f"evaluating {self.name}", self.data.count) as task:
            for feeds in self.data.batches(batch):
                for name, value in runner.run(feeds).items():
                    found.setdefault(name, []).append(np.asarray(value))
                    self._axes.setdefault(name, samples_axis(found[name][0], _rows(feeds)))
                task.advance(_rows(feeds))
        return found


def open_task(
    data: Any,
    source: DataSource,
    labels: str | np.ndarray | None,
    metric: str | Metric,
    confidence: float = CONFIDENCE,
) -> LabelledTask:
    """Labelled data for judging.

    Args:
        data: what `source` was opened from.
        source: the samples.
        labels: name of the labels' array in the same .npz file, or the labels.
        metric: a name in `metrics.METRICS` ("accuracy": argmax over the last axis of the first output that fits the
            labels), or "file.py:function" of (outputs by name, labels) -> float, or such a function.
        confidence: of what is lost at most.

    Raises:
        InputError: no such labels, or another number of them than samples.
        UsageError: labels missing, or no such metric.
    """
    if labels is None:
        raise UsageError("--eval needs --labels NAME: the name of the labels' array in the --eval file.")
    array = read_labels(data, labels) if isinstance(labels, str) else np.asarray(labels)
    if metric != "map" and source.count is not None and array.shape[:1] != (source.count,):
        raise InputError(f"{source.label}: {source.count} samples, but labels of shape {list(array.shape)}.")
    if callable(metric):
        return LabelledTask(source, array, metric, getattr(metric, "__name__", "metric"), confidence)
    if metric in METRICS:
        return LabelledTask(source, array, METRICS[metric], metric, confidence)
    script, colon, function = os.fspath(metric).rpartition(":")
    if not colon or not script.endswith(".py"):
        raise UsageError(f"--metric {metric}: choose {', '.join(METRICS)}, or name a function: file.py:function.")
    return LabelledTask(source, array, load_function(Path(script), function), metric, confidence)
