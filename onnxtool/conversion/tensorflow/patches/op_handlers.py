"""TensorFlow operators that Keras layers use and tf2onnx does not translate, or translates wrongly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from onnxtool.conversion.patches import LibraryPatch

FLOAT, UINT8, INT64, BOOL, FLOAT16, DOUBLE = 1, 2, 7, 9, 10, 11  # as onnx.TensorProto counts them
_FLOATS = (FLOAT, FLOAT16, DOUBLE)


class OperatorWriter:
    """Writes ONNX nodes in the place of one operator of tf2onnx's graph.

    Attributes:
        graph, node: tf2onnx's.
        inputs: names of what the operator takes.
        rest: what else tf2onnx gives to a handler.
        dtype: of its result, as onnx.TensorProto has it.
    """

    def __init__(self, graph: Any, node: Any, rest: Mapping[str, Any]) -> None:
        self.graph, self.node, self.rest = graph, node, rest
        self.inputs: list[str] = list(node.input)
        self.dtype: int = graph.get_dtype(node.output[0])
        self._shape = graph.get_shape(node.output[0])

    def constant(self, values: Any, dtype: Any = None) -> str:
        """Of the result's type unless another is given."""
        from tf2onnx import utils

        kind = utils.map_onnx_to_numpy_type(self.dtype) if dtype is None else dtype
        return str(self.graph.make_const(utils.make_name(self.node.name), np.asarray(values, kind)).output[0])

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """A node of one output."""
        return str(self.graph.make_node(kind, list(inputs), attr=attributes).output[0])

    def cast(self, value: str, dtype: int) -> str:
        """A value in another type."""
        return self.add("Cast", value, to=dtype)

    def give(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> None:
        """A node in the operator's place."""
        self.graph.remove_node(self.node.name)
        self.graph.make_node(
            kind, list(inputs), attr=attributes, domain=domain or None, outputs=[self.node.output[0]],
            dtypes=[self.dtype], shapes=[self._shape],
        )  # fmt: skip


Handler = Callable[[OperatorWriter], None]


def _erfc(write: OperatorWriter) -> None:
    """erfc(x) = 1 - erf(x); Keras writes its exact GELU with it."""
    write.give("Sub", write.constant(1), write.add("Erf", write.inputs[0]))


def _expm1(write: OperatorWriter) -> None:
    """exp(x) - 1 = tanh(x / 2) (exp(x) + 1), which stays exact near zero."""
    x = write.inputs[0]
    tangent = write.add("Tanh", write.add("Mul", x, write.constant(0.5)))
    write.give("Mul", tangent, write.add("Add", write.add("Exp", x), write.constant(1)))


def _log1p(write: OperatorWriter) -> None:
    """log(1 + x), times x over what 1 + x has of it: that makes good what the sum drops of a small x.

    Source: Goldberg 1991, "What every computer scientist should know about floating-point arithmetic", theorem 4.
    """
    from tf2onnx.utils import map_onnx_to_numpy_type

    x, one = write.inputs[0], write.constant(1)
    largest = write.constant(np.finfo(map_onnx_to_numpy_type(write.dtype)).max)
    more = write.add("Add", x, one)
    kept = write.add("Sub", more, one)
    usual = write.add("Log", more)
    nothing = write.add("Equal", kept, write.constant(0))
    infinite = write.add("Greater", kept, largest)
    divisor = write.add("Where", write.add("Or", nothing, infinite), one, kept)
    scaled = write.add("Mul", usual, write.add("Div", x, divisor))
    write.give("Where", nothing, x, write.add("Where", infinite, usual, scaled))


def _lookup(write: OperatorWriter) -> None:
    """Tables from integers to integers (Keras' IntegerLookup); tf2onnx has those of words."""
    from tf2onnx.constants import AI_ONNX_ML_DOMAIN
    from tf2onnx.custom_opsets.onnx_ml import LookupTableFind

    graph, node, tables = write.graph, write.node, write.rest["initialized_tables"]
    table = node.inputs[0]
    while table.type == "Identity":
        table = table.inputs[0]
    name = table.get_attr_value("shared_name")
    kinds = {graph.get_dtype(node.input[1]), write.dtype}
    if kinds != {INT64} or name not in tables or not node.inputs[2].is_const():
        LookupTableFind.version_8(graph, node, **write.rest)
        return
    keys, values = (np.asarray(part).tolist() for part in tables[name])
    default = int(node.inputs[2].get_tensor_value(as_list=False))
    write.give(
        "LabelEncoder", write.inputs[1], domain=AI_ONNX_ML_DOMAIN,
        keys_int64s=keys, values_int64s=values, default_int64=default,
    )  # fmt: skip
    if not graph.find_output_consumers(table.output[0]):
        graph.remove_node(table.name)


def _one_hot(write: OperatorWriter) -> None:
    """Where an index is the class. ONNX's OneHot counts indices below zero from the end, and TensorFlow's does not."""
    node = write.node
    indices, depth, on, off = write.inputs
    axis, rank = node.get_attr_value("axis", -1), write.graph.get_rank(indices)
    if axis != -1 and rank is None:
        raise NotImplementedError("OneHot along another axis than the last, of a tensor of unknown rank")
    listed = partial(write.constant, dtype=np.int64)
    if node.inputs[1].is_const():
        classes = listed(np.arange(int(node.inputs[1].get_tensor_value(as_list=False))))
    else:
        classes = write.add("Range", listed(0), write.cast(depth, INT64), listed(1))
    wide = write.add("Unsqueeze", write.cast(indices, INT64), listed([axis]))
    if axis not in (-1, rank):
        classes = write.add("Unsqueeze", classes, listed(np.arange(1, rank - axis + 1)))
    chosen = write.add("Equal", wide, classes)
    # The runtime's Where has no kernel for these types.
    carrier = {BOOL: UINT8, FLOAT16: FLOAT}.get(write.dtype)
    if carrier is None:
        write.give("Where", chosen, on, off)
    else:
        carried = write.add("Where", chosen, write.cast(on, carrier), write.cast(off, carrier))
        write.give("Cast", carried, to=write.dtype)


def _sign_bit(write: OperatorWriter) -> None:
    """Bitcast(float -> int32) & INT32_MIN, the sign bit: Keras tells -0.0 from 0.0 with it in argmax.

    ONNX has no bit cast before opset 26. A number that has the sign bit of x, and no other bit, serves as well here.
    """
    x, users = write.inputs[0], write.graph.find_output_consumers(write.node.output[0])
    if write.graph.get_dtype(x) != FLOAT or any(not _keeps_sign_only(u) for u in users):
        raise NotImplementedError("Bitcast has no ONNX form (only the test of a sign bit has)")
    zero = write.constant(0, np.float32)
    below = write.add("Less", write.add("Reciprocal", x), zero)
    minus_zero = write.add("And", write.add("Equal", x, zero), below)
    signed = write.add("Or", write.add("Less", x, zero), minus_zero)
    write.give("Where", signed, write.constant(np.iinfo(np.int32).min, np.int32), write.constant(0, np.int32))


def _keeps_sign_only(node: Any) -> bool:
    if node.type not in ("BitwiseAnd",) or not node.inputs[1].is_const():
        return False
    return int(node.inputs[1].get_tensor_value(as_list=False)) == np.iinfo(np.int32).min


def _bucketize(write: OperatorWriter) -> None:
    """Bucketize(x)[i] = number of boundaries <= x[i], as int32."""
    value = write.inputs[0]
    if write.graph.get_dtype(value) != FLOAT:
        value = write.cast(value, FLOAT)
    last, edges = write.constant([-1], np.int64), write.constant(write.node.get_attr_value("boundaries"), np.float32)
    reached = write.add("GreaterOrEqual", write.add("Unsqueeze", value, last), edges)
    write.give("ReduceSum", write.cast(reached, write.dtype), last, keepdims=0)


def _floor_div(write: OperatorWriter) -> None:
    """floor(x / y). ONNX's Div of integers rounds towards zero: it is exact once the remainder is taken off."""
    x, y = write.inputs
    if write.dtype in _FLOATS:
        write.give("Floor", write.add("Div", x, y))
    else:
        write.give("Div", write.add("Sub", x, write.add("Mod", x, y)), y)


def _floor_mod(write: OperatorWriter) -> None:
    """The remainder with the sign of y, which of integers is ONNX's Mod; of floats, fmod moved by y where signs differ.

    fmod is exact. x - y floor(x / y) is wrong as soon as x / y has more digits than its type.
    """
    x, y = write.inputs
    if write.dtype not in _FLOATS:
        write.give("Mod", x, y)
        return
    zero = write.constant(0)
    rest = write.add("Mod", x, y, fmod=1)
    alike = write.add("Equal", *(write.add("Less", value, zero) for value in (rest, y)))
    stays = write.add("Or", write.add("Equal", rest, zero), alike)
    write.give("Where", stays, rest, write.add("Add", rest, y))


@contextmanager
def _handled(name: str, since: int, write: Handler, only_missing: bool) -> Iterator[None]:
    """Inside the block tf2onnx translates an operator by this handler; it keeps one table of them for the process."""
    from tf2onnx.constants import ONNX_DOMAIN
    from tf2onnx.handler import tf_op

    opsets = tf_op.get_opsets()[ONNX_DOMAIN]
    known = any(name in handlers for handlers in opsets)
    if known and only_missing:
        yield
        return
    before = [dict(handlers) for handlers in opsets]
    tf_op(name).register_compat_handler(lambda graph, node, **rest: write(OperatorWriter(graph, node, rest)), since)
    try:
        yield
    finally:
        opsets[:] = before


def _missing(name: str, since: int, write: Handler) -> LibraryPatch:
    what = f"tf2onnx 1.17 has no translation of {name}"
    return LibraryPatch("tf2onnx", "", what, partial(_handled, name, since, write, True))


def _wrong(name: str, since: int, write: Handler, upstream: str) -> LibraryPatch:
    return LibraryPatch("tf2onnx", "1.18", upstream, partial(_handled, name, since, write, False))


PATCHES = {
    "Erfc": _missing("Erfc", 9, _erfc),
    "Expm1": _wrong("Expm1", 9, _expm1, "tf2onnx 1.17's exp(x) - 1 has no correct digit left near zero"),
    "Log1p": _wrong("Log1p", 9, _log1p, "tf2onnx 1.17's log(1 + x) has no correct digit left near zero"),
    "LookupTableFindV2": _wrong("LookupTableFindV2", 9, _lookup, "tf2onnx 1.17 has tables of words alone"),
    "OneHot": _wrong("OneHot", 13, _one_hot, "tf2onnx 1.17 counts classes below zero from the end"),
    "Bitcast": _missing("Bitcast", 9, _sign_bit),
    "Bucketize": _missing("Bucketize", 16, _bucketize),
    "FloorDiv": _wrong("FloorDiv", 13, _floor_div, "tf2onnx 1.17 rounds quotients of integers towards zero"),
    "FloorMod": _wrong("FloorMod", 13, _floor_mod, "tf2onnx 1.17's remainder of floats is x - y floor(x / y)"),
}
