"""Float weights stored in 8 bits: a quarter of the file, and the runtime's own float kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import onnxtool
from onnxtool.errors import UsageError
from onnxtool.model import io
from onnxtool.quantization.algorithms.weight_storage import compact_weight, compactable, spared
from onnxtool.quantization.apply_recipe import apply
from onnxtool.quantization.preprocess.prepare import prepare
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.runtime.runner import OnnxRunner
from tests.quantization.kernels import count_kernels
from tests.quantization.quant_models import build, weights

node = helper.make_node
FLOAT = QuantRecipe(plan={}, compact=8)


def mixed() -> onnx.ModelProto:
    """An embedding, an LSTM, a convolution, a transposed one, a Gemm and a MatMul: every kind of weight."""
    nodes = [
        node("Gather", ["table", "ids"], ["e"]),
        node("LSTM", ["e", "w", "r", "b"], ["h4", "", ""], hidden_size=16),
        node("Squeeze", ["h4", "axis"], ["h"]),
        node("Transpose", ["h"], ["t"], perm=[1, 2, 0]),
        node("Conv", ["t", "k"], ["c"], pads=[1, 1]),
        node("ConvTranspose", ["c", "d"], ["u"]),
        node("GlobalAveragePool", ["u"], ["p"]),
        node("Flatten", ["p"], ["f"]),
        node("Gemm", ["f", "g", "gb"], ["m"], transB=1),
        node("MatMul", ["m", "v"], ["y"]),
    ]
    arrays = {
        "table": weights(100, 32),
        "w": weights(1, 64, 32),
        "r": weights(1, 64, 16),
        "b": weights(1, 128) * 0.1,
        "axis": np.array([1], np.int64),
        "k": weights(32, 16, 3),
        "d": weights(32, 24, 3),
        "g": weights(64, 24),
        "gb": weights(64),
        "v": weights(64, 20),
    }
    graph = helper.make_graph(
        nodes,
        "mixed",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [6, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 20])],
        [numpy_helper.from_array(a, n) for n, a in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


IDS = {"ids": np.random.default_rng(0).integers(0, 100, (6, 2))}


def test_each_channel_is_rounded_with_its_own_scale() -> None:
    weight = weights(6, 4, 3, 3) * np.geomspace(1e-3, 1e3, 6).astype(np.float32)[:, None, None, None]
    weight[2] = 0
    integers, scales = compact_weight(weight, (0,))
    assert integers.dtype == np.int8
    assert scales.shape == (6, 1, 1, 1)
    assert np.abs(integers).max() == 127
    assert (np.abs(integers * scales - weight) <= scales / 2 * 1.001).all()
    assert scales[2] == 1, "a channel of zeros"


def test_every_kind_of_weight_shrinks_and_the_kernels_stay_floats() -> None:
    proto = mixed()
    prepared = prepare(io.from_proto(proto))
    model = apply(prepared, FLOAT)
    left = [
        v.name for v in model.graph.initializers.values() if v.dtype == 1 and v.const_value and v.const_value.size > 200
    ]
    assert left == []
    assert model.graph.initializers.keys().isdisjoint({"table", "w", "r", "k", "d", "g", "v"})
    assert count_kernels(model) == count_kernels(prepared), "Cast and Mul are computed once, at load"
    expected, actual = OnnxRunner.open(proto).run(IDS)["y"], OnnxRunner.open(model).run(IDS)["y"]
    assert ((actual - expected) ** 2).sum() < 1e-3 * (expected**2).sum()


def test_the_reference_evaluator_agrees_with_the_runtime() -> None:
    model = apply(prepare(io.from_proto(mixed())), FLOAT)
    expected = ReferenceEvaluator(io.to_proto(model)).run(None, IDS)[0]
    np.testing.assert_allclose(OnnxRunner.open(model).run(IDS)["y"], expected, rtol=1e-3, atol=1e-4)


def test_what_is_read_as_anything_but_weights_stays() -> None:
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "w"], ["y"])]
    proto = build(nodes, {"w": weights(64, 64)}, {"x": [64, 64]}, {"y": [64, 64]})
    assert not compactable(prepare(io.from_proto(proto), "none").graph)
    small = build([node("MatMul", ["x", "w"], ["y"])], {"w": weights(8, 8)}, {"x": [1, 8]}, {"y": [1, 8]})
    assert not compactable(prepare(io.from_proto(small)).graph)


@pytest.mark.parametrize("mode", ["dynamic", "int4"])
def test_modes_take_it_for_what_they_leave_float(mode: str, tmp_path: Path) -> None:
    io.save(io.from_proto(mixed()), tmp_path / "m.onnx")
    sizes = []
    for compact in (0, 8):
        report = onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "q.onnx", mode=mode, compact=compact)
        sizes.append(report.bytes_after)
        assert report.fidelity is not None
        assert report.fidelity.sqnr_db > 15
    assert sizes[1] < 0.6 * sizes[0]
    assert "compact 8" in report.summary
    with pytest.raises(UsageError, match="--compact goes with"):
        onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "q.onnx", mode="float16", compact=8)


def test_auto_offers_float_kernels_with_small_weights_when_nothing_beats_float(tmp_path: Path) -> None:
    # Rows of very different sizes share one scale, which leaves the small ones nothing; weights have no such trouble.
    nodes = [
        node("MatMul", ["x", "w"], ["m"]),
        node("ReduceL2", ["x"], ["s"], axes=[-1]),
        node("Div", ["m", "s"], ["y"]),
    ]
    proto = build(nodes, {"w": weights(64, 64)}, {"x": ["n", 5, 64]}, {"y": ["n", 5, 64]}, opset=17)
    io.save(io.from_proto(proto), tmp_path / "m.onnx")
    sizes = np.array([1e-4, 1e-3, 1e-2, 1, 1], np.float32)[:, None]
    data = {"x": np.random.default_rng(0).standard_normal((48, 5, 64)).astype(np.float32) * sizes}
    report = onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "q.onnx", data=data, smallest=True, target="vnni")
    assert report.output is not None
    assert report.summary == "float, weights stored in 8 bits"
    again = onnxtool.quantize(
        tmp_path / "m.onnx",
        tmp_path / "r.onnx",
        data=data,
        smallest=True,
        target="vnni",
        recipe_file=tmp_path / "r.json",
    )
    replayed = onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "s.onnx", recipe_file=tmp_path / "r.json")
    assert again.recipe == replayed.recipe
    assert (tmp_path / "r.onnx").read_bytes() == (tmp_path / "s.onnx").read_bytes()


def test_sixteen_bits_are_half_the_size_at_next_to_no_error(tmp_path: Path) -> None:
    proto = mixed()
    prepared = prepare(io.from_proto(proto))
    model = apply(prepared, QuantRecipe(plan={}, compact=16))
    assert count_kernels(model) == count_kernels(prepared)
    expected, actual = OnnxRunner.open(proto).run(IDS)["y"], OnnxRunner.open(model).run(IDS)["y"]
    assert ((actual - expected) ** 2).sum() < 1e-6 * (expected**2).sum()
    sizes = [io.to_proto(m).ByteSize() for m in (prepared, model)]
    assert sizes[1] < 0.6 * sizes[0]
    with pytest.raises(UsageError, match="--compact 4"):
        QuantRecipe(compact=4)


def test_a_weight_beyond_float16_stays_as_it_is() -> None:
    weight = weights(64, 64)
    weight[0, 0] = 1e6
    proto = build([node("MatMul", ["x", "w"], ["y"])], {"w": weight}, {"x": ["n", 64]}, {"y": ["n", 64]})
    model = apply(prepare(io.from_proto(proto)), QuantRecipe(plan={}, compact=16))
    assert "Cast" not in [n.op_type for n in model.graph]


def test_auto_stores_what_the_winner_leaves_float_in_fewer_bits(tmp_path: Path) -> None:
    nodes = [
        node("Gather", ["table", "ids"], ["e"]),
        node("MatMul", ["e", "w"], ["m"]),
        node("Relu", ["m"], ["r"]),
        node("MatMul", ["r", "v"], ["y"]),
    ]
    arrays = {"table": weights(400, 64), "w": weights(64, 128), "v": weights(128, 64)}
    graph = helper.make_graph(
        nodes,
        "embedding",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["n", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8, 64])],
        [numpy_helper.from_array(a, n) for n, a in arrays.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    io.save(io.from_proto(proto), tmp_path / "m.onnx")
    data = {"ids": np.random.default_rng(0).integers(0, 400, (48, 8))}
    report = onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "q.onnx", data=data, target="vnni", time_limit=40)
    assert report.quantized == {"MatMul": (2, 2)}
    assert "compact 8" in report.summary
    assert report.size_ratio < 0.35
    (chosen,) = [c for c in report.frontier if c.chosen]
    assert chosen.within_budget


def test_three_quarters_of_what_float_weights_take_is_spared() -> None:
    arrays = {"w": weights(64, 64), "v": weights(64, 2)}  # the second is too small to be worth it
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("MatMul", ["h", "v"], ["y"])]
    model = io.from_proto(build(nodes, arrays, {"x": ["n", 64]}, {"y": ["n", 2]}))
    assert spared(model.graph) == 3 * 64 * 64
