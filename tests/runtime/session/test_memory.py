"""Sessions with a bound on their memory fail where others would take all of the machine's."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import onnx_ir as ir
import pytest

from onnxtool.errors import OnnxToolError
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.memory import bounded_memory, giving_back, release_memory
from onnxtool.runtime.session.session import SessionOptions


def test_a_run_that_needs_more_than_the_bound_fails_and_the_next_one_works() -> None:
    model = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 20]> '
        "g (float[n,1] x, float[1,m] y) => (float s) { z = MatMul(x, y)  s = ReduceMax <keepdims = 0> (z) }"
    )
    runner = OnnxRunner.open(model, SessionOptions(settings=bounded_memory()))
    runner.run_options = giving_back()
    usual = {"x": np.ones((3, 1), np.float32), "y": np.ones((1, 4), np.float32)}
    huge = {"x": np.ones((15_000, 1), np.float32), "y": np.ones((1, 15_000), np.float32)}  # 0.9 GB
    assert runner.run(usual)["s"] == 1
    with pytest.raises(OnnxToolError):
        runner.run(huge)
    assert runner.run(usual)["s"] == 1


def test_little_memory_is_not_looked_for() -> None:
    class Circle:
        pass

    circle = Circle()
    circle.itself = circle  # type: ignore[attr-defined]
    left = weakref.ref(circle)
    del circle
    gc.disable()
    try:
        release_memory(1_000_000)
        assert left() is not None
        release_memory(100_000_000)
        assert left() is None
    finally:
        gc.enable()
