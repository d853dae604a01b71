"""What the machine reaches at best, measured with the runtime's own kernels: the two roofs over every node."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from onnxtool.report.measurement.profile import Peaks
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import DEFAULT, SessionOptions

# Runs of less than a millisecond: on a busy machine one of them is left alone.
_ROWS, _WIDTH = 256, 512
# 32 MB in and 32 MB out: beyond the caches of most machines.
_ELEMENTS = 1 << 23
_SECONDS, _FEWEST = 0.25, 5


def measure_peaks(options: SessionOptions = DEFAULT) -> Peaks:
    """Measure a large float32 product and a large copy, about half a second in all.

    Args:
        options: provider and threads as for the model that is held against them.

    Source: Williams, Waterman, Patterson 2009, "Roofline: an insightful visual performance model".
    """
    plain = replace(options, spinning="always", profile_prefix=None, optimized_path=None, custom_op_libraries=())
    generator = np.random.default_rng(0)
    weight = numpy_helper.from_array(generator.standard_normal((_WIDTH, _WIDTH), np.float32), "w")
    product = _best("MatMul", ["x", "w"], [weight], generator.standard_normal((_ROWS, _WIDTH), np.float32), plain)
    copy = _best("Neg", ["x"], [], np.ones(_ELEMENTS, np.float32), plain)
    return Peaks(2 * _ROWS * _WIDTH * _WIDTH / product / 1e9, 2 * 4 * _ELEMENTS / copy / 1e9)


def _best(
    operator: str, inputs: list[str], weights: list[TensorProto], x: np.ndarray, options: SessionOptions
) -> float:
    """Seconds of the fastest run."""
    dims = list(x.shape)
    graph = helper.make_graph(
        [helper.make_node(operator, inputs, ["y"])],
        "peak",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, dims)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = OnnxRunner.open(model, options).session
    feeds: Mapping[str, np.ndarray] = {"x": x}
    best, began, runs = np.inf, time.perf_counter(), 0
    while runs < _FEWEST or time.perf_counter() - began < _SECONDS:
        start = time.perf_counter()
        session.run(None, feeds)
        best = min(best, time.perf_counter() - start)
        runs += 1
    return float(best)
