"""Rounding that a model amplifies itself is no difference; anything beyond it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.validation.equivalence.compare import compare
from onnxtool.validation.equivalence.compare_runners import compare_runners
from onnxtool.validation.equivalence.evidence import evidence_of_source
from onnxtool.validation.equivalence.rounding import kernel_errors

GAIN = np.float32(1e6)


def amplifier(path: Path, weight: np.ndarray, place: tuple[int, ...] | None, level: float) -> Path:
    """Conv + BatchNormalization (which the runtime folds), one element of the result amplified around `level`."""
    generator = np.random.default_rng(5)
    shape = (1, 8, 64, 64)
    mask, offset = np.ones(shape, np.float32), np.zeros(shape, np.float32)
    if place is not None:
        mask[place], offset[place] = GAIN, np.float32(level) * GAIN
    constants = {
        "w": weight,
        "scale": generator.uniform(0.5, 2, 8).astype(np.float32),
        "bias": generator.normal(size=8).astype(np.float32),
        "mean": generator.normal(size=8).astype(np.float32),
        "var": generator.uniform(0.5, 2, 8).astype(np.float32),
        "mask": mask,
        "offset": offset,
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "bias", "mean", "var"], ["n"]),
        helper.make_node("Mul", ["n", "mask"], ["m"]),
        helper.make_node("Sub", ["m", "offset"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "amplifier",
        [helper.make_tensor_value_info("x", 1, [1, 3, 64, 64])],
        [helper.make_tensor_value_info("y", 1, list(shape))],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


def run(path: Path, level: ort.GraphOptimizationLevel, x: np.ndarray) -> np.ndarray:
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


@pytest.fixture
def amplified(tmp_path: Path) -> tuple[Path, np.ndarray, np.ndarray, tuple[int, ...], float]:
    """The model with its most rounding-prone element amplified, its weight, the input, that element."""
    generator = np.random.default_rng(1)
    weight = generator.normal(size=(8, 3, 3, 3)).astype(np.float32)
    x = generator.normal(size=(1, 3, 64, 64)).astype(np.float32)
    plain = amplifier(tmp_path / "plain.onnx", weight, None, 0)
    off = run(plain, ort.GraphOptimizationLevel.ORT_DISABLE_ALL, x)
    on = run(plain, ort.GraphOptimizationLevel.ORT_ENABLE_ALL, x)
    assert (off != on).any(), "the runtime folds the BatchNormalization, which rounds"
    place = tuple(int(i) for i in np.unravel_index(np.abs(off - on).argmax(), off.shape))
    level = float(off[place])
    return amplifier(tmp_path / "a.onnx", weight, place, level), weight, x, place, level


def test_rounding_of_the_reference_itself_is_excused_and_said(
    tmp_path: Path, amplified: tuple[Path, np.ndarray, np.ndarray, tuple[int, ...], float]
) -> None:
    a, weight, x, place, level = amplified
    nudged = weight.copy()
    nudged[place[1]] *= np.float32(1) + np.float32(1.2e-7)  # the last bit
    b = amplifier(tmp_path / "b.onnx", nudged, place, level)
    report = compare(a, b, data={"x": x})
    assert report.outputs[0].mismatched == 1
    assert report.ok
    assert "rounding alone moves the reference" in (report.outputs[0].note or "")


def test_a_real_difference_is_not_excused(
    tmp_path: Path, amplified: tuple[Path, np.ndarray, np.ndarray, tuple[int, ...], float]
) -> None:
    a, weight, x, place, level = amplified
    wrong = weight * np.float32(1.0001)  # a tenth of the relative tolerance, everywhere
    b = amplifier(tmp_path / "b.onnx", wrong, place, level)
    assert not compare(a, b, data={"x": x}).ok


def _sigmoid(nodes: list[onnx.NodeProto], outputs: list[str]) -> ir.Model:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, 1, ["b", 4]) for n in ("x", "z")],
        [helper.make_tensor_value_info(n, 1, None) for n in outputs],
    )
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10))


def test_only_what_comes_from_sigmoid_itself_has_its_error() -> None:
    node = helper.make_node
    nodes = [
        node("Sigmoid", ["x"], ["p"]),
        node("Transpose", ["p"], ["turned"]),
        node("Concat", ["z", "p"], ["joined"], axis=1),
        node("Log", ["p"], ["log"]),
        node("Mul", ["p", "z"], ["weighed"]),
        node("Tanh", ["x"], ["t"]),
        node("Gather", ["z", "i"], ["chosen"]),
        node("Cast", ["p"], ["i"], to=7),
        node("Sigmoid", ["z"], ["objectness"]),
        node("Mul", ["p", "objectness"], ["score"]),
        node("ReduceMax", ["score"], ["best"], keepdims=0),
        node("TopK", ["p", "k"], ["top", "place"]),
    ]
    # The nodes in an order that they can run in: the runtime and the walk both need it.
    nodes.insert(nodes.index(nodes[6]), nodes.pop(7))
    outputs = ["p", "turned", "joined", "log", "weighed", "t", "chosen", "score", "best", "top", "place"]
    found = kernel_errors(_sigmoid(nodes, outputs))
    assert set(found) == {"p", "turned", "joined", "score", "best", "top"}
    assert found["best"] == found["score"] == 2 * found["p"]


class _Exact:
    """Sigmoid in float64, rounded once, as frameworks give it; and with an error of its own."""

    def __init__(self, error: float) -> None:
        self.inputs = (TensorSpec("x", np.dtype(np.float32), ("b", 4)),)
        self.outputs = (TensorSpec("p", np.dtype(np.float32), ("b", 4)),)
        self._error = error

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        x = feeds["x"].astype(np.float64)
        return {"p": (1 / (1 + np.exp(-x)) + self._error).astype(np.float32)}


@pytest.mark.parametrize(
    ("error", "center", "ok"), [(0, -17, True), (6e-7, -17, False), (0, -8, True), (2e-6, -8, False), (2e-5, 0, True)]
)
def test_a_small_probability_may_be_off_by_the_error_of_the_runtimes_sigmoid(
    error: float, center: float, ok: bool
) -> None:
    graph = helper.make_graph(
        [helper.make_node("Sigmoid", ["x"], ["p"])],
        "g",
        [helper.make_tensor_value_info("x", 1, ["b", 4])],
        [helper.make_tensor_value_info("p", 1, ["b", 4])],
    )
    model = ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10))
    source: Any = _Exact(error)
    feeds = [{"x": np.random.default_rng(0).uniform(center - 1, center + 1, (32, 4)).astype(np.float32)}]
    evidence = evidence_of_source(source, model)
    report = compare_runners(source, OnnxRunner.open(model), feeds, evidence=evidence)
    assert report.ok is ok
    assert "2.4e-07 more where they come from Sigmoid" in report.rule
    assert bool(report.warnings) is (center == -17)  # within ten times the error nothing can be told
