"""Arrays that repeat a few numbers, as views in which the strides of the repeated dims are 0."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, constant_array


def splat(node: ir.Node) -> np.ndarray | None:
    """What a ConstantOfShape with a constant shape gives, as a view of its one number."""
    shape = constant_array(node.inputs[0])
    return None if shape is None or (shape < 0).any() else filled(node, tuple(int(d) for d in shape))


def filled(node: ir.Node, shape: tuple[int, ...]) -> np.ndarray:
    """What a ConstantOfShape gives for a shape: a view of one element, which takes no memory of the full size."""
    fill = attribute(node, "value")
    one = np.zeros(1, np.float32) if fill is None else fill.numpy().reshape(-1)[:1]
    return np.broadcast_to(one.reshape((1,) * len(shape)), shape)


def expanded(node: ir.Node) -> np.ndarray | None:
    """What an Expand of a constant to a constant shape gives, as a view of that constant."""
    data, shape = (constant_array(v) for v in node.inputs)
    if data is None or shape is None or data.dtype.kind in "OUS":
        return None
    try:
        return np.broadcast_to(data, np.broadcast_shapes(data.shape, tuple(int(d) for d in shape)))
    except ValueError:
        return None


def distinct(array: np.ndarray) -> np.ndarray:
    """One element along each dim that only repeats."""
    return array[tuple(slice(None) if stride else slice(1) for stride in array.strides)]
