"""Models that give sequences of maps survive loading and saving."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from onnxtool.model import io
from onnxtool.runtime.runner import OnnxRunner


def zipmap_model() -> onnx.ModelProto:
    node = helper.make_node("ZipMap", ["x"], ["maps"], domain="ai.onnx.ml", classlabels_strings=["no", "yes"])
    maps = helper.make_value_info(
        "maps",
        helper.make_sequence_type_proto(
            helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
        ),
    )
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2])], [maps]
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)], ir_version=9
    )


def test_a_map_output_keeps_its_type_and_runs(tmp_path: Path) -> None:
    proto = zipmap_model()
    before = proto.SerializeToString(deterministic=True)
    model = io.from_proto(proto)
    assert proto.SerializeToString(deterministic=True) == before
    io.save(model, tmp_path / "maps.onnx")
    again = onnx.load(tmp_path / "maps.onnx")
    assert again.graph.output[0].type == proto.graph.output[0].type
    result = OnnxRunner.open(io.load(tmp_path / "maps.onnx")).run({"x": np.array([[0.25, 0.75]], np.float32)})
    assert result["maps"] == [{"no": 0.25, "yes": 0.75}]
