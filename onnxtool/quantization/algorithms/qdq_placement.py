"""Where Q/DQ pairs go, so that the runtime fuses them into integer kernels.

The chosen compute nodes (Conv, Gemm, MatMul) read quantized inputs. A Conv also gives a quantized output, because
the runtime has no integer Conv with a float result. Between quantized nodes, whatever only moves values (Reshape,
MaxPool, ...) or has an integer kernel of its own (Add, Concat, pooling, ...) is carried in integers too, when all
its inputs are there already and somebody downstream wants the result. Everything else stays float.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, float_constant, is_constant, is_op, sole_use

COMPUTE = ("Conv", "Gemm", "MatMul")
# Values pass unchanged, so that input and output share scale and zero point, and the runtime has integer kernels for
# them: of what the table of operators says passes through, it has not all.
MOVERS = ("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Gather", "MaxPool", "Split", "Resize")
# Integer kernels with scales of their own.
CARRIERS = ("Add", "Mul", "Concat", "AveragePool", "GlobalAveragePool", "Sigmoid", "LeakyRelu", "HardSigmoid")


@dataclass
class QdqPlacement:
    """What runs in integers.

    Attributes:
        compute: chosen Conv, Gemm and MatMul nodes, products of two activations among them.
        carried: nodes between them that run in integers too.
        tensors: activations that get a Q/DQ pair, in graph order.
        same_as: tensor -> the tensor whose scale it shares (the input of a mover).
        results: those of `tensors` that come out of an integer kernel (possibly behind a Relu or Clip, which the
            runtime drops, because the saturation of the Q that follows does the same).
        floors: tensor -> the value below which it makes no difference, because only x * HardSigmoid(x) reads it.
    """

    compute: list[ir.Node] = field(default_factory=list)
    carried: list[ir.Node] = field(default_factory=list)
    tensors: list[ir.Value] = field(default_factory=list)
    same_as: dict[ir.Value, ir.Value] = field(default_factory=dict)
    results: set[ir.Value] = field(default_factory=set)
    floors: dict[ir.Value, float] = field(default_factory=dict)

    @property
    def observed(self) -> list[str]:
        """Names of the tensors whose ranges are needed."""
        return [v.name or "" for v in self.tensors if v not in self.same_as and not is_constant(v)]


def live_tensors(placement: QdqPlacement) -> list[str]:
    """Names of every tensor that the placement quantizes, whether it shares another one's scale or not.

    Whichever of the compute nodes are left in float later, no other tensor will need a range.
    """
    return [v.name or "" for v in placement.tensors if not is_constant(v)]


def eligible(node: ir.Node) -> bool:
    """True for a compute node that an integer kernel can take: float32, constant weights of a known layout."""
    if not is_op(node, *COMPUTE) or len(node.inputs) < 2 or node.inputs[0] is None:
        return False
    weight = float_constant(node.inputs[1])
    if weight is None or is_constant(node.inputs[0]) or weight.size == 0:
        return False
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is not None and float_constant(bias) is None:
        return False
    if node.op_type == "Gemm":
        # The integer Gemm takes a bias of one value per column.
        size = None if bias is None else float_constant(bias)
        columns = weight.shape[0 if attribute(node, "transB", 0) else 1]
        plain = not attribute(node, "transA", 0) and attribute(node, "alpha", 1.0) == 1.0
        return plain and (size is None or (size.size == columns and attribute(node, "beta", 1.0) == 1.0))
    return node.op_type != "MatMul" or weight.ndim >= 2


def is_product(node: ir.Node) -> bool:
    """True for a MatMul of two activations (attention), which an integer kernel can take."""
    if not is_op(node, "MatMul") or len(node.inputs) != 2:
        return False
    if node.inputs[0] is node.inputs[1] or any(v is None or is_constant(v) for v in node.inputs):
        return False
    return all(v is not None and v.dtype in (None, ir.DataType.FLOAT) for v in (*node.inputs, *node.outputs))


def output_channel_axis(node: ir.Node, rank: int) -> int | None:
    """The axis of a compute node's weights that has one scale per output channel; None where there is none."""
    if node.op_type == "Conv":
        return 0
    if node.op_type == "Gemm":
        return 0 if attribute(node, "transB", 0) else 1
    return 1 if rank == 2 else None


def place(graph: ir.Graph, chosen: Iterable[ir.Node], stay_float: Iterable[ir.Node] = ()) -> QdqPlacement:
    """Decide what runs in integers, given the compute nodes that shall.

    Args:
        graph: the main graph; not changed.
        chosen: nodes for which `eligible` or `is_product` holds.
        stay_float: nodes that must not be carried.
    """
    nodes = list(graph)
    compute = set(chosen)
    kept_float = set(stay_float)
    wanted = _wanted(nodes, compute, kept_float, (*MOVERS, *CARRIERS))
    # A Gemm or MatMul gives floats for free: integers pay only when the next integer kernel takes them as they are.
    directly = _wanted(nodes, compute, kept_float, MOVERS)
    placement = QdqPlacement()
    for node in nodes:
        if node in compute:
            placement.compute.append(node)
            for operand in operands(node):
                _add(placement, operand)
            if node.op_type == "Conv" or result_of(node) in directly:
                _finish(placement, node, result_of(node))
        elif node not in kept_float and _can_carry(node, placement.results) and not wanted.isdisjoint(results_of(node)):
            placement.carried.append(node)
            for value in node.inputs:
                if value in _data_inputs(node) and is_constant(value):
                    _add(placement, value)
            for result in results_of(node):
                _finish(placement, node, result)
    return placement


