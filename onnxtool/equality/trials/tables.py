"""Rows of tables in which two models differ."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, constant_array, walk
from onnxtool.model.operators.table import STANDARD

_MOST = 8  # rows of a table that are sought
_BYTES = 1 << 28  # of a table that is looked at


def differing_reads(graphs: Mapping[str, ir.Model]) -> dict[str, dict[str, list[int]]]:
    """Of two models, for each: tables that it reads by computed indices -> rows in which the other's differ.

    Args:
        graphs: by name; of one alone nothing is known.
    """
    found: dict[str, dict[str, list[int]]] = {name: {} for name in graphs}
    if len(graphs) != 2:
        return found
    (first, a), (second, b) = graphs.items()
    for name, model, other in ((first, a, b), (second, b, a)):
        known = _tables(other)
        for key, table in _tables(model).items():
            alike = [known[key]] if key in known else list(known.values())
            for counterpart in alike:
                rows = _rows_apart(table, counterpart)
                if rows and len(rows) <= len(table) // 2:
                    found[name].setdefault(key, [])
                    found[name][key] = sorted({*found[name][key], *_spread(rows)})[:_MOST]
    return found


def _tables(model: ir.Model) -> dict[str, np.ndarray]:
    """Constants of which Gather takes rows, by name."""
    found: dict[str, np.ndarray] = {}
    for node in walk(model.graph):
        table = node.inputs[0] if node.op_type == "Gather" and node.domain in STANDARD and node.inputs else None
        if table is None or attribute(node, "axis", 0) != 0 or (table.name or "") in found:
            continue
        weight = table.const_value
        if weight is not None and (weight.dtype == ir.DataType.STRING or weight.nbytes > _BYTES):
            continue
        array = constant_array(table)
        if array is not None and array.ndim and array.dtype.kind in "fiub" and len(array) > 1:
            found[table.name or ""] = array
    return found


def _rows_apart(a: np.ndarray, b: np.ndarray) -> list[int]:
    if a.shape != b.shape or a.dtype != b.dtype:
        return []
    return [int(i) for i in np.flatnonzero((a != b).reshape(len(a), -1).any(axis=1))]


def _spread(rows: list[int]) -> list[int]:
    """The first, the last, and some between."""
    places = np.linspace(0, len(rows) - 1, min(_MOST, len(rows))).astype(int)
    return [rows[i] for i in places]
