"""Outputs of whole numbers, truth values, texts and maps, and several outputs side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest

from onnxtool.model import io
from onnxtool.model.spec import TensorSpec
from onnxtool.quantization.evaluation.criterion import AccuracyVerdict, Criterion
from onnxtool.quantization.evaluation.fidelity import FidelityEvaluator
from onnxtool.report.quantize import Fidelity
from onnxtool.runtime.data.open_data import open_data

_PRODUCT = "h = MatMul(x, w)"


class Giving:
    """A Runner that gives fixed outputs."""

    inputs = (TensorSpec("x", np.dtype("float32"), ("n", 2)),)
    outputs = ()

    def __init__(self, outputs: Mapping[str, Any]) -> None:
        self._outputs = outputs

    def run(self, _: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
        return self._outputs


def judged(
    body: str, right: Mapping[str, Any], wrong: Mapping[str, Any], start: str = _PRODUCT
) -> tuple[Fidelity, AccuracyVerdict]:
    """What is said of outputs that the graph makes of `h`."""
    head = '<ir_version: 8, opset_import: ["" : 20, "ai.onnx.ml" : 3]> m (float[n, 2] x) => '
    outputs = ", ".join(f"float[m] {name}" for name in right)
    model = onnx.parser.parse_model(f"{head} ({outputs}) <float[2, 2] w = {{1, 2, 3, 4}}> {{ {start} {body} }}")
    first = next(iter(right.values()))
    rows = len(first if isinstance(first, np.ndarray) or isinstance(first[0], dict) else first[0])
    float_model = Giving(right)
    data = open_data({"x": np.zeros((rows, 2), np.float32)}, float_model.inputs)
    found = FidelityEvaluator(io.from_proto(model), float_model, data, batch=rows).judge(Giving(wrong))
    return found, Criterion().judge(found)


@pytest.mark.parametrize(
    ("made_by", "labels"),
    [
        ("ArgMax", np.arange(320) % 7),
        ("IsInf", np.arange(320) % 7 == 3),
        ("ArgMax", np.array(["a", "b"], object)[np.arange(320) % 2]),
    ],
)
def test_labels_alone_have_to_stay_the_same(made_by: str, labels: np.ndarray) -> None:
    body, other = f"y = {made_by}(h)", np.roll(labels, 1)
    assert judged(body, {"y": labels}, {"y": labels})[1].kept
    found, verdict = judged(body, {"y": labels}, {"y": np.where(np.arange(320) < 16, other, labels)})
    assert found.kinds == {"y": "labels"} and found.agreement is not None and found.agreement < 0.99
    assert not verdict.kept and verdict.worst.text.startswith("other classes cost")
    # None of 64 differs, which may be three in a hundred elsewhere.
    shown = judged(body, {"y": labels[:64]}, {"y": labels[:64]})[1]
    assert not shown.kept and "some 335 samples would do" in shown.worst.text
    # What no product leads to cannot change.
    assert judged(body, {"y": labels[:64]}, {"y": labels[:64]}, "h = Relu(x)")[1].kept


def test_labels_beside_their_scores_are_judged_by_these() -> None:
    random = np.random.default_rng(0)
    scores = random.dirichlet(np.ones(5), 64).astype(np.float32)
    off = (scores + 0.001 * random.normal(size=scores.shape)).astype(np.float32)
    body = "p = Softmax(h) label = ArgMax(h) yes = IsInf(h)"
    right, wrong = ({"p": p, "label": p.argmax(1), "yes": p > 0.5} for p in (scores, off))
    found, verdict = judged(body, right, wrong)
    assert verdict.kept and found.kinds == {"p": "classes", "label": "follows", "yes": "follows"}
    # One column has its highest value in place 0 always, which says nothing of a label that is always 0.
    same = {"p": scores[:, :1], "label": np.zeros(64, np.int64), "yes": scores[:, :1] > -1}
    kinds = judged(body, same, same)[0].kinds
    assert kinds["label"] == kinds["yes"] == "labels"
    right["label"] = np.roll(right["label"], 1)
    found, verdict = judged(body, right, wrong)
    assert not verdict.kept and found.kinds["label"] == "labels"


def test_floats_made_whole_are_amounts() -> None:
    right = np.random.default_rng(0).integers(0, 255, (64, 3))
    near, far = (judged("y = Cast<to = 7>(h)", {"y": right}, {"y": right + off}) for off in (1, 40))
    assert near[1].kept and not far[1].kept and near[0].kinds == {"y": "linear"}
    assert judged("i = ArgMax(h) y = Cast<to = 6>(i)", {"y": right}, {"y": right})[0].kinds == {"y": "labels"}


def test_maps_from_classes_to_scores_are_judged_as_classes() -> None:
    scores = np.random.default_rng(0).dirichlet(np.ones(3), 64)
    body = 'y = ai.onnx.ml.ZipMap<classlabels_strings = ["a", "b", "c"]>(h)'

    def maps(rows: np.ndarray) -> list[dict[str, float]]:
        return [dict(zip("abc", row.tolist(), strict=True)) for row in rows]

    found, verdict = judged(body, {"y": maps(scores)}, {"y": maps(np.roll(scores, 1, axis=1))})
    assert found.kinds == {"y": "classes"} and not verdict.kept
    assert judged(body, {"y": maps(scores)}, {"y": maps(scores)})[1].kept


def test_each_tensor_of_a_sequence_is_judged() -> None:
    values, noise = np.random.default_rng(0).normal(size=(2, 100, 3)).astype(np.float32)
    body = "s = Relu(h) y = SequenceConstruct(h, s)"
    found, verdict = judged(body, {"y": [values, values[:, :1]]}, {"y": [values, values[:, :1] + noise[:, :1]]})
    assert found.weakest == "y[1]" and not verdict.kept
    assert judged(body, {"y": [values, values[:, :1]]}, {"y": [values, values[:, :1]]})[1].kept


def test_what_excuses_one_output_says_nothing_of_another() -> None:
    """A text that stays what it was, beside values that are lost."""
    random = np.random.default_rng(0)
    best = np.where(random.random((100, 12)) < 0.6, 0, random.integers(1, 6, (100, 12)))
    text = (12 * np.eye(6)[best] + random.normal(size=(100, 12, 6))).astype(np.float32)
    values, noise = random.normal(size=(2, 100, 3)).astype(np.float32)

    def verdict(off: np.ndarray) -> AccuracyVerdict:
        body = "text = Softmax(h) y = Relu(h)"
        found, said = judged(body, {"text": text, "y": values}, {"text": text, "y": values + off})
        assert found.sequences and found.agreement == 1
        return said

    assert verdict(0.01 * noise).kept
    lost = verdict(0.5 * noise)
    assert not lost.kept and lost.worst.text.startswith("y[")