def _finish(placement: QdqPlacement, node: ir.Node, result: ir.Value) -> None:
    _add(placement, result)
    placement.results.add(result)
    floor = _hard_swish_floor(result)
    if floor is not None:
        placement.floors[result] = floor
    if node.op_type in MOVERS:
        source = node.inputs[0]
        assert source is not None
        placement.same_as[result] = placement.same_as.get(source, source)


def _hard_swish_floor(value: ir.Value) -> float | None:
    """Where x * HardSigmoid(x) becomes zero, when that is all that reads x: there is no use in integers below."""
    users = [use.node for use in value.uses()]
    gates = [n for n in users if is_op(n, "HardSigmoid")]
    if len(users) != 2 or len(gates) != 1 or value.is_graph_output():
        return None
    (gate,) = gates
    products = [n for n in users if n is not gate and is_op(n, "Mul") and gate.outputs[0] in n.inputs]
    alpha, beta = attribute(gate, "alpha", 0.2), attribute(gate, "beta", 0.5)
    return -float(beta) / float(alpha) if products and alpha > 0 else None


def _add(placement: QdqPlacement, value: ir.Value | None) -> None:
    if value is not None and value not in placement.tensors:
        placement.tensors.append(value)


def _wanted(
    nodes: list[ir.Node], compute: set[ir.Node], kept_float: set[ir.Node], through: tuple[str, ...]
) -> set[ir.Value]:
    """Values that some integer node downstream would take as integers, found from the outputs up."""
    wanted: set[ir.Value] = set()
    for node in reversed(nodes):
        if node in compute:
            wanted.update(operands(node))
        elif is_op(node, *through) and node not in kept_float and not wanted.isdisjoint(results_of(node)):
            wanted.update(v for v in _data_inputs(node) if not is_constant(v))
    return wanted


def operands(node: ir.Node) -> list[ir.Value]:
    """What a compute node reads as integers besides weights: two tensors where it has no weights."""
    return [v for v in (node.inputs if is_product(node) else node.inputs[:1]) if v is not None]


def _can_carry(node: ir.Node, integer: set[ir.Value]) -> bool:
    if not is_op(node, *MOVERS, *CARRIERS) or (len(node.outputs) > 1 and node.op_type != "Split"):
        return False
    if node.op_type == "Resize" and attribute(node, "mode", "nearest") != "nearest":
        return False
    if node.op_type == "MaxPool" and attribute(node, "storage_order", 0):
        return False
    if node.op_type == "HardSigmoid" and min(attribute(node, "alpha", 0.2), attribute(node, "beta", 0.5)) <= 0:
        return False
    if node.op_type == "AveragePool" and attribute(node, "ceil_mode", 0):
        return False
    data = _data_inputs(node)
    live = [v for v in data if not is_constant(v)]
    constants = [v for v in data if is_constant(v)]
    return bool(live) and all(v in integer for v in live) and all(float_constant(v) is not None for v in constants)


def _data_inputs(node: ir.Node) -> list[ir.Value]:
    """Inputs that carry values, without shapes, axes and indices."""
    several = node.op_type in ("Add", "Mul", "Concat")
    return [v for v in (node.inputs if several else node.inputs[:1]) if v is not None]


def result_of(node: ir.Node) -> ir.Value:
    """Where a node's quantized result appears: behind a Relu or Clip that saturation replaces, else its output."""
    output = node.outputs[0]
    user = sole_use(output)
    if user is not None and node.op_type in (*COMPUTE, "Add") and saturates(user):
        return user.outputs[0]
    return output


def results_of(node: ir.Node) -> list[ir.Value]:
    """All quantized results of a node: several for Split."""
    return list(node.outputs) if len(node.outputs) > 1 else [result_of(node)]


def saturates(node: ir.Node) -> bool:
    """True for Relu, and for Clip from zero with a constant upper end: what a Q with zero as its lowest value does."""
    if is_op(node, "Relu"):
        return True
    if not is_op(node, "Clip"):
        return False
    if attribute(node, "min") is not None or attribute(node, "max") is not None:
        return False
    low = float_constant(node.inputs[1]) if len(node.inputs) > 1 else None
    high = float_constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] is not None else None
    constant_top = len(node.inputs) < 3 or node.inputs[2] is None or high is not None
    return low is not None and float(low.reshape(-1)[0]) == 0.0 and constant_top


def counts(graph: ir.Graph, quantized: Mapping[str, object] | set[str]) -> dict[str, tuple[int, int]]:
    """Per compute operator type: (nodes quantized, nodes of that type)."""
    result: dict[str, tuple[int, int]] = {}
    for node in graph.all_nodes():
        if is_op(node, *COMPUTE, "LSTM"):
            done, total = result.get(node.op_type, (0, 0))
            result[node.op_type] = (done + (node.name in quantized), total + 1)
    return result
