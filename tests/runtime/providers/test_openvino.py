"""The real plugin, where it is installed: pip install onnxruntime-ep-openvino."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxtool.errors import UsageError
from onnxtool.runtime.providers.placement import placement
from onnxtool.runtime.providers.trial import survey
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import SessionOptions
from onnxtool.runtime.timing.profile import profile

pytestmark = pytest.mark.usefixtures("openvino")


@pytest.fixture
def product(tmp_path: Path) -> Path:
    """y = x W, large enough to be worth lower precision."""
    weight = np.random.default_rng(0).normal(size=(256, 256)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 256])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 256])],
        [numpy_helper.from_array(weight, "w")],
    )
    path = tmp_path / "product.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def test_runs_in_full_precision_when_asked(product: Path) -> None:
    feeds = {"x": np.random.default_rng(1).normal(size=(4, 256)).astype(np.float32)}
    expected = OnnxRunner.open(product).run(feeds)["y"]
    exact = OnnxRunner.open(product, SessionOptions("openvino:INFERENCE_PRECISION_HINT=f32")).run(feeds)["y"]
    np.testing.assert_allclose(exact, expected, rtol=1e-4, atol=1e-4)


def test_half_precision_reaches_the_plugin(product: Path) -> None:
    """Plain options are ignored by it in silence: this one has to change the numbers."""
    feeds = {"x": np.random.default_rng(1).normal(size=(4, 256)).astype(np.float32)}
    exact = OnnxRunner.open(product, SessionOptions("openvino:INFERENCE_PRECISION_HINT=f32")).run(feeds)["y"]
    half = OnnxRunner.open(product, SessionOptions("openvino:INFERENCE_PRECISION_HINT=bf16")).run(feeds)["y"]
    assert np.abs(half - exact).max() > 1e-3 * np.abs(exact).max()


def test_a_property_that_it_does_not_have_is_one_line(product: Path) -> None:
    with pytest.raises(UsageError, match="Unsupported property NONSENSE"):
        OnnxRunner.open(product, SessionOptions("openvino:NONSENSE=1"))


def test_the_survey_lists_its_devices() -> None:
    info = next(i for i in survey() if i.name == "openvino")
    assert info.state == "plugin"
    assert any(d.startswith("cpu: ") for d in info.devices)


def test_every_node_is_placed(product: Path) -> None:
    feeds = {"x": np.ones((1, 256), np.float32)}
    found = placement(product, feeds, SessionOptions("openvino"))
    (node,) = found.nodes
    assert (node.node, node.provider, node.state) == ("product", "OpenVINOExecutionProvider", "compiled")
    assert not found.fallbacks


def test_profiles_what_it_compiled(product: Path) -> None:
    """Such a provider has no graph to write, which the profile asks for first."""
    found = profile(product, {"x": np.ones((1, 256), np.float32)}, SessionOptions("openvino"), runs=2)
    assert [n.operator.split("_")[0] for n in found.nodes] == ["OpenVINOExecutionProvider"]
