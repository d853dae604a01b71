"""What single operators tell of the inputs that matter to them: numbers that they list, delimiters, steps."""

from __future__ import annotations

from math import frexp

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, constant_array
from onnxtool.model.operators.table import STANDARD, operator_of

# Attributes that list the numbers which an operator knows, or acts beyond.
_LISTS = (
    "keys_int64s", "keys_floats", "cats_int64s", "pool_int64s", "classes_int64s", "replaced_value_int64",
    "replaced_value_float",
)  # fmt: skip
_LIMITS = {"ThresholdedRelu": ("alpha", 1.0), "Shrink": ("lambd", 0.5), "Binarizer": ("threshold", 0.0)}
_ROUNDING = ("Round", "Floor", "Ceil", "Cast")
_MOST = 4096
_MOST_NUMBERS = 1 << 20  # of a table of points
_SMALL = 16  # elements of a scale that is read


def limits(node: ir.Node) -> list[float]:
    """Numbers in attributes on either side of which an operator does something else."""
    if node.op_type in _LIMITS:
        return [float(attribute(node, *_LIMITS[node.op_type]))]
    if operator_of(node).shape == "recurrent" and (clip := attribute(node, "clip", None)):
        return [float(clip), -float(clip)]
    return []


def listed_numbers(node: ir.Node) -> list[float]:
    """Keys, categories and the like; of what is compared for equality, a long list of constants."""
    found: list[float] = []
    for name in _LISTS:
        value = attribute(node, name, None)
        found += [] if value is None else value[:_MOST] if isinstance(value, (list, tuple)) else [value]
    if node.op_type == "Equal" and node.domain in STANDARD:
        for value in node.inputs:
            array = _constant(value, _MOST)
            if array is not None and array.dtype.kind in "iuf":
                found += array.reshape(-1).tolist()
    return [v for v in found if np.isfinite(v)]


def point_rows(node: ir.Node) -> list[np.ndarray]:
    """Rows that inputs are measured against: support vectors, constants that are subtracted from, float64[rows, n]."""
    found: list[np.ndarray] = []
    vectors = attribute(node, "support_vectors", None)
    if vectors:
        count = int(attribute(node, "n_supports", 0)) or sum(attribute(node, "vectors_per_class", ()))
        if count > 0 and len(vectors) % count == 0:
            found.append(np.asarray(vectors, np.float64).reshape(count, -1))
    for value in node.inputs if node.op_type in ("Sub", "CDist") else ():
        array = _constant(value, _MOST_NUMBERS)
        if array is not None and array.dtype.kind == "f" and array.ndim and array.size:
            found.append(array.reshape(-1, array.shape[-1]).astype(np.float64))
    return [rows for rows in found if rows.shape[1] > 1 and np.isfinite(rows).all()]


def _constant(value: ir.Value | None, most: int) -> np.ndarray | None:
    """The array behind a constant value; None for anything else, and where it has more elements: they are not read."""
    return constant_array(value) if value is not None and _fits(value, most) else None


def _fits(value: ir.Value, most: int) -> bool:
    """Whether a value is no constant of more than so many elements."""
    if value.const_value is not None:
        return value.const_value.size <= most
    node = value.producer()
    tensor = node.attributes.get("value") if node is not None and node.op_type == "Constant" else None
    return tensor is None or tensor.type != ir.AttributeType.TENSOR or tensor.as_tensor().size <= most


def delimiters(node: ir.Node) -> list[str]:
    """Texts between which a text is cut."""
    if node.op_type == "StringSplit":
        return [attribute(node, "delimiter", "") or " "]
    if node.op_type == "Tokenizer":
        return [s for s in attribute(node, "separators", ()) if s]
    return []


def rounding_steps(node: ir.Node) -> list[float]:
    """Steps to which numbers are rounded, where they are powers of two: halves of others are no floats."""
    found: list[float] = []
    if node.op_type == "QuantizeLinear":
        found = _numbers(node.inputs[1])
    elif node.op_type in _ROUNDING and node.inputs and node.inputs[0] is not None:
        before = node.inputs[0].producer()
        while before is not None and before.op_type in ("Add", "Sub", "Clip") and before.inputs[0] is not None:
            before = before.inputs[0].producer()  # one half is added, or a zero point
        if before is not None and before.op_type in ("Div", "Mul") and before.domain in STANDARD:
            factors = [v for place in (0, 1) for v in _numbers(before.inputs[place])]
            found = [v if before.op_type == "Div" else 1 / v for v in factors if v]
    return [abs(v) for v in found if np.isfinite(v) and abs(frexp(v)[0]) == 0.5]


def _numbers(value: ir.Value | None) -> list[float]:
    array = _constant(value, _SMALL)
    small = array is not None and array.dtype.kind in "fV" and array.size <= _SMALL
    return [float(v) for v in array.reshape(-1)] if array is not None and small else []


def rounds_to_integers(node: ir.Node) -> bool:
    """Whether floats become integers, of which NaN has none: what it becomes is left to the runtime."""
    if node.op_type in ("QuantizeLinear", "DynamicQuantizeLinear"):
        return True
    to = attribute(node, "to", None) if node.op_type == "Cast" else None
    return to is not None and ir.DataType(to).is_integer()


def takes_no_rows(node: ir.Node) -> bool:
    """Whether an operator is known to take inputs without a row; others may end the process."""
    return operator_of(node).runs_empty
