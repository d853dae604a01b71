"""Cross-layer equalization: neighbouring convolutions share their range, channel by channel.

Between two convolutions with nothing but a Relu between them, an output channel of the first may be divided by any
positive number, if the second one's weights for that channel are multiplied by it. Where some channels of a layer have
weights a hundred times those of others (depthwise convolutions after a folded BatchNormalization), one scale for all
of them wastes most of the integers; the number that makes a channel's two ranges equal wastes the least.

Source: Nagel et al. 2019, "Data-free quantization through weight equalization and bias correction", section 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.editing import new_initializer
from onnxtool.model.ir.queries import attribute, float_constant, is_op, sole_use
from onnxtool.quantization.algorithms.qdq_placement import eligible

_SWEEPS = 20
_CLOSE = 1e-3
_LARGEST = 1e4


@dataclass
class _EqualizedLayer:
    node: ir.Node
    weight: np.ndarray
    bias: np.ndarray | None


def equalize(model: ir.Model) -> int:
    """Equalize the chains of convolutions of a prepared model; what it computes stays the same but for rounding.

    Args:
        model: changed in place.

    Returns:
        Number of pairs of layers that were equalized.
    """
    pairs = _pairs(model.graph)
    layers = {node: _layer(node) for pair in pairs for node in pair}
    for _ in range(_SWEEPS):
        change = max((_equalize_pair(layers[a], layers[b]) for a, b in pairs), default=0.0)
        if change < _CLOSE:
            break
    for layer in layers.values():
        _write(model.graph, layer)
    return len(pairs)


def equalizing_scales(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """What each channel of the first layer is divided by: the square root of the ratio of the two ranges.

    Args:
        first: largest magnitude of the first layer's weights for each output channel.
        second: likewise of the second layer's, for each input channel.
    """
    used = (first > 0) & (second > 0)
    scales = np.ones(len(first))
    scales[used] = np.sqrt(first[used].astype(np.float64) / second[used])
    return np.clip(scales, 1 / _LARGEST, _LARGEST)


def has_pairs(graph: ir.Graph) -> bool:
    """True when there is something to equalize."""
    return bool(_pairs(graph))


def equalized_tensors(graph: ir.Graph) -> set[str]:
    """Names of the tensors whose channels `equalize` divides; all others stay as they are."""
    found = set()
    for first, second in _pairs(graph):
        value: ir.Value | None = first.outputs[0]
        while value is not None:
            found.add(value.name or "")
            user = sole_use(value)
            value = None if user is None or user is second else user.outputs[0]
    return found


def _pairs(graph: ir.Graph) -> list[tuple[ir.Node, ir.Node]]:
    pairs = []
    for node in graph:
        if not is_op(node, "Conv") or not eligible(node):
            continue
        follower = _follower(node)
        if follower is not None and _input_channels(follower) == _output_channels(node):
            pairs.append((node, follower))
    return pairs


def _follower(conv: ir.Node) -> ir.Node | None:
    """The convolution that alone reads another one's output, through what a positive factor passes unchanged."""
    user = sole_use(conv.outputs[0])
    while user is not None and _passes_factors(user):
        user = sole_use(user.outputs[0])
    return user if user is not None and is_op(user, "Conv") and eligible(user) else None


def _passes_factors(node: ir.Node) -> bool:
    """f(a x) = a f(x) for a > 0. A Clip with an upper end (Relu6) is none: the end would have to move too."""
    if is_op(node, "Relu", "LeakyRelu", "AveragePool", "GlobalAveragePool"):
        return True
    if is_op(node, "MaxPool"):
        return len(node.outputs) == 1
    if not is_op(node, "Clip") or attribute(node, "min") is not None or attribute(node, "max") is not None:
        return False
    low = float_constant(node.inputs[1]) if len(node.inputs) > 1 else None
    no_top = len(node.inputs) < 3 or node.inputs[2] is None
    return no_top and low is not None and float(low.reshape(-1)[0]) == 0.0


def _layer(node: ir.Node) -> _EqualizedLayer:
    weight = float_constant(node.inputs[1])
    bias = float_constant(node.inputs[2]) if len(node.inputs) > 2 else None
    assert weight is not None
    return _EqualizedLayer(node, weight.astype(np.float64), None if bias is None else bias.astype(np.float64))


def _output_channels(node: ir.Node) -> int:
    weight = float_constant(node.inputs[1])
    return 0 if weight is None else int(weight.shape[0])


def _input_channels(node: ir.Node) -> int:
    weight = float_constant(node.inputs[1])
    return 0 if weight is None else int(weight.shape[1]) * int(attribute(node, "group", 1))


def _equalize_pair(first: _EqualizedLayer, second: _EqualizedLayer) -> float:
    """Returns the largest change, as a logarithm."""
    groups = int(attribute(second.node, "group", 1))
    rows, inputs, *kernel = second.weight.shape
    grouped = second.weight.reshape(groups, rows // groups, inputs, -1)
    read = np.abs(grouped).max(axis=(1, 3)).reshape(-1)
    written = np.abs(first.weight.reshape(len(first.weight), -1)).max(axis=1)
    scales = equalizing_scales(written, read)
    first.weight /= scales.reshape([-1] + [1] * (first.weight.ndim - 1))
    if first.bias is not None:
        first.bias /= scales
    second.weight = (grouped * scales.reshape(groups, 1, inputs, 1)).reshape(rows, inputs, *kernel)
    return float(np.abs(np.log(scales)).max(initial=0.0))


def _write(graph: ir.Graph, layer: _EqualizedLayer) -> None:
    for index, array in ((1, layer.weight), (2, layer.bias)):
        old = layer.node.inputs[index] if len(layer.node.inputs) > index else None
        if array is not None and old is not None:
            made = new_initializer(graph, f"{old.name}_equalized", array.astype(np.float32))
            layer.node.replace_input_with(index, made)
