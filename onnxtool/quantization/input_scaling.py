"""Whether data have the range that a model was trained on, where the model itself still tells.

A BatchNormalization behind the first layer holds the mean and the variance that this layer's outputs had in training.
Data that were scaled in another way (0 to 255 for 0 to 1, no mean taken off) are far from both. What has no such node
(exporters fold most of them) tells nothing, and nothing is said.
"""

from __future__ import annotations

from itertools import islice

import numpy as np
import onnx_ir as ir

from onnxtool.errors import OnnxToolError
from onnxtool.model.ir.queries import constant_array
from onnxtool.runtime.data.source import DataSource
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import SessionOptions

_SAMPLES = 16
_FAR = 3.0  # standard deviations of training that the mean of half of the channels is off
_WIDER = 25.0  # times the variance of training, or the same part of it, in half of the channels
_LINEAR = ("Conv", "Gemm", "MatMul")


def input_scaling_warning(model: ir.Model, data: DataSource) -> str:
    """A warning where the data are far from what the first normalized layer saw in training; else "".

    Args:
        model: the float model as it came.
        data: samples; a few are run.
    """
    found = _first_normalized(model)
    if found is None:
        return ""
    node, mean, variance = found
    position = list(model.graph).index(node)
    watched = model.clone()
    value = list(watched.graph)[position].inputs[0]
    assert value is not None
    value.type = ir.TensorType(ir.DataType.FLOAT)
    watched.graph.outputs.append(value)
    try:
        runner = OnnxRunner.open(watched, SessionOptions(threads=1, optimization="off"))
        outputs = [runner.run(feeds)[value.name or ""] for feeds in islice(data.samples(), _SAMPLES)]
    except OnnxToolError:
        return ""  # what is wrong with model or data is said where they are used
    seen = np.concatenate([np.moveaxis(o, 1, 0).reshape(len(mean), -1) for o in outputs], axis=1).astype(np.float64)
    off = np.median(np.abs(seen.mean(1) - mean) / np.sqrt(variance + 1e-12))
    wider = float(np.median(seen.var(1) / (variance + 1e-12)))
    if off <= _FAR and 1 / _WIDER <= wider <= _WIDER:
        return ""
    return (
        f"the data do not look like what the model was trained on: behind its first layer, means are {off:.2g} "
        f"standard deviations off and the variance is {wider:.2g} times that of training. Scale them as in training "
        "(pictures: --image scale=, mean=, std=)."
    )


def _first_normalized(model: ir.Model) -> tuple[ir.Node, np.ndarray, np.ndarray] | None:
    """The first BatchNormalization right behind a first layer, its running mean and variance: float64 [channels]."""
    inputs = set(model.graph.inputs)
    for node in model.graph:
        if node.op_type != "BatchNormalization" or len(node.inputs) < 5 or node.inputs[0] is None:
            continue
        layer = node.inputs[0].producer()
        if layer is None or layer.op_type not in _LINEAR or layer.inputs[0] not in inputs:
            continue
        mean, variance = constant_array(node.inputs[3]), constant_array(node.inputs[4])
        if mean is None or variance is None or mean.shape != variance.shape or mean.ndim != 1:
            continue
        return node, mean.astype(np.float64), np.maximum(variance.astype(np.float64), 0.0)
    return None
