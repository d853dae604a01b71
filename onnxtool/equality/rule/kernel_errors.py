"""Outputs that the runtime's kernels compute to an absolute precision only: small probabilities, tails of activations.

Sigmoid is a rational function plus one half, and one plus Erf or Tanh cancels where these are near -1: they are off
by steps of a number of about one, however small the result is. What multiplies its input by them (SiLU, GELU) is off by
as many times more as its input can be where they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, float_constant
from onnxtool.model.operators.table import operator_of


@dataclass(frozen=True)
class _Kernel:
    """Off by `error` while its argument is above `reach` times -1; below that it is zero, or right to some digits."""

    error: float
    reach: float


# Measured with ONNX Runtime 1.31 against float64 at 400,000 numbers in -20..20: Sigmoid by up to 1.7e-7, which is 500 %
# of 2e-8. Tanh, Erf, Exp, Softplus and Softmax are within 4e-6 of their result.
SIGMOID_ERROR = 2.0**-22
_SIGMOID = _Kernel(SIGMOID_ERROR, 18.0)
# Float32's step at one, and where each is -1 to its last bit.
_ONE_PLUS = {"Erf": _Kernel(2.0**-23, 4.0), "Tanh": _Kernel(2.0**-23, 9.0)}
# Gelu is x / 2 * (1 + Erf(x / sqrt(2))), or about x / 2 * (1 + Tanh(sqrt(2 / pi) * (x + 0.0447 x^3))).
_GELU: dict[str, tuple[str, float]] = {"none": ("Erf", 2.0**-0.5), "tanh": ("Tanh", 0.7978845608)}
_STEPS = 8  # of scaling between an input and what it is multiplied by


@dataclass(frozen=True)
class _Gate:
    """A value that is off by an absolute error where `source` is within `reach` of zero."""

    error: float
    source: ir.Value
    reach: float


def kernel_errors(model: ir.Model) -> dict[str, float]:
    """Float32 outputs that a kernel of the runtime computes to an absolute precision only -> how far off it may be.

    Args:
        model: the graph that the runtime runs.
    """
    off: dict[ir.Value, float] = {}
    gates: dict[ir.Value, _Gate] = {}
    for node in model.graph:
        if node.domain != "" or not node.inputs:
            continue
        gate = _gate_of(node, gates)
        if gate is not None:
            gates[node.outputs[0]] = gate
        error = gate.error if gate is not None else _handed_on(node, off, gates)
        if error:
            outputs = node.outputs if node.op_type == "Split" else node.outputs[:1]
            off.update((value, error) for value in outputs)
    return {v.name: off[v] for v in model.graph.outputs if v in off and v.name is not None}


def _gate_of(node: ir.Node, gates: dict[ir.Value, _Gate]) -> _Gate | None:
    """Sigmoid(k x), 1 + Erf(k x), 1 - Erf(k x) and these of Tanh, and a constant times one of them."""
    kernel, argument = None, node.inputs[0]
    if node.op_type == "Sigmoid":
        kernel = _SIGMOID
    elif node.op_type in ("Add", "Sub") and len(node.inputs) == 2:
        made = next((m for v in node.inputs if v is not None and (m := v.producer()) and m.op_type in _ONE_PLUS), None)
        if made is not None and any(_number(v) in (1.0, -1.0) for v in node.inputs):
            kernel, argument = _ONE_PLUS[made.op_type], made.inputs[0]
    if kernel is not None and argument is not None:
        source, slope = _at_least(argument)
        return _Gate(kernel.error, source, kernel.reach / abs(slope) if slope else 0.0)
    for value, factor in _pairs(node):
        number = _number(factor)
        if value in gates and number is not None:
            gate = gates[value]
            return _Gate(gate.error * abs(number), gate.source, gate.reach)
    return None


def _handed_on(node: ir.Node, off: dict[ir.Value, float], gates: dict[ir.Value, _Gate]) -> float:
    """How far off a node's output is for what its inputs are."""
    own = [off.get(v, 0.0) for v in node.inputs if v is not None]
    if node.op_type == "Gelu":
        inner, slope = _GELU[str(attribute(node, "approximate", "none"))]
        return _ONE_PLUS[inner].error / 2 * _ONE_PLUS[inner].reach / slope
    for value, other in _pairs(node):
        if value in gates:  # SiLU, GELU: the input that the gate is of, times it
            source, slope = _scaled(other)
            if source is gates[value].source:
                return gates[value].error * abs(slope) * gates[value].reach
    if node.op_type == "Mul":  # of two probabilities, as detectors score boxes; or a constant times SiLU
        numbers = [abs(n) for _, other in _pairs(node) if (n := _number(other)) is not None]
        return sum(own) * numbers[0] if numbers else (sum(own) if all(own) else 0.0)
    row = operator_of(node)
    if row.passes_through == "no" and node.op_type != "Pad":  # the numbers that Pad adds are exact
        return 0.0
    carried = [v for i, v in enumerate(node.inputs) if row.carries(i) or i == 0]
    return max((off.get(v, 0.0) for v in carried if v is not None), default=0.0)


def _pairs(node: ir.Node) -> Iterator[tuple[ir.Value, ir.Value]]:
    """The factors of a product, each with the other."""
    if node.op_type == "Mul" and len(node.inputs) == 2:
        a, b = node.inputs
        if a is not None and b is not None:
            yield a, b
            yield b, a


def _at_least(value: ir.Value) -> tuple[ir.Value, float]:
    """What a value is a constant times, or further from zero, and that constant: k x, or k (x + c x^3)."""
    source, slope = _scaled(value)
    node = source.producer()
    if node is not None and node.op_type == "Add":
        for x, more in ((0, 1), (1, 0)):
            inner, further = node.inputs[x], node.inputs[more]
            if inner is not None and further is not None and _cube_of(further) is inner:
                return inner, slope
    return source, slope


def _cube_of(value: ir.Value) -> ir.Value | None:
    """Of a positive constant times x^3, x."""
    cube, factor = _scaled(value)
    node = cube.producer()
    if factor <= 0 or node is None or len(node.inputs) != 2:
        return None
    x, other = node.inputs
    if node.op_type == "Pow" and _number(other) == 3.0:
        return x
    square = other.producer() if node.op_type == "Mul" and other is not None else None
    if square is None or square.op_type not in ("Mul", "Pow"):
        return None
    return x if square.inputs[0] is x and (square.inputs[1] is x or _number(square.inputs[1]) == 2.0) else None


def _scaled(value: ir.Value) -> tuple[ir.Value, float]:
    """What a value is a constant times, and that constant."""
    slope = 1.0
    for _ in range(_STEPS):
        node = value.producer()
        if node is None or node.domain != "":
            break
        first, *rest = node.inputs
        if node.op_type in ("Identity", "Neg") and first is not None:
            value, slope = first, slope if node.op_type == "Identity" else -slope
        elif node.op_type == "Div" and first is not None and (number := _number(rest[0])):
            value, slope = first, slope / number
        else:
            found = next(((v, n) for v, other in _pairs(node) if (n := _number(other)) is not None), None)
            if found is None:
                break
            value, slope = found[0], slope * found[1]
    return value, slope


def _number(value: ir.Value | None) -> float | None:
    """The one number that a constant holds."""
    array = None if value is None else float_constant(value)
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None
