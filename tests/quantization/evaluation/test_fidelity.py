"""Fidelity views and the budget, on numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxtool.model import io
from onnxtool.model.spec import TensorSpec
from onnxtool.quantization.data.open_data import open_data
from onnxtool.quantization.evaluation.fidelity import FidelityEvaluator, has_classes
from onnxtool.quantization.search.accuracy_budget import Budget
from onnxtool.report.quantize import Fidelity, TaskMetric
from tests.quantization.quant_models import build, weights


class Fixed:
    """A Runner that gives a fixed array."""

    def __init__(self, value: np.ndarray) -> None:
        self.inputs = (TensorSpec("x", np.dtype("float32"), ("n", 2)),)
        self.outputs = (TensorSpec("y", np.dtype("float32"), None),)
        self.value = value

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"y": self.value}


def judged(expected: np.ndarray, actual: np.ndarray, op: str = "Gemm") -> Fidelity:
    rank = expected.ndim
    proto = build(
        [helper.make_node("MatMul" if op == "Gemm" else op, ["x", "w"] if op == "Gemm" else ["x"], ["y"])],
        {"w": weights(2, 2)} if op == "Gemm" else {},
        {"x": [None] * rank},
        {"y": [None] * rank},
    )
    data = open_data({"x": np.zeros((len(expected), 2), np.float32)}, Fixed(expected).inputs)
    judge = FidelityEvaluator(io.from_proto(proto), Fixed(expected), data, batch=1000)
    return judge.judge(Fixed(actual))


def test_agreement_and_expected_drop_of_probabilities() -> None:
    expected = np.array([[0.9, 0.1], [0.6, 0.4], [0.5, 0.5], [0.2, 0.8]], np.float32)
    actual = np.array([[0.8, 0.2], [0.4, 0.6], [0.4, 0.6], [0.1, 0.9]], np.float32)
    found = judged(expected, actual)
    assert found.agreement == pytest.approx(0.5)
    assert found.expected_drop == pytest.approx((0.6 - 0.4) / 4), "a flip between equals costs nothing"


def test_logits_are_judged_by_their_softmax() -> None:
    expected = np.log(np.array([[0.7, 0.3], [0.7, 0.3]], np.float32)) + 5
    actual = expected[:, ::-1] * np.array([[1], [-1]])
    assert judged(expected, actual).expected_drop == pytest.approx(0.4 / 2, abs=1e-6)


def test_channel_noise_does_not_let_large_channels_hide_small_ones() -> None:
    random = np.random.default_rng(0)
    expected = random.standard_normal((4, 2, 500)) * np.array([100.0, 0.1])[:, None]
    actual = expected.copy()
    actual[:, 1] += random.standard_normal((4, 500)) * 0.1  # the small channel drowns in noise
    found = judged(expected, actual, "Relu")
    assert found.sqnr_db > 50
    assert found.channel_db == pytest.approx(3.0, abs=0.5), "mean of 0 and 1 is -3 dB"
    assert found.agreement is None


def test_detections_are_counted() -> None:
    scores = np.linspace(0, 1, 1000).reshape(1, 1, 1000)
    moved = np.clip(scores + np.where(scores > 0.65, -0.6, 0.0), 0, 1)
    found = judged(scores, moved, "Sigmoid")
    true, kept = (scores > 0.3).sum(), ((scores > 0.3) & (moved > 0.3)).sum()
    assert found.detection_f1 == pytest.approx(2 * kept / (true + (moved > 0.3).sum()))


@pytest.mark.parametrize(
    ("op", "rank", "expected"), [("Softmax", 3, True), ("MatMul", 3, True), ("Relu", 3, False), ("Relu", 2, True)]
)
def test_knows_outputs_of_classes(op: str, rank: int, expected: bool) -> None:
    inputs = ["x", "w"] if op == "MatMul" else ["x"]
    arrays = {"w": weights(4, 4)} if op == "MatMul" else {}
    proto: onnx.ModelProto = build([helper.make_node(op, inputs, ["y"])], arrays, {"x": [4] * rank}, {"y": [4] * rank})
    assert has_classes(io.from_proto(proto).graph.outputs[0]) is expected


GOOD = Fidelity(30, 0.999, 1.0, 64, channel_db=30, expected_drop=0.0)


@pytest.mark.parametrize(
    ("fidelity", "allowed"),
    [
        (GOOD, True),
        (replace(GOOD, agreement=0.97, expected_drop=0.0006), True),
        (replace(GOOD, agreement=0.97, expected_drop=0.004), False),
        (replace(GOOD, agreement=0.93, expected_drop=0.0, channel_db=28.0), False),
        (replace(GOOD, channel_db=12.0), False),
        (replace(GOOD, agreement=None, expected_drop=None, channel_db=24.0), False),
        (replace(GOOD, agreement=None, expected_drop=None, channel_db=26.0), True),
        (replace(GOOD, agreement=None, expected_drop=None, detection_f1=0.97), False),
    ],
)
def test_the_budget_without_labels(fidelity: Fidelity, allowed: bool) -> None:
    assert Budget(0.01).allows(fidelity) is allowed


def test_the_budget_with_labels_looks_at_the_metric_alone() -> None:
    bad = replace(GOOD, agreement=0.5, channel_db=3.0)
    assert Budget(0.01, labelled=True).allows(bad, TaskMetric("accuracy", 0.95, 0.945, 100))
    assert not Budget(0.01, labelled=True).allows(GOOD, TaskMetric("accuracy", 0.95, 0.93, 100))
