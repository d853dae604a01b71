"""compare --layers: the node that is to blame is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxtool.equality.compare import compare
from onnxtool.equality.layers import tensor_stream
from onnxtool.equality.layers.compare_layers import compare_layers, measure
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.errors import UsageError
from onnxtool.runtime.feeds import random_feeds
from onnxtool.runtime.runner import OnnxRunner

DEPTH = 6


def chain(*, fused: bool = False, prefix: str = "") -> onnx.ModelProto:
    """x -> (MatMul, Add, Tanh) DEPTH times -> y; `fused` writes MatMul and Add as one Gemm."""
    generator = np.random.default_rng(0)
    nodes, weights, source = [], [], "x"
    for i in range(DEPTH):
        result = "y" if i == DEPTH - 1 else f"{prefix}t{i}"
        weights.append(numpy_helper.from_array(generator.standard_normal((8, 8)).astype(np.float32) / 3, f"w{i}"))
        weights.append(numpy_helper.from_array(generator.standard_normal(8).astype(np.float32), f"b{i}"))
        if fused:
            nodes.append(helper.make_node("Gemm", [source, f"w{i}", f"b{i}"], [f"{prefix}a{i}"], name=f"gemm{i}"))
        else:
            nodes.append(helper.make_node("MatMul", [source, f"w{i}"], [f"{prefix}m{i}"], name=f"matmul{i}"))
            nodes.append(helper.make_node("Add", [f"{prefix}m{i}", f"b{i}"], [f"{prefix}a{i}"], name=f"add{i}"))
        nodes.append(helper.make_node("Tanh", [f"{prefix}a{i}"], [result], name=f"tanh{i}"))
        source = result
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def damaged(model: onnx.ModelProto, weight: str) -> onnx.ModelProto:
    tensor = next(t for t in model.graph.initializer if t.name == weight)
    values = numpy_helper.to_array(tensor).copy()
    values.reshape(-1)[3] += 0.5
    tensor.CopyFrom(numpy_helper.from_array(values, weight))
    return model


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    onnx.save(chain(), tmp_path / "a.onnx")
    return tmp_path / "a.onnx"


@pytest.fixture
def feeds() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32)}


def test_a_model_against_itself_has_no_culprit(reference: Path, feeds: dict[str, np.ndarray]) -> None:
    found = compare_layers(reference, reference, feeds, Tolerance())
    assert found.culprit is None
    assert found.changed == ()
    assert len(found.tensors) == 3 * DEPTH
    assert all(t.ok and t.max_abs == 0 for t in found.tensors)


@pytest.mark.parametrize("weight", [f"{kind}{i}" for kind in "wb" for i in range(DEPTH)])
def test_names_the_node_of_a_damaged_weight(
    weight: str, reference: Path, feeds: dict[str, np.ndarray], tmp_path: Path
) -> None:
    onnx.save(damaged(chain(), weight), tmp_path / "b.onnx")
    found = compare_layers(reference, tmp_path / "b.onnx", feeds, Tolerance())
    assert found.culprit is not None
    expected = ("matmul" if weight[0] == "w" else "add") + weight[1:]
    first = found.culprit.suspects[0]
    assert (first.node, first.changed_weights) == (expected, (weight,))
    depth = next(t.depth for t in found.tensors if t.name == found.culprit.tensor)
    assert [t.ok for t in found.tensors] == [t.depth < depth for t in found.tensors]


@pytest.mark.parametrize("index", range(DEPTH))
def test_names_the_fused_node_too(index: int, reference: Path, feeds: dict[str, np.ndarray], tmp_path: Path) -> None:
    onnx.save(damaged(chain(fused=True), f"w{index}"), tmp_path / "b.onnx")
    found = compare_layers(reference, tmp_path / "b.onnx", feeds, Tolerance())
    assert found.culprit is not None
    assert {s.node for s in found.culprit.suspects} == {f"gemm{index}", f"matmul{index}", f"add{index}"}
    # Only A has the changed weight under this name in a node of its own: both readers are told first.
    assert {s.node for s in found.culprit.suspects[:2]} == {f"gemm{index}", f"matmul{index}"}


def test_matches_renamed_tensors_by_value(reference: Path, feeds: dict[str, np.ndarray], tmp_path: Path) -> None:
    onnx.save(damaged(chain(prefix="other_"), "w3"), tmp_path / "b.onnx")
    found = compare_layers(reference, tmp_path / "b.onnx", feeds, Tolerance())
    by_value = {t.other_name: t.name for t in found.tensors if t.matched_by == "value"}
    assert {"other_t0": "t0", "other_m1": "m1", "other_t2": "t2"}.items() <= by_value.items()
    assert found.culprit is not None
    assert "matmul3" in {s.node for s in found.culprit.suspects}
    assert "matmul2" not in {s.node for s in found.culprit.suspects}


def test_a_name_that_went_to_another_tensor_is_not_to_blame(
    reference: Path, feeds: dict[str, np.ndarray], tmp_path: Path
) -> None:
    # As after folding: m0 now names what a0 was, and nothing else changed.
    model = chain(fused=True)
    model.graph.node[0].output[0] = "m0"
    model.graph.node[1].input[0] = "m0"
    onnx.save(model, tmp_path / "b.onnx")
    found = compare_layers(reference, tmp_path / "b.onnx", feeds, Tolerance())
    assert found.culprit is None
    assert [t.name for t in found.tensors if t.reused] == ["m0"]


def test_a_chain_of_reused_names_is_seen_through(reference: Path, feeds: dict[str, np.ndarray], tmp_path: Path) -> None:
    # As after merging: m0 and a0 name scaled tensors, and t0 is right again. The real fault is deeper.
    model = damaged(chain(), "w4")
    twice = numpy_helper.from_array(np.float32(2), "two")
    model.graph.initializer.append(twice)
    nodes = list(model.graph.node)
    nodes[0].output[0] = "plain"
    nodes.insert(1, helper.make_node("Mul", ["plain", "two"], ["m0"], name="scale"))
    nodes.insert(2, helper.make_node("Mul", ["b0", "two"], ["b0_twice"], name="scale_bias"))
    nodes[3].input[1] = "b0_twice"
    nodes.insert(4, helper.make_node("Div", ["a0", "two"], ["unscaled"], name="unscale"))
    nodes[5].input[0] = "unscaled"
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, tmp_path / "b.onnx")
    found = compare_layers(reference, tmp_path / "b.onnx", feeds, Tolerance())
    assert {t.name for t in found.tensors if t.reused} == {"m0", "a0"}
    assert found.culprit is not None
    assert found.culprit.suspects[0].node == "matmul4"


def test_a_changed_weight_without_effect_is_told(tmp_path: Path, reference: Path) -> None:
    onnx.save(damaged(chain(), "w0"), tmp_path / "b.onnx")
    nothing = {"x": np.zeros((2, 8), np.float32)}
    found = compare_layers(reference, tmp_path / "b.onnx", nothing, Tolerance())
    assert found.culprit is None
    assert [s.node for s in found.changed] == ["matmul0"]


def test_memory_is_bounded_by_more_passes(
    reference: Path, feeds: dict[str, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx.save(damaged(chain(), "w4"), tmp_path / "b.onnx")
    monkeypatch.setattr(tensor_stream, "MEMORY", 1000)
    found = compare_layers(reference, tmp_path / "b.onnx", feeds, Tolerance())
    assert found.passes > 3
    assert found.culprit is not None
    assert found.culprit.suspects[0].node == "matmul4"


def test_external_weights_are_left_where_they_are(
    reference: Path, feeds: dict[str, np.ndarray], tmp_path: Path
) -> None:
    folder = tmp_path / "external"
    folder.mkdir()
    onnx.save(
        damaged(chain(), "w4"), folder / "b.onnx", save_as_external_data=True, location="b.data", size_threshold=0
    )
    found = compare_layers(reference, folder / "b.onnx", feeds, Tolerance())
    assert found.culprit is not None
    assert (found.culprit.tensor, found.culprit.suspects[0].node) == ("m4", "matmul4")
    assert sorted(p.name for p in folder.iterdir()) == ["b.data", "b.onnx"]


def test_constants_count_as_weights(reference: Path, feeds: dict[str, np.ndarray], tmp_path: Path) -> None:
    def with_constant(model: onnx.ModelProto) -> onnx.ModelProto:
        tensor = next(t for t in model.graph.initializer if t.name == "b2")
        model.graph.node.insert(0, helper.make_node("Constant", [], ["b2"], value=tensor))
        model.graph.initializer.remove(tensor)
        return model

    onnx.save(with_constant(chain()), tmp_path / "a2.onnx")
    onnx.save(with_constant(damaged(chain(), "b2")), tmp_path / "b.onnx")
    found = compare_layers(tmp_path / "a2.onnx", tmp_path / "b.onnx", feeds, Tolerance())
    assert found.culprit is not None
    assert found.culprit.suspects[0].node == "add2"


def test_real_model_against_itself(digits_onnx: Path) -> None:
    feeds = random_feeds(OnnxRunner.open(digits_onnx).inputs, 3)
    found = compare_layers(digits_onnx, digits_onnx, feeds, Tolerance())
    assert found.culprit is None
    assert (found.unmatched_a, found.unmatched_b) == (0, 0)


def test_measure_knows_nan_shape_and_type() -> None:
    def of(a: object, b: object) -> tuple[bool, float]:
        found = measure(np.asarray(a), np.asarray(b), Tolerance())  # on its own: one tensor, one run
        assert found is not None
        return found.ok, found.max_abs

    nan, one = np.float32(np.nan), np.float32(1)
    assert of([nan, one], [nan, one]) == (True, 0.0)
    assert of([nan, one], [one, one]) == (False, np.inf)
    infinite = np.float32(np.inf)
    assert of([infinite, one], [infinite, one]) == (True, 0.0)
    assert of([infinite, one], [one, one]) == (False, np.inf)
    assert of([infinite, one], [-infinite, one]) == (False, np.inf)
    assert of([infinite, one], [infinite, np.float32(2)]) == (False, 1.0)
    assert of([1.0], [1.0, 2.0]) == (False, np.inf)
    assert of([1, 2], [1, 5]) == (False, 3.0)
    assert of(["a"], ["b"]) == (False, np.inf)
    assert of(np.zeros((0,), np.float32), np.zeros((0,), np.float32)) == (True, 0.0)


def test_layers_needs_a_file_to_judge(digits_onnx: Path) -> None:
    runner = OnnxRunner.open(digits_onnx)
    with pytest.raises(UsageError, match=r"an \.onnx file as B"):
        compare(digits_onnx, runner, layers=True)
    with pytest.raises(UsageError, match="PyTorch and Keras models"):
        compare(runner, digits_onnx, layers=True)


def test_an_error_that_grows_into_sight_is_traced_to_its_weight(tmp_path: Path) -> None:
    # Half of the relative tolerance in what is subtracted from; ten times as much in the rest.
    def remainder(weight: float) -> onnx.ModelProto:
        nodes = [
            helper.make_node("Mul", ["x", "w"], ["large"], "first"),
            helper.make_node("Sub", ["large", "most"], ["y"], "second"),
        ]
        graph = helper.make_graph(
            nodes,
            "grows",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])],
            [
                numpy_helper.from_array(np.float32(weight).reshape(1), "w"),
                numpy_helper.from_array(np.float32([0.9]), "most"),
            ],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)

    onnx.save(remainder(1.0), tmp_path / "a.onnx")
    onnx.save(remainder(1.0005), tmp_path / "b.onnx")
    found = compare_layers(tmp_path / "a.onnx", tmp_path / "b.onnx", {"x": np.ones(3, np.float32)}, Tolerance())
    assert found.culprit is not None
    assert found.culprit.tensor == "y"
    assert [(s.node, s.changed_weights) for s in found.culprit.suspects] == [("first", ("w",)), ("second", ())]
