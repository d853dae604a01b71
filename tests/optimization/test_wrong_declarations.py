"""Shapes that a file declares for its outputs may be wrong: the runtime only warns, and so must we not rely on them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtool.optimization.pipeline import optimize_model
from onnxtool.runtime.runner import OnnxRunner
from tests.optimization.conftest import model_from

# The second Reshape gives rank 3, whatever the output's declaration says.
_TEXT = """
g (float[N, 4, 6] x, int64[3] target) => (float[1, M] y)
<int64[2] flat = {0, -1}>
{
    rows = Reshape(x, flat)
    y = Reshape(rows, target)
}
"""


def test_a_declared_output_of_the_wrong_rank_is_not_believed() -> None:
    feeds = {"x": np.arange(48, dtype=np.float32).reshape(2, 4, 6), "target": np.array([3, 2, 8], np.int64)}
    proto = model_from(_TEXT)
    expected = OnnxRunner.open(ir.from_proto(proto)).run(feeds)["y"]
    assert expected.shape == (3, 2, 8)

    model = ir.from_proto(proto)
    optimize_model(model, "basic")
    np.testing.assert_array_equal(OnnxRunner.open(model).run(feeds)["y"], expected)
