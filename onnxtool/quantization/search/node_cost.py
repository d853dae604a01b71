"""What nodes cost: multiply-accumulates from observed sizes, and groups of nodes that behave alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, float_constant
from onnxtool.quantization.algorithms.qdq_placement import output_channel_axis, result_of
from onnxtool.quantization.calibration.range_estimators import ObservedRange

STRETCH = "part "  # what the labels of stretches of the graph begin with
_SEGMENTS = 4
_STEPS = 32  # of a recurrent layer, whose real number nobody observes


def macs(nodes: Sequence[ir.Node], seen: Mapping[str, ObservedRange]) -> dict[str, float]:
    """Multiply-accumulates of each compute node for one sample, by node name; weights alone where sizes are unknown."""
    result = {}
    for node in nodes:
        weight = float_constant(node.inputs[1])
        if weight is None:
            continue
        if node.op_type == "LSTM":
            result[node.name or ""] = float(_STEPS * weight_count(node))
            continue
        axis = output_channel_axis(node, weight.ndim)
        channels = weight.shape[axis if axis is not None else -1]
        observed = seen.get(result_of(node).name or "")
        positions = (observed.elements if observed is not None else 0) or channels
        result[node.name or ""] = float(positions * weight.size / max(channels, 1))
    return result


def group_nodes(
    nodes: Sequence[ir.Node], cost: Mapping[str, float], *, stretches: bool = True
) -> list[tuple[str, set[str]]]:
    """Groups worth trying in float together: kinds of convolution, small nodes, and stretches of the graph."""
    groups: dict[str, set[str]] = {}

    def put(label: str, node: ir.Node) -> None:
        groups.setdefault(label, set()).add(node.name or "")

    total = sum(cost.values()) or 1.0
    stored = sum(weight_count(n) for n in nodes) or 1
    edges = np.linspace(0, total, _SEGMENTS + 1)[1:-1]
    done = 0.0
    for node in nodes:
        own = cost.get(node.name or "", 0.0)
        if node.op_type == "Conv":
            put(conv_kind(node), node)
        if own < 0.002 * total and weight_count(node) < 0.01 * stored:
            put("small nodes", node)
        if stretches:
            put(f"{STRETCH}{int(np.searchsorted(edges, done)) + 1} of {_SEGMENTS}", node)
        done += own
    everything = {n.name for n in nodes}
    return [(label, group) for label, group in groups.items() if group != everything]


def weight_count(node: ir.Node) -> int:
    """Weights of a compute node."""
    arrays = [float_constant(v) for v in node.inputs[1 : 3 if node.op_type == "LSTM" else 2]]
    return sum(int(a.size) for a in arrays if a is not None)


def conv_kind(node: ir.Node) -> str:
    """What kind of convolution: "depthwise", "grouped", "first", "pointwise" or "spatial Conv"."""
    weight = float_constant(node.inputs[1])
    assert weight is not None
    groups = int(attribute(node, "group", 1))
    if groups > 1:
        return "depthwise Conv" if weight.shape[1] == 1 else "grouped Conv"
    if weight.shape[1] <= 4:
        return "first Conv"
    return "pointwise Conv" if all(d == 1 for d in weight.shape[2:]) else "spatial Conv"
