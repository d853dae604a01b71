"""Inputs without elements do not end the process: a rule that fails would end pytest's worker."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxtool.equality.compare import compare
from onnxtool.errors import InputError
from onnxtool.optimization.optimize import optimize
from onnxtool.runtime.empty_inputs import is_empty
from onnxtool.runtime.run import run
from onnxtool.runtime.runner import OnnxRunner

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def recurrent(kind: str, *, inside: bool = False) -> onnx.ModelProto:
    """One recurrent layer over x[steps, batch, 3], or in both branches of an If."""
    gates = GATES[kind]
    weights = [
        numpy_helper.from_array(np.full((1, gates * 4, width), 0.1, np.float32), name)
        for name, width in (("w", 3), ("r", 4))
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", ["t", "b", 3]), ("y", None)))
    layer = helper.make_node(kind, ["x", "w", "r"], ["y"], hidden_size=4)
    nodes = [layer]
    if inside:
        branch = helper.make_graph([layer], "branch", [], [y])
        nodes = [
            helper.make_node("Constant", [], ["yes"], value=numpy_helper.from_array(np.array(True))),
            helper.make_node("If", ["yes"], ["out"], then_branch=branch, else_branch=branch),
        ]
        y = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def opened(proto: onnx.ModelProto, form: str, folder: Path) -> OnnxRunner:
    """A model as a file, bytes, or in memory."""
    path = folder / "m.onnx"
    onnx.save(proto, path)
    forms = {"path": path, "bytes": proto.SerializeToString(), "proto": proto, "ir": ir.from_proto(proto)}
    return OnnxRunner.open(forms[form])


@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("form", ["path", "bytes", "proto", "ir"])
def test_what_would_end_the_process_is_refused(kind: str, inside: bool, form: str, tmp_path: Path) -> None:
    proto = recurrent(kind, inside=inside)
    runner = opened(proto, form, tmp_path)
    with pytest.raises(InputError, match=r"'x' has shape .2, 0, 3.*Give at least one"):
        runner.run({"x": np.zeros((2, 0, 3), np.float32)})
    assert next(iter(runner.run({"x": np.zeros((2, 1, 3), np.float32)}).values())).shape == (2, 1, 1, 4)


# ONNX Runtime 1.31 leaves a reduced dim of nothing where it is, and joins what has other ranks: its process ends.
REDUCED = """<ir_version: 10, opset_import: ["" : 20]> g (float[n, 4] x) => (float[n, m] y)
    <int64[1] last = {-1}, int64 first = {0}> {
    s = ReduceSum <keepdims = 0> (x, last) u = Unsqueeze(s, last) g = Gather <axis = 1> (x, first)
    v = Unsqueeze(g, last) y = Concat <axis = -1> (u, v)
}"""


@pytest.mark.parametrize("form", ["path", "bytes", "proto", "ir"])
def test_known_operators_that_end_the_process_together_are_refused(form: str, tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(REDUCED)
    runner = opened(proto, form, tmp_path)
    with pytest.raises(InputError, match=r"'x' has shape .0, 4.*Give at least one"):
        runner.run({"x": np.zeros((0, 4), np.float32)})
    assert runner.run({"x": np.ones((2, 4), np.float32)})["y"].tolist() == [[4, 1], [4, 1]]


def test_proofs_of_known_operators_try_an_empty_batch_in_a_child(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(REDUCED), tmp_path / "m.onnx")
    assert optimize(tmp_path / "m.onnx", tmp_path / "o.onnx").ok
    assert compare(tmp_path / "m.onnx", tmp_path / "o.onnx", edge=True, effort="quick").ok


def test_an_empty_input_gives_what_the_runtime_gives(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(REDUCED.split("{\n")[0] + "{ y = Neg(x) }")
    runner = OnnxRunner.open(proto)
    for _ in range(2):
        assert runner.run({"x": np.zeros((0, 4), np.float32)})["y"].shape == (0, 4)


def test_sequences_are_no_empty_inputs() -> None:
    assert not is_empty({"s": [], "x": np.zeros(2)})
    assert is_empty({"x": np.zeros((2, 0))})


@pytest.mark.parametrize("form", ["path", "bytes"])
def test_an_operator_of_which_nothing_is_known_is_tried_apart(form: str, tmp_path: Path) -> None:
    proto = recurrent("RNN")
    runner = opened(proto, form, tmp_path)
    assert runner.run({"x": np.zeros((2, 0, 3), np.float32)})["y"].shape == (2, 1, 0, 4)


@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_proofs_do_without_an_empty_batch(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(recurrent(kind), path)
    assert optimize(path, tmp_path / "o.onnx").ok
    assert compare(path, tmp_path / "o.onnx", edge=True, effort="quick").ok


def test_a_last_input_of_an_empty_name_is_tried_in_a_child(tmp_path: Path) -> None:
    """ONNX Runtime's LayerNormalization reads it, and ends the process while it loads the model."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2, 3] x, float[3] w) => (float[2, 3] y)
    { y = LayerNormalization(x, w, "") }"""
    proto = onnx.parser.parse_model(text)
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(InputError, match="crashed"):
        run(tmp_path / "m.onnx")
