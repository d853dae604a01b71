"""Activation smoothing: channels with outliers hand a part of their range to the weights that read them.

A few channels of a transformer's activations are often a hundred times larger than the others. With one scale for
the whole tensor they leave the others a handful of integers. y = (x / s)(s W) is the same product for any s per
channel, and weights have range to spare. Dividing by s costs nothing where it goes into what made x: the gamma and
beta of a normalization, the weights of a linear layer before a Relu. Elsewhere it takes a Mul, which is inserted only
where the outliers are large.

Source: Xiao et al. 2022, "SmoothQuant: accurate and efficient post-training quantization for large language models",
equation 4.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.editing import insert, new_initializer
from onnxtool.model.ir.queries import attribute, float_constant, is_op
from onnxtool.quantization.algorithms.qdq_placement import eligible

LINEAR = ("MatMul", "Gemm")
_NORMS = ("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
# After adding two tensors, of which the sum may be an output too: the inputs that scale what is normalized.
_SKIP_NORMS = {"SkipLayerNormalization": (2, 3), "SkipSimplifiedLayerNormalization": (2,)}
_OUTLIERS = 8.0  # largest channel against the median one, from which a Mul of its own pays
_LARGEST = 1e4


@dataclass
class SmoothedGroup:
    """Linear layers that read one tensor.

    Attributes:
        value: what they read, channels last.
        nodes: the layers.
        channels: number of channels.
    """

    value: ir.Value
    nodes: list[ir.Node] = field(default_factory=list)
    channels: int = 0


@dataclass(frozen=True)
class Divided:
    """A tensor of a smoothed model: `tensor` of the model before, divided by `scales`, channel by channel."""

    tensor: str
    scales: np.ndarray


def smoothable(graph: ir.Graph) -> list[SmoothedGroup]:
    """Tensors that eligible MatMul and Gemm nodes read, in graph order."""
    groups: dict[ir.Value, SmoothedGroup] = {}
    for node in graph:
        weight = float_constant(node.inputs[1]) if is_op(node, *LINEAR) and eligible(node) else None
        source = node.inputs[0] if node.inputs else None
        if weight is None or weight.ndim != 2 or source is None:
            continue
        group = groups.setdefault(source, SmoothedGroup(source))
        group.nodes.append(node)
        group.channels = weight.shape[_rows(node)]
    return [group for group in groups.values() if _has_own_weights(group)]


def _has_own_weights(group: SmoothedGroup) -> bool:
    """False where layers that read another tensor share a weight: each tensor would need a copy of its own."""
    weights = [node.inputs[1] for node in group.nodes]
    return all(use.node in group.nodes for weight in weights if weight is not None for use in weight.uses())


def smoothing_scales(extremes: np.ndarray, weights: Sequence[np.ndarray], alpha: float) -> np.ndarray:
    """What each channel is divided by: max|X_j|^alpha / max|W_j|^(1 - alpha).

    Args:
        extremes: largest magnitude of each channel, [channels].
        weights: [channels, outputs] of every layer that reads the tensor.
        alpha: share of the difficulty that goes into the weights.

    Returns:
        float32 [channels], with a geometric mean of one; one for channels that are always zero.
    """
    largest = np.max([np.abs(w).max(axis=1) for w in weights], axis=0).astype(np.float64)
    used = (extremes > 0) & (largest > 0)
    scales = np.ones(len(extremes))
    if used.any():
        scales[used] = np.asarray(extremes, np.float64)[used] ** alpha / largest[used] ** (1 - alpha)
        scales[used] /= np.exp(np.log(scales[used]).mean())
    return np.clip(scales, 1 / _LARGEST, _LARGEST).astype(np.float32)


def smooth(model: ir.Model, extremes: Mapping[str, Collection[float]], alpha: float) -> dict[str, Divided]:
    """Smooth what the linear layers of a prepared model read; what it computes stays the same but for rounding.

    Args:
        model: changed in place.
        extremes: largest magnitude of each channel, by tensor name.
        alpha: see `smoothing_scales`.

    Returns:
        What tensors of the model are divided by now, channel by channel, by name: those that the layers read, and those
        on the way there; the others are what they were.
    """
    divided: dict[str, Divided] = {}
    for group in smoothable(model.graph):
        seen = np.asarray(list(extremes.get(group.value.name or "", ())), np.float64)
        if len(seen) != group.channels:
            continue
        weights = [_oriented(node) for node in group.nodes]
        scales = smoothing_scales(seen, weights, alpha)
        if np.allclose(scales, 1):
            continue
        steps = _steps(group.value, {*group.nodes}, group.channels)
        if steps is not None:
            for step in steps.constants:
                _divide_constant(model.graph, *step, scales)
            divided |= {name: Divided(name, scales) for name in steps.tensors}
        elif seen.max() > _OUTLIERS * max(float(np.median(seen)), 1e-30):
            divided[_insert_mul(model.graph, group, scales)] = Divided(group.value.name or "", scales)
        else:
            continue
        for node in group.nodes:
            _multiply_rows(model.graph, node, scales)
    return divided


def _rows(node: ir.Node) -> int:
    """The weights' axis that meets the activations' channels."""
    return 1 if node.op_type == "Gemm" and attribute(node, "transB", 0) else 0


def _oriented(node: ir.Node) -> np.ndarray:
    array = float_constant(node.inputs[1])
    assert array is not None
    return array.T if _rows(node) else array


def _multiply_rows(graph: ir.Graph, node: ir.Node, scales: np.ndarray) -> None:
    weight = node.inputs[1]
    array = float_constant(weight)
    assert weight is not None and array is not None
    shaped = scales[None, :] if _rows(node) else scales[:, None]
    node.replace_input_with(1, new_initializer(graph, f"{weight.name}_smoothed", array * shaped))


# (node, index of a constant input, axis of its channels)
_Step = tuple[ir.Node, int, int]


@dataclass(frozen=True)
class _Steps:
    """How a tensor comes to be divided: the constants to divide, and the names of the tensors that are divided then."""

    constants: list[_Step]
    tensors: list[str]


def _steps(value: ir.Value, readers: set[ir.Node], channels: int) -> _Steps | None:
    """The constants to divide so that `value` is divided channel by channel; None where there is no such way.

    Whoever reads the value on the way must be among `readers`, for all of them get the divided one. Through x + b (both
    are divided) and x * g (g alone is); of two live factors, the first that can be divided.
    """
    alternatives: list[tuple[ir.Value | None, set[ir.Node], list[_Step], list[str]]] = [(value, readers, [], [])]
    while alternatives:
        live, readers, steps, behind = alternatives.pop()
        if live is None or live.is_graph_output() or any(use.node not in readers for use in live.uses()):
            continue
        node = live.producer()
        if node is None:
            continue
        names = [*behind, live.name or ""]
        if node.op_type in _NORMS or (node.op_type in _SKIP_NORMS and live is node.outputs[0]):
            own = _norm_steps(node, channels)
            if own is not None:
                return _Steps(own + steps, names)
        elif is_op(node, "Relu", "LeakyRelu"):
            alternatives.append((node.inputs[0], {node}, steps, names))
        elif is_op(node, "MatMul", "Gemm") and eligible(node):
            own = _linear_steps(node, channels)
            if own is not None:
                return _Steps(own + steps, names)
        elif is_op(node, "Add", "Mul"):
            constants = [i for i, v in enumerate(node.inputs) if float_constant(v) is not None]
            if len(constants) == 1 and _is_vector(node.inputs[constants[0]], channels):
                step: _Step = (node, constants[0], -1)
                if node.op_type == "Mul":
                    return _Steps([step, *steps], names)
                alternatives.append((node.inputs[1 - constants[0]], {node}, [step, *steps], names))
            elif node.op_type == "Mul" and not constants and len(set(node.inputs)) == 2:
                alternatives += [(v, {node}, steps, names) for v in reversed(node.inputs)]
    return None


def _norm_steps(node: ir.Node, channels: int) -> list[_Step] | None:
    if node.op_type in _SKIP_NORMS:
        scaling = [i for i in _SKIP_NORMS[node.op_type] if i < len(node.inputs) and node.inputs[i] is not None]
        return [(node, i, 0) for i in scaling] if all(_is_vector(node.inputs[i], channels) for i in scaling) else None
    last = attribute(node, "axis", -1) == -1
    constants = [i for i in range(1, len(node.inputs)) if node.inputs[i] is not None]
    fits = all(_is_vector(node.inputs[i], channels) for i in constants)
    single = all(not v.uses() for v in node.outputs[1:])
    return [(node, i, 0) for i in constants] if last and constants and fits and single else None


def _linear_steps(node: ir.Node, channels: int) -> list[_Step] | None:
    value = node.inputs[1]
    weight = float_constant(value)
    if weight is None or weight.ndim != 2 or weight.shape[1 - _rows(node)] != channels:
        return None
    if value is not None and any(use.node is not node for use in value.uses()):
        return None  # it would need a copy of its own
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is not None and not _is_vector(bias, channels):
        return None
    steps: list[_Step] = [(node, 1, 1 - _rows(node))]
    return steps if bias is None else [*steps, (node, 2, -1)]


def _is_vector(value: ir.Value | None, channels: int) -> bool:
    array = float_constant(value)
    return array is not None and array.size == channels and array.ndim >= 1 and array.shape[-1] == channels


def _divide_constant(graph: ir.Graph, node: ir.Node, index: int, axis: int, scales: np.ndarray) -> None:
    value = node.inputs[index]
    array = float_constant(value)
    assert value is not None and array is not None
    shape = [1] * array.ndim
    shape[axis] = -1
    node.replace_input_with(index, new_initializer(graph, f"{value.name}_smoothed", array / scales.reshape(shape)))


def _insert_mul(graph: ir.Graph, group: SmoothedGroup, scales: np.ndarray) -> str:
    """Divide by a Mul; the name of the tensor that comes out of it."""
    value = group.value
    factors = new_initializer(graph, f"{value.name}_smoothing", 1 / scales)
    (divided,) = insert(group.nodes[0], "Mul", [value, factors], [f"{value.name}_smooth"])
    divided.type, divided.shape = value.type, value.shape
    for node in group.nodes:
        node.replace_input_with(0, divided)
    return divided.name or ""
