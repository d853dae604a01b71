"""Rounding that a model amplifies itself is no difference; anything beyond it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from onnxtool.equality.compare import compare

GAIN = np.float32(1e4)


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
