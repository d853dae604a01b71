"""The reference implementation as a Runner, and as the third opinion of compare."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxtool.equality.compare import compare
from onnxtool.errors import UnsupportedError
from onnxtool.runtime.reference import ReferenceRunner
from onnxtool.runtime.runner import OnnxRunner


def test_agrees_with_the_runtime(digits_onnx: Path, fixtures: Path) -> None:
    feeds = {"image": np.load(fixtures / "calib.npz")["image"][:2]}
    ours = OnnxRunner.open(digits_onnx).run(feeds)
    theirs = ReferenceRunner(digits_onnx).run(feeds)
    np.testing.assert_allclose(theirs["logits"], ours["logits"], rtol=1e-3, atol=1e-4)


def test_custom_operators_are_unsupported(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Whirl", ["x"], ["y"], domain="com.example")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.example", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "m.onnx")
    with pytest.raises(UnsupportedError, match="reference implementation"):
        ReferenceRunner(tmp_path / "m.onnx").run({"x": np.zeros(2, np.float32)})


def test_third_opinion_sides_with_the_reference(relu_proto: onnx.ModelProto, tmp_path: Path) -> None:
    onnx.save(relu_proto, tmp_path / "a.onnx")
    weight = numpy_helper.to_array(relu_proto.graph.initializer[0]) + np.float32(0.1)
    relu_proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight, "w"))
    onnx.save(relu_proto, tmp_path / "b.onnx")
    (opinion,) = compare(tmp_path / "a.onnx", tmp_path / "b.onnx", reference=True).opinions
    assert (opinion.a_ok, opinion.b_ok) == (True, False)
    assert opinion.summary == "agrees with A, not with B"
    (same,) = compare(tmp_path / "a.onnx", tmp_path / "a.onnx", reference=True).opinions
    assert same.summary == "agrees with both"
