"""What single operators tell of the inputs that matter to them: limits, delimiters, whether they take no rows."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, float_constant
from onnxtool.model.operators.table import operator_of

# Attributes that list the numbers which an operator knows.
_LISTS = ("keys_int64s", "keys_floats", "cats_int64s", "pool_int64s", "classes_int64s")
_SINGLE = ("replaced_value_int64", "replaced_value_float")
_MOST = 1 << 16  # numbers of a table of points
_LIMITS = {"ThresholdedRelu": ("alpha", 1.0), "Shrink": ("lambd", 0.5), "Binarizer": ("threshold", 0.0)}


def limits(node: ir.Node) -> list[float]:
    """Numbers in attributes on either side of which an operator does something else."""
    if node.op_type in _LIMITS:
        return [float(attribute(node, *_LIMITS[node.op_type]))]
    if operator_of(node).shape == "recurrent" and (clip := attribute(node, "clip", None)):
        return [float(clip), -float(clip)]
    return []


def listed_numbers(node: ir.Node) -> list[float]:
    """Keys, categories and the like."""
    single = [number for name in _SINGLE if (number := attribute(node, name, None)) is not None]
    return [*single, *(number for name in _LISTS for number in attribute(node, name, None) or ())]


def points(node: ir.Node) -> list[tuple[float, ...]]:
    """Rows that inputs are measured against: support vectors, and constants that are subtracted from."""
    vectors = attribute(node, "support_vectors", None) or ()
    count = attribute(node, "n_supports", 0) or sum(attribute(node, "vectors_per_class", ()))
    found = [np.reshape(vectors, (count, -1))] if count and len(vectors) % count == 0 else []
    for value in node.inputs if node.op_type in ("Sub", "CDist") else ():
        large = value is None or (value.const_value is not None and value.const_value.size > _MOST)
        array = None if large else float_constant(value)
        if array is not None and array.ndim and array.size:
            found.append(array.reshape(-1, array.shape[-1]))
    return [tuple(row) for rows in found for row in rows.tolist() if len(row) > 1 and np.isfinite(row).all()]


def delimiters(node: ir.Node) -> list[str]:
    """Texts between which a text is cut."""
    if node.op_type == "StringSplit":
        return [attribute(node, "delimiter", "") or " "]
    if node.op_type == "Tokenizer":
        return [s for s in attribute(node, "separators", ()) if s]
    return []


def rounds_to_integers(node: ir.Node) -> bool:
    """Whether floats become integers, of which NaN has none: what it becomes is left to the runtime."""
    if node.op_type in ("QuantizeLinear", "DynamicQuantizeLinear"):
        return True
    to = attribute(node, "to", None) if node.op_type == "Cast" else None
    return to is not None and ir.DataType(to).is_integer()


def takes_no_rows(node: ir.Node) -> bool:
    """Whether an operator is known to take inputs without a row; others may end the process."""
    return operator_of(node).runs_empty
