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
        ("Log1p", 9, _log1p),
        ("LookupTableFindV2", 9, _lookup),
        ("OneHot", 13, _one_hot),
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


def _log1p(graph: Any, node: Any, **_: Any) -> None:
    """log(1 + x), times x over what 1 + x has of it: that makes good what the sum drops of a small x.

    Source: Goldberg 1991, "What every computer scientist should know about floating-point arithmetic", theorem 4.
    """
    dtype, shape = graph.get_dtype(node.output[0]), graph.get_shape(node.output[0])
    source, result = node.input[0], node.output[0]
    graph.remove_node(node.name)
    zero, one, largest = (
        graph.make_const(f"{node.name}_{name}", np.array(number, _numpy_type(dtype))).output[0]
        for name, number in (("zero", 0), ("one", 1), ("largest", np.finfo(_numpy_type(dtype)).max))
    )
    more = graph.make_node("Add", [source, one]).output[0]
    kept = graph.make_node("Sub", [more, one]).output[0]
    usual = graph.make_node("Log", [more]).output[0]
    nothing = graph.make_node("Equal", [kept, zero]).output[0]
    infinite = graph.make_node("Greater", [kept, largest]).output[0]
    plain = graph.make_node("Or", [nothing, infinite]).output[0]
    divisor = graph.make_node("Where", [plain, one, kept]).output[0]
    share = graph.make_node("Div", [source, divisor]).output[0]
    scaled = graph.make_node("Mul", [usual, share]).output[0]
    finite = graph.make_node("Where", [infinite, usual, scaled]).output[0]
    graph.make_node("Where", [nothing, source, finite], outputs=[result], dtypes=[dtype], shapes=[shape])


def _lookup(graph: Any, node: Any, initialized_tables: Any, **rest: Any) -> None:
    """Tables from integers to integers (Keras' IntegerLookup); tf2onnx has those of words."""
    from onnx import TensorProto
    from tf2onnx.constants import AI_ONNX_ML_DOMAIN
    from tf2onnx.custom_opsets.onnx_ml import LookupTableFind

    table = node.inputs[0]
    while table.type == "Identity":
        table = table.inputs[0]
    name = table.get_attr_value("shared_name")
    kinds = {graph.get_dtype(node.input[1]), graph.get_dtype(node.output[0])}
    if kinds != {TensorProto.INT64} or name not in initialized_tables or not node.inputs[2].is_const():
        LookupTableFind.version_8(graph, node, initialized_tables=initialized_tables, **rest)
        return
    keys, values = (np.asarray(part).tolist() for part in initialized_tables[name])
    attributes = {
        "keys_int64s": keys,
        "values_int64s": values,
        "default_int64": int(node.inputs[2].get_tensor_value(as_list=False)),
    }
    source, result, shape = node.input[1], node.output[0], graph.get_shape(node.output[0])
    graph.remove_node(node.name)
    graph.make_node(
        "LabelEncoder", [source], domain=AI_ONNX_ML_DOMAIN, outputs=[result], attr=attributes,
        shapes=[shape], dtypes=[TensorProto.INT64],
    )  # fmt: skip
    if not graph.find_output_consumers(table.output[0]):
        graph.remove_node(table.name)


def _one_hot(graph: Any, node: Any, **_: Any) -> None:
    """Where an index is the class. ONNX's OneHot counts indices below zero from the end, and TensorFlow's does not."""
    from onnx import TensorProto

    dtype, shape = graph.get_dtype(node.output[0]), graph.get_shape(node.output[0])
    (indices, depth, on, off), result = node.input, node.output[0]
    axis, rank = node.get_attr_value("axis", -1), graph.get_rank(indices)
    if axis != -1 and rank is None:
        raise NotImplementedError("OneHot along another axis than the last, of a tensor of unknown rank")
    known = node.inputs[1].get_tensor_value(as_list=False) if node.inputs[1].is_const() else None
    graph.remove_node(node.name)

    def listed(name: str, numbers: Any) -> str:
        return str(graph.make_const(f"{node.name}_{name}", np.asarray(numbers, np.int64)).output[0])

    if known is not None:
        classes = listed("classes", np.arange(int(known)))
    else:
        count = graph.make_node("Cast", [depth], attr={"to": TensorProto.INT64}).output[0]
        classes = graph.make_node("Range", [listed("first", 0), count, listed("step", 1)]).output[0]
    whole = graph.make_node("Cast", [indices], attr={"to": TensorProto.INT64}).output[0]
    wide = graph.make_node("Unsqueeze", [whole, listed("axis", [axis])]).output[0]
    if axis not in (-1, rank):
        classes = graph.make_node("Unsqueeze", [classes, listed("after", np.arange(1, rank - axis + 1))]).output[0]
    chosen = graph.make_node("Equal", [wide, classes]).output[0]
    # The runtime's Where has no kernel for these types.
    carrier = {TensorProto.BOOL: TensorProto.UINT8, TensorProto.FLOAT16: TensorProto.FLOAT}.get(dtype)
    if carrier is None:
        graph.make_node("Where", [chosen, on, off], outputs=[result], dtypes=[dtype], shapes=[shape])
        return
    on, off = (graph.make_node("Cast", [value], attr={"to": carrier}).output[0] for value in (on, off))
    carried = graph.make_node("Where", [chosen, on, off], dtypes=[carrier], shapes=[shape]).output[0]
    graph.make_node("Cast", [carried], attr={"to": dtype}, outputs=[result], dtypes=[dtype], shapes=[shape])


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
    """The remainder with the sign of y, which of integers is ONNX's Mod; of floats, fmod moved by y where signs differ.

    fmod is exact. x - y floor(x / y) is wrong as soon as x / y has more digits than its type.
    """
    dtype, shape = graph.get_dtype(node.output[0]), graph.get_shape(node.output[0])
    (x, y), result = node.input, node.output[0]
    graph.remove_node(node.name)
    if dtype not in _floats():
        graph.make_node("Mod", [x, y], outputs=[result], dtypes=[dtype], shapes=[shape])
        return
    zero = graph.make_const(f"{node.name}_zero", np.array(0, _numpy_type(dtype))).output[0]
    rest = graph.make_node("Mod", [x, y], attr={"fmod": 1}).output[0]
    is_none = graph.make_node("Equal", [rest, zero]).output[0]
    below = [graph.make_node("Less", [value, zero]).output[0] for value in (rest, y)]
    alike = graph.make_node("Equal", below).output[0]
    stays = graph.make_node("Or", [is_none, alike]).output[0]
    moved = graph.make_node("Add", [rest, y]).output[0]
    graph.make_node("Where", [stays, rest, moved], outputs=[result], dtypes=[dtype], shapes=[shape])


def _floats() -> tuple[int, ...]:
    from onnx import TensorProto

    return (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)


def _numpy_type(onnx_type: int) -> Any:
    from tf2onnx.utils import map_onnx_to_numpy_type

    return map_onnx_to_numpy_type(onnx_type)
