"""float16: half the size. What overflows half precision stays float32, with casts in between."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx
import onnx_ir as ir

from onnxtool.model.ir.editing import lazy_initializer, remove_unused
from onnxtool.model.ir.queries import attribute, bodies_of, constant_array, is_op
from onnxtool.model.operators.table import operator_of
from onnxtool.model.randomness import is_random

_LARGEST = 65504.0  # the largest float16
_HEADROOM = 0.5  # activations on other data may be larger than the ones observed
# Operators whose float inputs are sizes, scales or thresholds, or that float16 is not defined for.
_STAY = (
    *("Range", "Resize", "Upsample", "NonMaxSuppression", "RoiAlign", "CumSum", "TopK", "GridSample"),
    *("StringNormalizer", "TfIdfVectorizer"),
)
_DTYPES = ("Cast", "ConstantOfShape", "EyeLike")


def overflowing(maxima: dict[str, float]) -> set[str]:
    """Names of tensors whose largest magnitude leaves float16 too little room."""
    return {name for name, extreme in maxima.items() if not extreme < _LARGEST * _HEADROOM}


def make_float16(model: ir.Model, *, keep_io: bool = False, too_large: Collection[str] = ()) -> list[str]:
    """Turn float32 tensors into float16 ones.

    Args:
        model: prepared; changed in place.
        keep_io: inputs and outputs stay float32.
        too_large: names of tensors that overflow; the nodes that read or write them stay float32.

    Returns:
        Names of the nodes that stay float32.
    """
    graph = model.graph
    opset = model.opset_imports.get("", 1)
    kept = {node for node in graph if _stays(node, set(too_large)) or not takes_half(node, opset)}
    narrow = _Narrowing(graph, kept)
    if not keep_io:
        for value in graph.inputs:
            if value.dtype == ir.DataType.FLOAT and value.name not in graph.initializers:
                value.type = ir.TensorType(ir.DataType.FLOAT16)
    wide_outputs = [v.dtype == ir.DataType.FLOAT for v in graph.outputs]
    for node in list(graph):
        narrow.convert(node)
    for index, value in enumerate(list(graph.outputs)):
        if wide_outputs[index]:
            narrow.finish_output(index, value, ir.DataType.FLOAT if keep_io else ir.DataType.FLOAT16)
    graph.sort()
    remove_unused(model)
    return [node.name or "" for node in kept]


def _stays(node: ir.Node, too_large: set[str]) -> bool:
    row = operator_of(node)
    if row.domain or row.name in _STAY or row.has_bodies or row.integer == "converts" or is_random(node):
        return True
    if any(v is not None and v.name in too_large for v in (*node.inputs, *node.outputs)):
        return True
    return any(_overflows(v) for v in node.inputs)


def takes_half(node: ir.Node, opset: int) -> bool:
    """True when the standard defines an operator, in this version, for float16 wherever the node has floats."""
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, "")
    except onnx.defs.SchemaError:
        return True  # the runtime will tell
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    for values, formals in ((node.inputs, schema.inputs), (node.outputs, schema.outputs)):
        for index, value in enumerate(values):
            if value is None or not formals or value.dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
                continue
            formal = formals[min(index, len(formals) - 1)]  # the last one may stand for any number
            if "tensor(float16)" not in allowed.get(formal.type_str, [formal.type_str]):
                return False
    return True


def _overflows(value: ir.Value | None) -> bool:
    """Whether a constant holds finite numbers that float16 does not have; infinity it has."""
    array = constant_array(value)
    if array is None or array.dtype != np.float32:
        return False
    return float(np.abs(array).max(where=np.isfinite(array), initial=0)) > _LARGEST


class _Narrowing:
    def __init__(self, graph: ir.Graph, kept: set[ir.Node]) -> None:
        self.graph = graph
        self.kept = kept
        self._casts: dict[tuple[int, ir.DataType], ir.Value] = {}
        self._halves: dict[int, ir.Value] = {}

    def convert(self, node: ir.Node) -> None:
        """Give a node inputs of its precision and mark its outputs."""
        wide = node in self.kept
        target = ir.DataType.FLOAT if wide else ir.DataType.FLOAT16
        for index, value in enumerate(node.inputs):
            if value is not None:
                node.replace_input_with(index, self._as(value, target))
        for inner in (n for body in bodies_of(node) for n in body.all_nodes()):
            for index, value in enumerate(inner.inputs):
                if value is not None and value.graph is self.graph:
                    inner.replace_input_with(index, self._as(value, ir.DataType.FLOAT))
        if wide:
            return
        if is_op(node, *_DTYPES):
            _narrow_attribute(node)
        for value in node.outputs:
            if value.dtype == ir.DataType.FLOAT:
                value.type = ir.TensorType(ir.DataType.FLOAT16)

    def _as(self, value: ir.Value, target: ir.DataType) -> ir.Value:
        if value.dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16) or value.dtype == target:
            return value
        array = constant_array(value)
        if array is not None and target == ir.DataType.FLOAT16:
            if id(value) not in self._halves:
                self._halves[id(value)] = lazy_initializer(
                    self.graph, f"{value.name}_half", lambda: _half(value), array.shape, target
                )
            return self._halves[id(value)]
        key = (id(value), target)
        if key not in self._casts:
            self._casts[key] = self._cast(
                value, target, f"{value.name}_{'half' if target.name == 'FLOAT16' else 'single'}"
            )
        return self._casts[key]

    def _cast(self, value: ir.Value, target: ir.DataType, name: str) -> ir.Value:
        node = ir.node("Cast", [value], {"to": int(target)}, name=name)
        result = node.outputs[0]
        result.name, result.type, result.shape = name, ir.TensorType(target), value.shape
        producer = value.producer()
        if producer is not None and producer.graph is self.graph:
            self.graph.insert_after(producer, node)
        else:
            self.graph.insert_before(self.graph[0], node)
        return result

    def finish_output(self, index: int, value: ir.Value, target: ir.DataType) -> None:
        """Give a graph output its precision under its own name."""
        if value.dtype == target:
            return
        name = value.name
        value.name = f"{name}_unconverted"
        result = self._cast(value, target, name or "output")
        self.graph.outputs[index] = result


def _half(value: ir.Value) -> np.ndarray:
    array = constant_array(value)
    assert array is not None
    return array.astype(np.float16)


def _narrow_attribute(node: ir.Node) -> None:
    """Cast to float and filled float tensors give float16 instead."""
    if node.op_type == "ConstantOfShape":
        value = attribute(node, "value")
        if value is None or value.dtype == ir.DataType.FLOAT:
            filled = np.zeros(1, np.float16) if value is None else value.numpy().astype(np.float16)
            node.attributes["value"] = ir.AttrTensor("value", ir.Tensor(filled))
        return
    name = "to" if node.op_type == "Cast" else "dtype"
    if attribute(node, name) == int(ir.DataType.FLOAT):
        node.attributes[name] = ir.AttrInt64(name, int(ir.DataType.FLOAT16))
