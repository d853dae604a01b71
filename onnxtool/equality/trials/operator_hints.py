"""What single operators tell of the inputs that matter to them: limits, delimiters, whether they take no rows."""

from __future__ import annotations

import onnx_ir as ir

from onnxtool.model.ir.queries import attribute
from onnxtool.model.operators.table import operator_of

_LIMITS = {"ThresholdedRelu": ("alpha", 1.0), "Shrink": ("lambd", 0.5), "Binarizer": ("threshold", 0.0)}


def limits(node: ir.Node) -> list[float]:
    """Numbers in attributes on either side of which an operator does something else."""
    if node.op_type in _LIMITS:
        return [float(attribute(node, *_LIMITS[node.op_type]))]
    if operator_of(node).shape == "recurrent" and (clip := attribute(node, "clip", None)):
        return [float(clip), -float(clip)]
    return []


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
