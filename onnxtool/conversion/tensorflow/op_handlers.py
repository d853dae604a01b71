"""TensorFlow operators that tf2onnx 1.17 does not translate and Keras layers use, or translates wrongly."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np


@cache
def register() -> None:
    """Make tf2onnx know them; it keeps one global table of handlers."""
    from tf2onnx.handler import tf_op

    handlers = (
        ("Erfc", 9, _erfc),
        ("Expm1", 9, _expm1),
        ("Bitcast", 9, _sign_bit),
        ("Bucketize", 16, _bucketize),
        ("FloorDiv", 13, _floor_div),
        ("FloorMod", 13, _floor_mod),
    )
    for name, since, handler in handlers:
        tf_op(name).register_compat_handler(handler, since)


def _erfc(graph: Any, node: Any, **_: Any) -> None:
    """erfc(x) = 1 - erf(x); Keras writes its exact GELU with it."""
    dtype, shape = graph.get_dtype(node.output[0]), graph.get_shape(node.output[0])
    source, result = node.input[0], node.output[0]
    graph.remove_node(node.name)
    erf = graph.make_node("Erf", [source], dtypes=[dtype], shapes=[shape])
    one = graph.make_const(f"{node.name}_one", np.array(1, _numpy_type(dtype)))
    graph.make_node("Sub", [one.output[0], erf.output[0]], outputs=[result], dtypes=[dtype], shapes=[shape])


def _expm1(graph: Any, node: Any, **_: Any) -> None:
    """exp(x) - 1 = tanh(x / 2) (exp(x) + 1), which stays exact near zero."""
    dtype, shape = graph.get_dtype(node.output[0]), graph.get_shape(node.output[0])
    source, result = node.input[0], node.output[0]
    graph.remove_node(node.name)
    half = graph.make_const(f"{node.name}_half", np.array(0.5, _numpy_type(dtype))).output[0]
    one = graph.make_const(f"{node.name}_one", np.array(1, _numpy_type(dtype))).output[0]
    halved = graph.make_node("Mul", [source, half]).output[0]
    tangent = graph.make_node("Tanh", [halved]).output[0]
    power = graph.make_node("Exp", [source]).output[0]
    above = graph.make_node("Add", [power, one]).output[0]
    graph.make_node("Mul", [tangent, above], outputs=[result], dtypes=[dtype], shapes=[shape])


def _sign_bit(graph: Any, node: Any, **_: Any) -> None:
    """Bitcast(float -> int32) & INT32_MIN, the sign bit: Keras tells -0.0 from 0.0 with it in argmax.

    ONNX has no bit cast before opset 26. A number that has the sign bit of x, and no other bit, serves as well here.
    """
    from onnx import TensorProto

    users = graph.find_output_consumers(node.output[0])
    if graph.get_dtype(node.input[0]) != TensorProto.FLOAT or any(not _keeps_sign_only(u) for u in users):
        raise NotImplementedError("Bitcast has no ONNX form (only the test of a sign bit has)")
    dtype, shape = graph.get_dtype(node.output[0]), graph.get_shape(node.output[0])
    source, result = node.input[0], node.output[0]
    graph.remove_node(node.name)
    zero = graph.make_const(f"{node.name}_zero", np.array(0, np.float32)).output[0]
    clear = graph.make_const(f"{node.name}_clear", np.array(0, np.int32)).output[0]
    minimum = graph.make_const(f"{node.name}_set", np.array(np.iinfo(np.int32).min, np.int32)).output[0]
    negative = graph.make_node("Less", [source, zero]).output[0]
    is_zero = graph.make_node("Equal", [source, zero]).output[0]
    inverse = graph.make_node("Reciprocal", [source]).output[0]
    below = graph.make_node("Less", [inverse, zero]).output[0]
    minus_zero = graph.make_node("And", [is_zero, below]).output[0]
    signed = graph.make_node("Or", [negative, minus_zero]).output[0]
    graph.make_node("Where", [signed, minimum, clear], outputs=[result], dtypes=[dtype], shapes=[shape])


def _keeps_sign_only(node: Any) -> bool:
    if node.type not in ("BitwiseAnd",) or not node.inputs[1].is_const():
        return False
    return int(node.inputs[1].get_tensor_value(as_list=False)) == np.iinfo(np.int32).min


def _bucketize(graph: Any, node: Any, **_: Any) -> None:
    """Bucketize(x)[i] = number of boundaries <= x[i], as int32."""
    from onnx import TensorProto

    boundaries = np.array(node.get_attr_value("boundaries"), np.float32)
    dtype, shape = graph.get_dtype(node.output[0]), graph.get_shape(node.output[0])
    source, result = node.input[0], node.output[0]
    graph.remove_node(node.name)
    value = source
    if graph.get_dtype(source) != TensorProto.FLOAT:
        value = graph.make_node("Cast", [source], attr={"to": TensorProto.FLOAT}).output[0]
    last = graph.make_const(f"{node.name}_axis", np.array([-1], np.int64)).output[0]
    edges = graph.make_const(f"{node.name}_boundaries", boundaries).output[0]
    wide = graph.make_node("Unsqueeze", [value, last]).output[0]
    reached = graph.make_node("GreaterOrEqual", [wide, edges]).output[0]
    ones = graph.make_node("Cast", [reached], attr={"to": dtype}).output[0]
    graph.make_node("ReduceSum", [ones, last], attr={"keepdims": 0}, outputs=[result], dtypes=[dtype], shapes=[shape])


def _floor_div(graph: Any, node: Any, **_: Any) -> None:
    """floor(x / y). ONNX's Div of integers rounds towards zero: it is exact once the remainder is taken off."""
    dtype, shape = graph.get_dtype(node.output[0]), graph.get_shape(node.output[0])
    (x, y), result = node.input, node.output[0]
    graph.remove_node(node.name)
    if dtype in _floats():
        quotient = graph.make_node("Div", [x, y]).output[0]
        graph.make_node("Floor", [quotient], outputs=[result], dtypes=[dtype], shapes=[shape])
        return
    rest = graph.make_node("Mod", [x, y]).output[0]
    whole = graph.make_node("Sub", [x, rest]).output[0]
    graph.make_node("Div", [whole, y], outputs=[result], dtypes=[dtype], shapes=[shape])


def _floor_mod(graph: Any, node: Any, **_: Any) -> None:
    """X - y floor(x / y), which has the sign of y; of integers that is ONNX's Mod."""
    dtype, shape = graph.get_dtype(node.output[0]), graph.get_shape(node.output[0])
    (x, y), result = node.input, node.output[0]
    graph.remove_node(node.name)
    if dtype not in _floats():
        graph.make_node("Mod", [x, y], outputs=[result], dtypes=[dtype], shapes=[shape])
        return
    quotient = graph.make_node("Div", [x, y]).output[0]
    whole = graph.make_node("Floor", [quotient]).output[0]
    taken = graph.make_node("Mul", [whole, y]).output[0]
    graph.make_node("Sub", [x, taken], outputs=[result], dtypes=[dtype], shapes=[shape])


def _floats() -> tuple[int, ...]:
    from onnx import TensorProto

    return (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)


def _numpy_type(onnx_type: int) -> Any:
    from tf2onnx.utils import map_onnx_to_numpy_type

    return map_onnx_to_numpy_type(onnx_type)
