"""LSTM layers on integers; what has no integer kernel, or lies in a subgraph, stays float and is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxtool
from onnxtool.errors import UnsupportedError
from onnxtool.model import io
from onnxtool.quantization.apply_recipe import apply
from onnxtool.quantization.preprocess.prepare import prepare
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.runtime.runner import OnnxRunner
from tests.quantization.kernels import count_kernels
from tests.quantization.quant_models import build, weights

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


def branching(inside: bool, width: int = 8) -> onnx.ModelProto:
    """An If whose branches multiply with weights; outside of it another MatMul, unless all are inside."""

    def branch(name: str) -> onnx.GraphProto:
        weight = numpy_helper.from_array(weights(width, width), f"w_{name}")
        output = helper.make_tensor_value_info(f"o_{name}", TensorProto.FLOAT, None)
        return helper.make_graph([node("MatMul", ["h", f"w_{name}"], [f"o_{name}"])], name, [], [output], [weight])

    first = node("Relu", ["x"], ["h"]) if inside else node("MatMul", ["x", "v"], ["h"])
    nodes = [
        first,
        node("ReduceSum", ["h"], ["total"], keepdims=0),
        node("Greater", ["total", "zero"], ["which"]),
        node("If", ["which"], ["y"], then_branch=branch("a"), else_branch=branch("b")),
    ]
    arrays = {"zero": np.float32(0)} | ({} if inside else {"v": weights(width, width)})
    return build(nodes, arrays, {"x": ["n", width]}, {"y": ["n", width]}, opset=17)


def branch_data() -> dict[str, np.ndarray]:
    """Samples of which some take the one branch and some the other."""
    data = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
    return {"x": data}


def assert_near(source: Path, result: Path, data: dict[str, np.ndarray]) -> None:
    first, second = OnnxRunner.open(source), OnnxRunner.open(result)
    for row in data["x"]:
        for sign in (1, -1):  # both branches
            feeds = {"x": sign * row[None]}
            expected = first.run(feeds)["y"]
            error = second.run(feeds)["y"] - expected
            assert (error**2).sum() <= 0.02 * (expected**2).sum()


def test_static_leaves_nodes_inside_subgraphs_in_float_and_says_so(tmp_path: Path) -> None:
    io.save(io.from_proto(branching(inside=False)), tmp_path / "m.onnx")
    data = branch_data()
    report = onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "q.onnx", mode="static", data=data)
    assert any("inside If, Loop or Scan, nodes stay float: 2 MatMul" in w for w in report.warnings)
    assert report.quantized == {"MatMul": (1, 3)}
    assert_near(tmp_path / "m.onnx", tmp_path / "q.onnx", data)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(("mode", "operator"), [("dynamic", "MatMulInteger"), ("int8", "MatMulNBits")])
def test_modes_without_ranges_reach_into_subgraphs(mode: str, operator: str, inside: bool, tmp_path: Path) -> None:
    io.save(io.from_proto(branching(inside)), tmp_path / "m.onnx")
    data = branch_data()
    report = onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "q.onnx", mode=mode, data=data, block_size=16)
    total = 2 if inside else 3
    assert report.quantized == {"MatMul": (total, total)}
    assert not any("inside If" in w for w in report.warnings)
    graph = onnx.load(tmp_path / "q.onnx").graph
    (branching_node,) = [n for n in graph.node if n.op_type == "If"]
    for attribute in branching_node.attribute:
        assert [n.op_type for n in attribute.g.node].count(operator) == 1
        assert not any(i.data_type == TensorProto.FLOAT and len(i.dims) == 2 for i in attribute.g.initializer)
    assert_near(tmp_path / "m.onnx", tmp_path / "q.onnx", data)


def looping(weight: str) -> onnx.ModelProto:
    """A Loop whose body multiplies with weights: of the outer graph, or a state that it hands on as it is.

    A state is handed on by name or by Identity; it may also be read after the loop, or change on the way.
    """
    inputs = [("i", TensorProto.INT64, []), ("go", TensorProto.BOOL, []), ("h", TensorProto.FLOAT, None)]
    outputs = [("still", TensorProto.BOOL, []), ("next", TensorProto.FLOAT, None)]
    nodes = [
        node("MatMul", ["h", "w" if weight == "outer" else "state"], ["next"]),
        node("Identity", ["go"], ["still"]),
    ]
    if weight != "outer":
        inputs.append(("state", TensorProto.FLOAT, None))
        outputs.append(("state" if weight == "state" else "handed", TensorProto.FLOAT, None))
    if weight in ("identity", "read"):
        nodes.append(node("Identity", ["state"], ["handed"]))
    if weight == "changing":
        nodes.append(node("Neg", ["state"], ["handed"]))
    values = [[helper.make_tensor_value_info(*v) for v in some] for some in (inputs, outputs)]
    body = helper.make_graph(nodes, "body", *values)
    states, results = (["x"], ["y"]) if weight == "outer" else (["x", "w"], ["y", "w_after"])
    loop = node("Loop", ["times", "", *states], results, body=body)
    turn = np.linalg.qr(weights(32, 32))[0].astype(np.float32)
    arrays = {"times": np.int64(2), "w": turn}
    if weight == "read":
        loop.output[0] = "z"
        return build(
            [loop, node("MatMul", ["z", "w_after"], ["y"])], arrays, {"x": ["n", 32]}, {"y": ["n", 32]}, opset=17
        )
    return build([loop], arrays, {"x": ["n", 32]}, {"y": ["n", 32]}, opset=17)


@pytest.mark.parametrize("weight", ["changing", "read"])
def test_a_state_that_is_no_constant_stays_a_state(weight: str, tmp_path: Path) -> None:
    io.save(io.from_proto(looping(weight)), tmp_path / "m.onnx")
    with pytest.raises(UnsupportedError, match="1 MatMul inside If, Loop or Scan"):
        onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "q.onnx", mode="dynamic")


@pytest.mark.parametrize("weight", ["outer", "state", "identity"])
def test_weights_that_a_loop_gets_from_outside_are_reached(weight: str, tmp_path: Path) -> None:
    io.save(io.from_proto(looping(weight)), tmp_path / "m.onnx")
    report = onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "q.onnx", mode="dynamic")
    assert report.quantized == {"MatMul": (1, 1)}
    stored = {t.name: t.data_type for t in onnx.load(tmp_path / "q.onnx").graph.initializer}
    assert TensorProto.INT8 in stored.values()
    assert "w" not in stored, "the float weights are gone"
    assert_near(tmp_path / "m.onnx", tmp_path / "q.onnx", {"x": weights(4, 32)})


def test_auto_tries_what_is_inside_subgraphs(tmp_path: Path) -> None:
    io.save(io.from_proto(branching(inside=True)), tmp_path / "m.onnx")
    report = onnxtool.quantize(
        tmp_path / "m.onnx", tmp_path / "q.onnx", data=branch_data(), target="vnni", time_limit=30, smallest=True
    )
    assert any("inside subgraphs" in c.name for c in report.frontier)


def test_compact_reaches_weights_inside_subgraphs(tmp_path: Path) -> None:
    io.save(io.from_proto(branching(inside=True, width=64)), tmp_path / "m.onnx")
    onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "q.onnx", mode="static", data={"x": weights(8, 64)}, compact=16)
    assert (tmp_path / "q.onnx").stat().st_size < 0.7 * (tmp_path / "m.onnx").stat().st_size
    assert_near(tmp_path / "m.onnx", tmp_path / "q.onnx", {"x": weights(8, 64)})


def test_nothing_outside_subgraphs_is_said_in_one_line(tmp_path: Path) -> None:
    io.save(io.from_proto(branching(inside=True)), tmp_path / "m.onnx")
    with pytest.raises(UnsupportedError, match=r"2 MatMul inside If, Loop or Scan left aside.*--mode dynamic reaches"):
        onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "q.onnx", mode="static", data=branch_data())


@pytest.mark.parametrize("mode", ["auto", "static", "dynamic", "int4"])
def test_a_model_that_is_quantized_already_is_said_in_one_line(
    mode: str, residual: onnx.ModelProto, residual_data: dict[str, np.ndarray], tmp_path: Path
) -> None:
    io.save(io.from_proto(residual), tmp_path / "m.onnx")
    onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "q.onnx", mode="static", data=residual_data)
    with pytest.raises(UnsupportedError, match="quantized already"):
        onnxtool.quantize(tmp_path / "q.onnx", tmp_path / "r.onnx", mode=mode, data=residual_data)
    assert not (tmp_path / "r.onnx").exists()


def test_gates_reordered_inside_a_branch_are_weights_all_the_same(tmp_path: Path) -> None:
    """Exporters cut the weights of a layer up and put the pieces together again, also where nothing folds it."""
    proto = branching(inside=True)
    pieces = {"from_0": 0, "from_3": 3, "to_3": 3, "to_8": 8, "rows": 0, "one": 1}
    for attribute in proto.graph.node[-1].attribute:
        name = attribute.g.node[0].input[1]
        attribute.g.initializer.extend(numpy_helper.from_array(np.array([v], np.int64), k) for k, v in pieces.items())
        product = attribute.g.node.pop()
        attribute.g.node.extend(
            [
                node("Slice", [name, "from_3", "to_8", "rows", "one"], ["second"]),
                node("Slice", [name, "from_0", "to_3", "rows"], ["first"]),
                node("Concat", ["second", "first"], ["whole"], axis=0),
            ]
        )
        product.input[1] = "whole"
        attribute.g.node.append(product)
    io.save(io.from_proto(proto), tmp_path / "m.onnx")
    report = onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "q.onnx", mode="dynamic")
    assert report.quantized == {"MatMul": (2, 2)}
    assert_near(tmp_path / "m.onnx", tmp_path / "q.onnx", branch_data())
