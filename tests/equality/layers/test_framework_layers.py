"""compare --layers of a model that shows its layers and an .onnx file, without any framework."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxtool.equality.compare import compare
from onnxtool.equality.layers import tensor_stream
from onnxtool.equality.layers.framework_layers import See
from onnxtool.errors import UnsupportedError, UsageError
from onnxtool.model.spec import TensorSpec

WEIGHTS = {f"{name}.weight": np.random.default_rng(i).standard_normal((6, 6)).astype(np.float32) / 2 for i, name in
           enumerate(("first", "left", "right", "last"))}  # fmt: skip
F = np.dtype(np.float32)


class Source:
    """(n, 3, 5, 6) channels last -> first -> left and right branch -> sum -> last; each layer a product and a tanh."""

    inputs = (TensorSpec("x", F, ("n", 3, 5, 6)),)
    outputs = (TensorSpec("y", F, ("n", 3, 5, 6)),)

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        self.layers(feeds, lambda name, kind, value: result.__setitem__("y", value))
        return result

    def layers(self, feeds: Mapping[str, np.ndarray], see: See) -> None:
        def layer(name: str, x: np.ndarray) -> np.ndarray:
            value: np.ndarray = np.tanh(x @ WEIGHTS[f"{name}.weight"])
            see(name, "Dense", value)
            return value

        first = layer("first", feeds["x"])
        both = layer("left", first) + layer("right", first)
        see("add", "Add", both)
        see("container", "Sequential", both)
        layer("last", both)


def converted(wrong: str = "", *, anonymous: bool = False) -> onnx.ModelProto:
    """The same with the channels moved to the second place inside, and flat products; one weight may be wrong."""
    weights = {name: value.copy() for name, value in WEIGHTS.items()}
    if wrong:
        weights[f"{wrong}.weight"][1, 2] += 0.5
    nodes = []

    def layer(name: str, source: str, result: str = "") -> str:
        weight = f"w{len(nodes)}" if anonymous else f"{name}.weight"
        initializers.append(numpy_helper.from_array(weights[f"{name}.weight"], weight))
        i = len(nodes)
        nodes.append(helper.make_node("MatMul", [source, weight], [f"m{i}"], name=f"product{i}"))
        nodes.append(helper.make_node("Tanh", [f"m{i}"], [f"t{i}"], name=f"tanh{i}"))
        nodes.append(helper.make_node("Transpose", [f"t{i}"], [f"c{i}"], perm=[0, 3, 1, 2]))
        nodes.append(helper.make_node("Transpose", [f"c{i}"], [result or f"b{i}"], perm=[0, 2, 3, 1]))
        return result or f"b{i}"

    initializers: list[TensorProto] = []
    first = layer("first", "x")
    nodes.append(helper.make_node("Add", [layer("left", first), layer("right", first)], ["both"], name="sum"))
    layer("last", "both", "y")
    edge = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 3, 5, 6]) for n in "xy"]
    graph = helper.make_graph(nodes, "g", edge[:1], edge[1:], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def looked_into(model: onnx.ModelProto, folder: Path) -> Any:
    onnx.save(model, folder / "b.onnx")
    return compare(Source(), folder / "b.onnx", layers=True).layers


@pytest.mark.parametrize("memory", [1, 1 << 28])
def test_every_layer_is_found_by_its_content(memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_stream, "MEMORY", memory)
    found = looked_into(converted(anonymous=True), tmp_path)
    assert {t.name for t in found.tensors} == {"first", "left", "right", "add", "last", "y"}
    assert all(t.ok and t.max_abs < 1e-5 for t in found.tensors)
    assert found.culprit is None
    assert found.unmatched_a == 0


@pytest.mark.parametrize(("wrong", "product"), [("first", 0), ("left", 4), ("right", 8), ("last", 13)])
def test_names_the_layer_and_the_node_that_are_wrong(wrong: str, product: int, tmp_path: Path) -> None:
    found = looked_into(converted(wrong), tmp_path)
    assert found.culprit.tensor == wrong
    assert next(s.node for s in found.culprit.suspects if s.model == "B") == f"product{product}"
    assert [s.node for s in found.culprit.suspects if s.model == "A"] == [wrong]
    states = {t.name: t.ok for t in found.tensors}
    assert states["first"] is (wrong != "first")
    assert states["y"] is False


def test_without_names_the_nodes_after_what_agrees_are_suspects(tmp_path: Path) -> None:
    found = looked_into(converted("last", anonymous=True), tmp_path)
    assert found.culprit.tensor == "y"
    assert next(s.node for s in found.culprit.suspects if s.model == "B") == "product13"
    assert [s.node for s in found.culprit.suspects if s.model == "A"] == ["last"]


def test_a_source_that_shows_nothing_is_refused(tmp_path: Path) -> None:
    class Closed(Source):
        def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
            return Source().run(feeds)

        def layers(self, feeds: Mapping[str, np.ndarray], see: See) -> None:
            pass

    onnx.save(converted(), tmp_path / "b.onnx")
    with pytest.raises(UnsupportedError, match="no layers inside"):
        compare(Closed(), tmp_path / "b.onnx", layers=True)
    with pytest.raises(UsageError, match="--bisect"):
        compare(Source(), tmp_path / "b.onnx", bisect=tmp_path / "part")
