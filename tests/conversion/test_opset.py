"""The opset that is written: the newest in which the runtime has every kernel it ever had."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from onnxtool.conversion.opset import newest_runtime_opset, target_opset
from onnxtool.errors import UsageError
from onnxtool.options.convert import ConvertOptions


def region_pool(opset: int) -> onnx.ModelProto:
    """RoiAlign: the runtime that the project pins has no kernel for its newest version."""
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 8, 8]),
        helper.make_tensor_value_info("rois", TensorProto.FLOAT, [1, 4]),
        helper.make_tensor_value_info("index", TensorProto.INT64, [1]),
    ]
    node = helper.make_node("RoiAlign", ["x", "rois", "index"], ["y"], output_height=2, output_width=2)
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    return helper.make_model(
        helper.make_graph([node], "g", inputs, [output]), opset_imports=[helper.make_opsetid("", opset)], ir_version=10
    )


def runs(model: onnx.ModelProto) -> bool:
    feeds = {
        "x": np.ones((1, 1, 8, 8), np.float32),
        "rois": np.array([[0, 0, 4, 4]], np.float32),
        "index": np.zeros(1, np.int64),
    }
    try:
        ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    except Exception:
        return False
    return True


def test_everything_still_runs_at_the_opset_chosen() -> None:
    assert 17 < newest_runtime_opset() <= onnx.defs.onnx_opset_version()
    assert runs(region_pool(newest_runtime_opset()))


def test_is_the_newest_such_opset() -> None:
    following = newest_runtime_opset() + 1
    if following > onnx.defs.onnx_opset_version():
        pytest.skip("the runtime has everything that this onnx knows")
    if onnx.defs.get_schema("RoiAlign", following, "").since_version != following:
        pytest.skip("another operator is what ends it in this runtime")
    assert not runs(region_pool(following))


def test_the_exporter_may_end_earlier() -> None:
    assert target_opset(ConvertOptions(), 20) == 20
    assert target_opset(ConvertOptions(), 99) == newest_runtime_opset()


def test_the_users_wish_goes_first() -> None:
    assert target_opset(ConvertOptions(opset=13), 20) == 13
    for opset in (8, 21):
        with pytest.raises(UsageError, match=f"--opset {opset}: .* have 9 to 20"):
            target_opset(ConvertOptions(opset=opset), 20)
