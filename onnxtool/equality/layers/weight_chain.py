"""A convolution or matrix product and the per-channel operators after it, as one linear map with its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from onnxtool.equality.layers.graph import LayerGraph

_LINEAR = ("Conv", "FusedConv", "ConvTranspose", "Gemm", "FusedGemm", "MatMul")
_LONGEST = 12
# Unit in the last place of 1, by the dtype of a weight.
_PRECISION = {
    ir.DataType.DOUBLE: 2.0**-52,
    ir.DataType.FLOAT: 2.0**-23,
    ir.DataType.FLOAT16: 2.0**-10,
    ir.DataType.BFLOAT16: 2.0**-7,
}


@dataclass(frozen=True)
class ChainStep:
    """y = (x - center) * scale + shift for each channel.

    Attributes:
        node: its name, as suspects are called.
        scaling, shifting: the weights that set the scale, and those that move the result.
        single: one number for all channels.
    """

    node: str
    center: np.ndarray
    scale: np.ndarray
    shift: np.ndarray
    scaling: tuple[str, ...] = ()
    shifting: tuple[str, ...] = ()
    single: bool = False


@dataclass(frozen=True)
class Chain:
    """A convolution or matrix product and the steps after it.

    Attributes:
        source: the tensor that it reads.
        node, weight: the linear operator and the name of its weight.
        rows: [channel, inputs of that channel] of the linear operator alone.
        steps: in the order in which they are applied; the operator's own bias is the first.
        precision: of the coarsest dtype among the weights.
    """

    source: str
    node: str
    weight: str
    rows: np.ndarray
    steps: tuple[ChainStep, ...]
    precision: float

    def scale(self, after: int = -1) -> np.ndarray:
        """Product of the scales of the steps behind position `after`."""
        product = np.ones(len(self.rows))
        for step in self.steps[after + 1 :]:
            product = product * step.scale
        return product

    def shift(self) -> np.ndarray:
        """What a source of zeros gives."""
        total = np.zeros(len(self.rows))
        for step in self.steps:
            total = (total - step.center) * step.scale + step.shift
        return total

    def magnitude(self) -> np.ndarray:
        """Largest number that is rounded on the way to `shift`."""
        total = np.zeros(len(self.rows))
        for step in self.steps:
            total = (total + np.abs(step.center)) * np.abs(step.scale) + np.abs(step.shift)
        return total


def read_chain(graph: LayerGraph, tensor: str, agreeing: set[str]) -> Chain | None:
    """The linear operator and the per-channel steps that make `tensor`; activations at the end are left out."""
    nodes: list[ir.Node] = []
    while len(nodes) < _LONGEST:
        node = graph.producers.get(tensor)
        if node is None or (nodes and tensor in agreeing):
            return None
        if node.op_type in _LINEAR:
            return _with_steps(graph, node, nodes[::-1])
        data = [v.name for v in node.inputs if v is not None and v.name and v.name not in graph.weights]
        if len(data) != 1 or not data[0]:
            return None
        nodes.append(node)
        tensor = data[0]
    return None


def _with_steps(graph: LayerGraph, linear: ir.Node, after: Sequence[ir.Node]) -> Chain | None:
    names = [v.name if v is not None and v.name else "" for v in linear.inputs]
    if len(names) < 2 or names[0] in graph.weights or any(n not in graph.weights for n in names[1:3] if n):
        return None
    if not names[1] or any(names[3:]):
        return None
    rows = _rows(linear, _array(graph.weights[names[1]]))
    if rows is None:
        return None
    steps: list[ChainStep] = []
    if len(names) > 2 and names[2]:
        beta = linear.attributes.get_float("beta", 1.0) if "Gemm" in linear.op_type else 1.0
        own = _step(linear, _array(graph.weights[names[2]]) * beta, len(rows), 1, "shift", names[2])
        if own is None:
            return None
        steps.append(own)
    rank = graph.weights[names[1]].shape.rank() if "Conv" in linear.op_type else 1
    following = _steps(graph, after, len(rows), rank)
    used = {graph.weights[n].dtype for s in (*steps, *(following or ())) for n in (*s.scaling, *s.shifting)}
    used.add(graph.weights[names[1]].dtype)
    if following is None or not used <= _PRECISION.keys():
        return None
    steps += following
    return Chain(names[0], _name(linear), names[1], rows, tuple(steps), max(_PRECISION[d] for d in used))


def _steps(graph: LayerGraph, nodes: Sequence[ir.Node], channels: int, rank: int) -> list[ChainStep] | None:
    """The nodes as steps, activations at the end left out; None when there is anything else."""
    steps: list[ChainStep] = []
    activated = False
    for node in nodes:
        found = _read_step(graph, node, channels, rank)
        if found is None and not any(v is not None and v.name in graph.weights for v in node.inputs):
            activated = True
        elif found is None or activated:
            return None
        else:
            steps.append(found)
    return steps


def _rows(linear: ir.Node, weight: np.ndarray) -> np.ndarray | None:
    """The weight with one row for each output channel."""
    if linear.op_type in ("Conv", "FusedConv"):
        return weight.reshape(len(weight), -1)
    if linear.op_type == "ConvTranspose":  # [in, out/group, ...]: slice g of the in-channels makes group g
        group = linear.attributes.get_int("group", 1)
        return weight.reshape(group, -1, weight.shape[1], int(np.prod(weight.shape[2:]))).swapaxes(1, 2).reshape(
            group * weight.shape[1], -1
        )  # fmt: skip
    if weight.ndim != 2:
        return None
    if linear.op_type == "MatMul":
        return weight.T
    if linear.attributes.get_int("transA", 0):
        return None
    turned = weight if linear.attributes.get_int("transB", 0) else weight.T
    return turned * linear.attributes.get_float("alpha", 1.0)


def _read_step(graph: LayerGraph, node: ir.Node, channels: int, rank: int) -> ChainStep | None:
    """A BatchNormalization, or a sum, difference, product or quotient with a constant."""
    names = [v.name if v is not None and v.name else "" for v in node.inputs]
    if node.op_type == "BatchNormalization" and len(names) == 5:
        if not all(n in graph.weights for n in names[1:]):
            return None
        gamma, beta, mean, variance = (_array(graph.weights[n]) for n in names[1:])
        if any(v.shape != (channels,) for v in (gamma, beta, mean, variance)):
            return None
        scale = gamma / np.sqrt(variance + node.attributes.get_float("epsilon", 1e-5))
        return ChainStep(_name(node), mean, scale, beta, (names[1], names[4]), (names[2], names[3]))
    make = _ARITHMETIC.get(node.op_type)
    if make is None or len(names) != 2:
        return None
    constant = names[0] if names[0] in graph.weights else names[1]
    if node.op_type in ("Sub", "Div") and constant == names[0]:
        return None
    kind, change = make
    return _step(node, change(_array(graph.weights[constant])), channels, rank, kind, constant)


_ARITHMETIC: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "Add": ("shift", lambda v: v),
    "Sub": ("shift", lambda v: -v),
    "Mul": ("scale", lambda v: v),
    "Div": ("scale", lambda v: 1 / v),
}


def _step(node: ir.Node, values: np.ndarray, channels: int, rank: int, kind: str, weight: str) -> ChainStep | None:
    """A step by a constant that has one number for each channel (the last dim, of convolutions the second) or one."""
    if values.size not in (1, channels):
        return None
    if values.size > 1:
        padded = (1,) * (rank - values.ndim) + values.shape
        axis = 1 if rank > 1 else len(padded) - 1
        if padded[axis] != channels:
            return None
    numbers = np.broadcast_to(values.reshape(-1), (channels,))
    zeros, ones = np.zeros(channels), np.ones(channels)
    single = values.size == 1 < channels
    if kind == "shift":
        return ChainStep(_name(node), zeros, ones, numbers, shifting=(weight,), single=single)
    return ChainStep(_name(node), zeros, numbers, zeros, scaling=(weight,), single=single)


def _array(weight: ir.TensorProtocol) -> np.ndarray:
    return np.asarray(weight.numpy(), np.float64)


def _name(node: ir.Node) -> str:
    return node.name or next((o.name for o in node.outputs if o.name), "")


# Folding rounds each weight once or twice; this is as a share of the largest weight of its channel.
_ROUNDINGS = 64


@dataclass(frozen=True)
class Explanation:
    """A node of A whose weights explain the change.

    Attributes:
        weights: those that, changed alone, do.
        changed: how many of its numbers must be others.
    """

    weights: tuple[str, ...]
    changed: int


def explanations(
    a: LayerGraph, b: LayerGraph, tensor: str, matches: Mapping[str, str], agreeing: set[str]
) -> dict[str, Explanation]:
    """Nodes of A that could alone have led to B's weights, by name; empty where the fold is not understood.

    Args:
        a, b: the two models.
        tensor: B's first wrong tensor.
        matches: B's tensor -> A's.
        agreeing: B's tensors that are as they should be.
    """
    ours = read_chain(a, matches[tensor], {matches[y] for y in agreeing})
    theirs = read_chain(b, tensor, agreeing)
    if ours is None or theirs is None or matches.get(theirs.source, theirs.source) != ours.source:
        return {}
    if ours.rows.shape != theirs.rows.shape:
        return {}
    with np.errstate(all="ignore"):
        return _explain(ours, theirs)


def _explain(a: Chain, b: Chain) -> dict[str, Explanation]:
    precision = _ROUNDINGS * max(a.precision, b.precision)
    expected, actual = a.rows * a.scale()[:, None], b.rows * b.scale()[:, None]
    error = precision * np.abs(expected).max(axis=1, initial=0.0)
    changed = int((np.abs(actual - expected) > error[:, None]).sum())
    allowed = precision * np.maximum(a.magnitude(), b.magnitude())
    found: dict[str, Explanation] = {}
    if changed and bool((np.abs(b.shift() - a.shift()) <= allowed).all()):
        found[a.node] = Explanation((a.weight,), changed)
    if changed:
        ratio = _ratio(expected, actual, error)
        scaled = [] if ratio is None else list(_scaled(a, b, ratio, precision))
    else:
        scaled = list(_shifted(a, b, allowed))
    for step, explanation in scaled:
        known = found.get(step.node)
        if known is None or explanation.changed < known.changed:
            found[step.node] = explanation
    return found


def _ratio(expected: np.ndarray, actual: np.ndarray, error: np.ndarray) -> np.ndarray | None:
    """What each channel was multiplied by; None when that is not all that happened to one."""
    power = (expected * expected).sum(axis=1)
    ratio = np.where(power > 0, (expected * actual).sum(axis=1) / np.where(power > 0, power, 1), 1.0)
    rest = np.abs(actual - expected * ratio[:, None]).max(axis=1, initial=0.0)
    return ratio if bool((rest <= error * np.maximum(1, np.abs(ratio))).all()) else None


def _scaled(a: Chain, b: Chain, ratio: np.ndarray, precision: float) -> Iterator[tuple[ChainStep, Explanation]]:
    """Steps whose scale, multiplied by `ratio`, gives B's weights and B's bias as well."""
    many = int((np.abs(ratio - 1) > precision).sum())
    for index, step in enumerate(a.steps):
        if not step.scaling or (step.single and np.ptp(ratio) > precision * np.abs(ratio).max()):
            continue
        steps = list(a.steps)
        steps[index] = replace(step, scale=step.scale * ratio)
        wanted = replace(a, steps=tuple(steps))
        if (np.abs(wanted.shift() - b.shift()) <= precision * np.maximum(wanted.magnitude(), b.magnitude())).all():
            yield step, Explanation(step.scaling, 1 if step.single else many)


def _shifted(a: Chain, b: Chain, allowed: np.ndarray) -> Iterator[tuple[ChainStep, Explanation]]:
    """Steps that, shifted elsewhere, give B's bias: the weights are the same."""
    moved = np.abs(b.shift() - a.shift()) > allowed
    many = int(moved.sum())
    for index, step in enumerate(a.steps if many else ()):
        behind = a.scale(index)
        if not step.shifting or bool((moved & (behind == 0)).any()):
            continue
        if step.single and not _same_everywhere((b.shift() - a.shift()) / behind, allowed / np.abs(behind)):
            continue
        yield step, Explanation(step.shifting, 1 if step.single else many)


def _same_everywhere(values: np.ndarray, allowed: np.ndarray) -> bool:
    return bool((np.abs(values - np.median(values)) <= allowed).all())
