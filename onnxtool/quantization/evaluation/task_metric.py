"""The task metric of a model on labelled data."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onnxtool import progress
from onnxtool.errors import InputError, UsageError
from onnxtool.quantization.evaluation.metrics import METRICS
from onnxtool.runtime.data.open_data import read_labels
from onnxtool.runtime.data.source import DataSource
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

    def __init__(self, data: DataSource, labels: np.ndarray, metric: Metric, name: str) -> None:
        self.data = data
        self.labels = labels
        self.metric = metric
        self.name = name

    def score(self, runner: Runner) -> float:
        """The metric of a model.

        Raises:
            InputError: the labels do not fit the outputs.
        """
        try:
            gathered = self._gathered(runner, BATCH)
        except InputError:
            gathered = self._gathered(runner, 1)  # some models declare any batch and take 1 only
        try:
            outputs = {name: np.concatenate(parts, axis=self._axes[name]) for name, parts in gathered.items()}
            return float(self.metric(outputs, self.labels))
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


def open_task(data: Any, source: DataSource, labels: str | np.ndarray | None, metric: str | Metric) -> LabelledTask:
    """Labelled data for judging.

    Args:
        data: what `source` was opened from.
        source: the samples.
        labels: name of the labels' array in the same .npz file, or the labels.
        metric: a name in `metrics.METRICS` ("accuracy": argmax over the last axis of the first output that fits the
            labels), or "file.py:function" of (outputs by name, labels) -> float, or such a function.

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
        return LabelledTask(source, array, metric, getattr(metric, "__name__", "metric"))
    if metric in METRICS:
        return LabelledTask(source, array, METRICS[metric], metric)
    script, colon, function = os.fspath(metric).rpartition(":")
    if not colon or not script.endswith(".py"):
        raise UsageError(f"--metric {metric}: choose {', '.join(METRICS)}, or name a function: file.py:function.")
    return LabelledTask(source, array, load_function(Path(script), function), metric)
