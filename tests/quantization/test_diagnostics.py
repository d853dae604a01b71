"""What a report warns of."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from onnxtool.model.spec import TensorSpec
from onnxtool.quantization.diagnostics import _few, remarks_on_metric
from onnxtool.quantization.evaluation.task_metric import LabelledTask
from onnxtool.quantization.inputs import spread
from onnxtool.report.quantize import TaskMetric
from onnxtool.runtime.data.open_data import open_data


@pytest.mark.parametrize(("count", "told"), [(1, "1 sample is few"), (7, "7 samples are few"), (8, "")])
def test_few_samples_are_told(count: int, told: str) -> None:
    specs = (TensorSpec("x", np.dtype("float32"), ("n", 2)),)
    found = _few(spread(open_data({"x": np.arange(2.0 * count, dtype=np.float32).reshape(count, 2)}, specs)))
    assert [told in text for text in found] == ([True] if told else [])


def test_samples_that_are_repeated_count_once() -> None:
    specs = (TensorSpec("x", np.dtype("float32"), ("n", 2)),)
    rows = np.arange(14, dtype=np.float32).reshape(7, 2)[np.arange(200) % 7]
    assert "7 different samples are few" in _few(spread(open_data({"x": rows}, specs)))[0]


@pytest.mark.parametrize(
    ("name", "value", "weak"),
    [
        ("accuracy", 0.0, True),
        ("accuracy", 0.524, True),  # chance is 0.5
        ("accuracy", 0.526, False),
        ("auc", 0.52, True),
        ("auc", 0.6, False),
        ("r2", -1.5, True),
        ("r2", 0.06, False),
        ("perplexity", -3.0, False),
    ],
)
def test_a_float_model_that_is_no_better_than_chance_is_told(name: str, value: float, weak: bool) -> None:
    task = LabelledTask(cast(Any, None), np.array([0, 0, 1, 2]), lambda *_: 0.0, name)
    found = remarks_on_metric(task, TaskMetric(name, value, value, 4))
    assert bool(found) == weak and all(name in text for text in found)


def test_without_labels_there_is_nothing_to_tell() -> None:
    assert remarks_on_metric(None, None) == ()
