"""LSTM layers on integers; what has no integer kernel, or lies in a subgraph, stays float and is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from quant_models import build, weights

import onnxtool
from onnxtool.errors import UnsupportedError
from onnxtool.model import io
from onnxtool.quantize.apply import apply
from onnxtool.quantize.kernels import count_kernels
from onnxtool.quantize.prepare import prepare
from onnxtool.quantize.recipe import QuantRecipe
from onnxtool.runtime.runner import OnnxRunner

node = helper.make_node
HIDDEN, WIDTH, STEPS = 24, 20, 7
FEEDS = {"x": np.random.default_rng(2).standard_normal((STEPS, 3, WIDTH)).astype(np.float32)}


def recurrent(kind: str, direction: str = "forward", peepholes: bool = False) -> onnx.ModelProto:
    """One recurrent layer and a MatMul behind it."""
    dirs, gates = (2 if direction == "bidirectional" else 1), (4 if kind == "LSTM" else 3)
    inputs = ["x", "w", "r", "b"] + (["", "", "", "p"] if peepholes else [])
    outputs = ["h", "", ""] if kind == "LSTM" else ["h", ""]
    nodes = [
        node(kind, inputs, outputs, hidden_size=HIDDEN, direction=direction),
        node("MatMul", ["h", "v"], ["y"]),
    ]
    arrays = {
        "w": weights(dirs, gates * HIDDEN, WIDTH) * 3,
        "r": weights(dirs, gates * HIDDEN, HIDDEN) * 3,
        "b": weights(dirs, 2 * gates * HIDDEN),
        "v": weights(HIDDEN, 8),
    }
    if peepholes:
        arrays["p"] = weights(dirs, 3 * HIDDEN)
    return build(nodes, arrays, {"x": ["s", "n", WIDTH]}, {"y": ["s", dirs, "n", 8]}, opset=17)


def noise(proto: onnx.ModelProto, model: object) -> float:
    expected = OnnxRunner.open(proto).run(FEEDS)["y"]
    error = OnnxRunner.open(model).run(FEEDS)["y"] - expected  # type: ignore[arg-type]
    return float((error**2).sum() / (expected**2).sum())


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("kind", ["s8", "u8"])
def test_an_lstm_runs_on_integers_near_float(direction: str, per_channel: bool, kind: str) -> None:
    proto = recurrent("LSTM", direction)
    recipe = QuantRecipe(mode="dynamic", per_channel=per_channel, weights=kind)  # type: ignore[arg-type]
    model = apply(prepare(io.from_proto(proto)), recipe)
    kernels = count_kernels(model)
    assert kernels["DynamicQuantizeLSTM"] == 1
    assert "LSTM" not in kernels
    assert noise(proto, model) < 3e-3


def test_its_weights_are_numpys() -> None:
    proto = recurrent("LSTM")
    model = apply(prepare(io.from_proto(proto), "none"), QuantRecipe(mode="dynamic"))
    (lstm,) = [n for n in model.graph if n.op_type == "DynamicQuantizeLSTM"]
    arrays = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    for index, name, place in ((1, "w", 8), (2, "r", 10)):
        turned = arrays[name].transpose(0, 2, 1)
        scale = np.abs(turned).max(axis=1) / 127
        np.testing.assert_allclose(lstm.inputs[place].const_value.numpy(), scale, rtol=1e-6)
        np.testing.assert_array_equal(lstm.inputs[index].const_value.numpy(), np.rint(turned / scale[:, None, :]))


@pytest.mark.parametrize(("kind", "peepholes"), [("GRU", False), ("LSTM", True)])
def test_what_has_no_kernel_stays_float(kind: str, peepholes: bool, tmp_path: Path) -> None:
    proto = recurrent(kind, peepholes=peepholes)
    io.save(io.from_proto(proto), tmp_path / "m.onnx")
    report = onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "q.onnx", mode="dynamic")
    assert report.kernels[kind] == 1
    if kind == "GRU":
        assert any("no integer kernel for 1 GRU" in w for w in report.warnings)
    smaller = onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "c.onnx", mode="dynamic", compact=8)
    assert smaller.bytes_after < 0.6 * report.bytes_after
    assert smaller.kernels[kind] == 1


def test_an_lstm_can_be_excluded_and_be_the_only_one(tmp_path: Path) -> None:
    io.save(io.from_proto(recurrent("LSTM")), tmp_path / "m.onnx")
    without = onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "q.onnx", mode="dynamic", op_types=("MatMul",))
    assert without.quantized == {"LSTM": (0, 1), "MatMul": (1, 1)}
    alone = onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "q.onnx", mode="dynamic", op_types=("LSTM",))
    assert alone.quantized == {"LSTM": (1, 1), "MatMul": (0, 1)}


def test_auto_tries_it(tmp_path: Path) -> None:
    io.save(io.from_proto(recurrent("LSTM", "bidirectional")), tmp_path / "m.onnx")
    random = np.random.default_rng(0)
    feeds = [{"x": random.standard_normal((STEPS, 1, WIDTH)).astype(np.float32)} for _ in range(24)]
    report = onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "q.onnx", data=feeds, target="vnni", time_limit=30)
    assert report.ok
    assert report.quantized["LSTM"] == (1, 1)
    assert any(c.name.startswith("dynamic LSTM") for c in report.frontier)


def branching(inside: bool) -> onnx.ModelProto:
    """An If whose branches multiply with weights; outside of it another MatMul, unless all are inside."""

    def branch(name: str) -> onnx.GraphProto:
        weight = numpy_helper.from_array(weights(8, 8), f"w_{name}")
        output = helper.make_tensor_value_info(f"o_{name}", TensorProto.FLOAT, None)
        return helper.make_graph([node("MatMul", ["h", f"w_{name}"], [f"o_{name}"])], name, [], [output], [weight])

    first = node("Relu", ["x"], ["h"]) if inside else node("MatMul", ["x", "v"], ["h"])
    nodes = [
        first,
        node("ReduceSum", ["h"], ["total"], keepdims=0),
        node("Greater", ["total", "zero"], ["which"]),
        node("If", ["which"], ["y"], then_branch=branch("a"), else_branch=branch("b")),
    ]
    arrays = {"zero": np.float32(0)} | ({} if inside else {"v": weights(8, 8)})
    return build(nodes, arrays, {"x": ["n", 8]}, {"y": ["n", 8]}, opset=17)


@pytest.mark.parametrize("mode", ["static", "dynamic", "int8"])
def test_nodes_inside_subgraphs_stay_float_and_are_told(mode: str, tmp_path: Path) -> None:
    proto = branching(inside=False)
    io.save(io.from_proto(proto), tmp_path / "m.onnx")
    data = {"x": np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)}
    report = onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "q.onnx", mode=mode, data=data, block_size=16)
    assert any("inside If, Loop or Scan, nodes stay float: 2 MatMul" in w for w in report.warnings)
    expected = OnnxRunner.open(tmp_path / "m.onnx").run(data)["y"]
    error = OnnxRunner.open(tmp_path / "q.onnx").run(data)["y"] - expected
    assert (error**2).sum() < 0.01 * (expected**2).sum()


def test_nothing_outside_subgraphs_is_said_in_one_line(tmp_path: Path) -> None:
    io.save(io.from_proto(branching(inside=True)), tmp_path / "m.onnx")
    with pytest.raises(UnsupportedError, match="2 of them are inside If"):
        onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "q.onnx", mode="dynamic")


@pytest.mark.parametrize("mode", ["auto", "static", "dynamic", "int4"])
def test_a_model_that_is_quantized_already_is_said_in_one_line(
    mode: str, residual: onnx.ModelProto, residual_data: dict[str, np.ndarray], tmp_path: Path
) -> None:
    io.save(io.from_proto(residual), tmp_path / "m.onnx")
    onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "q.onnx", mode="static", data=residual_data)
    with pytest.raises(UnsupportedError, match="quantized already"):
        onnxtool.quantize(tmp_path / "q.onnx", tmp_path / "r.onnx", mode=mode, data=residual_data)
    assert not (tmp_path / "r.onnx").exists()
