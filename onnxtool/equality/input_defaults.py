"""Inputs with a default: initializers that are inputs too, which a caller may replace (from IR version 4 on).

A run without them cannot tell a model that uses one from a model that has its number folded in. So where both models
let the caller replace one, a certificate holds for any value of it, and runs are made with other defaults.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxtool.equality.certificate.values import NotCoveredError, is_float

_REPLACED = 4  # IR version: in older files every initializer has to be an input, and the runtime takes it as constant


def shared_defaults(a: onnx.ModelProto, b: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Floats that both models let their callers replace: A's by name. Whole numbers may be sizes, and stay."""
    if min(a.ir_version, b.ir_version) < _REPLACED:
        return {}
    listed = {i.name for i in a.graph.input} & {i.name for i in b.graph.input}
    listed &= {t.name for t in b.graph.initializer}
    found = [t for t in a.graph.initializer if t.name in listed]
    return {t.name: numpy_helper.to_array(t) for t in found if is_float(helper.tensor_dtype_to_np_dtype(t.data_type))}


def without_defaults(model: onnx.ModelProto, defaults: dict[str, np.ndarray]) -> onnx.ModelProto:
    """A copy that has to be given these inputs, of the shapes of the defaults.

    Raises:
        NotCoveredError: the model has another default.
    """
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for tensor in [t for t in changed.graph.initializer if t.name in defaults]:
        own = numpy_helper.to_array(tensor)
        if own.dtype != defaults[tensor.name].dtype or own.tobytes() != defaults[tensor.name].tobytes():
            raise NotCoveredError(f"input {tensor.name!r} has another default in each")
        changed.graph.initializer.remove(tensor)
    for info in changed.graph.input:
        if info.name in defaults:
            kind = info.type.tensor_type.elem_type
            info.CopyFrom(helper.make_tensor_value_info(info.name, kind, defaults[info.name].shape))
    return changed


def with_defaults(model: onnx.ModelProto, defaults: dict[str, np.ndarray]) -> onnx.ModelProto:
    """A copy with other defaults."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for tensor in changed.graph.initializer:
        if tensor.name in defaults:
            tensor.CopyFrom(numpy_helper.from_array(defaults[tensor.name], tensor.name))
    return changed


def other_defaults(defaults: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Values like the defaults: of the same sign, a few tens of percent apart."""
    generator = np.random.default_rng(seed)
    return {n: (x * generator.uniform(0.6, 1.6, x.shape)).astype(x.dtype) for n, x in defaults.items()}
