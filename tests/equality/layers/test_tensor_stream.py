"""The values of all tensors of one model, a part of the graph at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from onnxtool.equality.layers import tensor_stream
from onnxtool.equality.layers.compare_layers import compare_layers
from onnxtool.equality.layers.tensor_stream import TensorStream
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.runtime.session.session import EXACT

BRANCHES = """
<ir_version: 10, opset_import: ["" : 20]>
branches (float[4] x, bool which) => (float[4] y)
<float[4] w = {1, 2, 3, 4}>
{
    a = Mul(x, w)
    b = Exp(a)
    c = If (which) <
        then_branch = g1 () => (float[4] d) { d = Sub(b, w) },
        else_branch = g2 () => (float[4] e) { e = Add(b, a) }
    >
    y = Mul(c, x)
}
"""
SEQUENCE = """
<ir_version: 10, opset_import: ["" : 20]>
sequence (float[4] x) => (float[4] y)
{
    a = Neg(x)
    s = SequenceConstruct(x, a)
    zero = Constant<value = int64 {0}>()
    b = SequenceAt(s, zero)
    y = Abs(b)
}
"""


def opened(text: str, path: Path, feeds: dict[str, Any]) -> TensorStream:
    onnx.save(parser.parse_model(text), path)
    return TensorStream.open(path, feeds, EXACT)


@pytest.fixture
def x() -> np.ndarray:
    return np.array([0.5, -1, 2, 0], np.float32)


@pytest.mark.parametrize("memory", [1, 1 << 28])
@pytest.mark.parametrize("which", [True, False])
def test_parts_give_what_subgraphs_capture(
    memory: int, which: bool, x: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor_stream, "MEMORY", memory)
    side = opened(BRANCHES, tmp_path / "m.onnx", {"x": x, "which": np.array(which)})
    found = dict(side.stream())
    w = np.array([1, 2, 3, 4], np.float32)
    c = np.exp(x * w) - w if which else np.exp(x * w) + x * w
    assert list(found) == ["a", "b", "c", "y"]
    np.testing.assert_allclose(found["c"], c, rtol=1e-6)
    np.testing.assert_allclose(found["y"], c * x, rtol=1e-6)
    assert side.parts == (4 if memory == 1 else 1)


@pytest.mark.parametrize("memory", [1, 1 << 28])
def test_a_sequence_between_parts_is_no_obstacle(
    memory: int, x: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor_stream, "MEMORY", memory)
    found = dict(opened(SEQUENCE, tmp_path / "m.onnx", {"x": x}).stream())
    assert list(found) == ["a", "s", "b", "y"]
    np.testing.assert_array_equal(found["b"], x)
    np.testing.assert_array_equal(found["y"], np.abs(x))


@pytest.mark.parametrize("external", [False, True])
def test_large_weights_of_several_types_are_handed_over(external: bool, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    weights = {
        "f": generator.standard_normal((128, 64)).astype(np.float32),
        "h": generator.standard_normal((128, 128)).astype(np.float16),
        "q": generator.integers(-128, 127, (128, 256)).astype(np.int8),
        "i": generator.integers(0, 64, 4096).astype(np.int64),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "f"], ["m"]),
        helper.make_node("Gather", ["m", "i"], ["g"], axis=1),
        helper.make_node("Cast", ["h"], ["hf"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["x", "hf"], ["mh"]),
        helper.make_node("DequantizeLinear", ["q", "scale"], ["dq"]),
        helper.make_node("MatMul", ["x", "dq"], ["y"]),
    ]
    made = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 128])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 256])],
        [
            *(numpy_helper.from_array(v, k) for k, v in weights.items()),
            numpy_helper.from_array(np.float32(0.1), "scale"),
        ],
    )
    path = tmp_path / "m.onnx"
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(model, path, save_as_external_data=external, location="m.data", size_threshold=0)
    x = generator.standard_normal((3, 128)).astype(np.float32)
    found = dict(TensorStream.open(path, {"x": x}, EXACT).stream())
    close = {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(found["g"], (x @ weights["f"])[:, weights["i"]], **close)
    np.testing.assert_allclose(found["mh"], x @ weights["h"].astype(np.float32), **close)
    np.testing.assert_allclose(found["y"], x @ (weights["q"] * np.float32(0.1)), **close)


def test_tensors_in_another_order_are_compared_within_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B runs its branches the other way round, so that all of A comes before the first partner."""

    def branches(order: list[int]) -> onnx.ModelProto:
        nodes = [helper.make_node("Mul", ["x", f"w{i}"], [f"t{i}"], name=f"mul{i}") for i in order]
        nodes.append(helper.make_node("Sum", [f"t{i}" for i in range(6)], ["y"]))
        weights = [numpy_helper.from_array(np.full(8, i + 1, np.float32), f"w{i}") for i in range(6)]
        edge = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 8]) for n in "xy"]
        made = helper.make_graph(nodes, "g", edge[:1], edge[1:], weights)
        return helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)

    onnx.save(branches([0, 1, 2, 3, 4, 5]), tmp_path / "a.onnx")
    other = branches([5, 4, 3, 2, 1, 0])
    other.graph.initializer[2].CopyFrom(numpy_helper.from_array(np.full(8, 7, np.float32), "w2"))
    onnx.save(other, tmp_path / "b.onnx")
    monkeypatch.setattr(tensor_stream, "MEMORY", 1024)
    feeds = {"x": np.ones((4, 8), np.float32)}
    found = compare_layers(tmp_path / "a.onnx", tmp_path / "b.onnx", feeds, Tolerance())
    assert {t.name: t.ok for t in found.tensors} == {**{f"t{i}": i != 2 for i in range(6)}, "y": False}
    assert found.culprit is not None
    assert found.culprit.suspects[0].node == "mul2"
