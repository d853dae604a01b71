"""Axes of reductions, counted from the first dim.

Given an input without elements, ONNX Runtime 1.31 reduces no axis that is counted from the last dim: of shape [0, 16]
it gives [0, 16], and what joins that to something else fails or ends the process. Counted from the first it gives [0].
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.editing import new_initializer
from onnxtool.model.ir.queries import all_nodes, attribute
from onnxtool.model.operators.layout_rules import axes_of, axis_of
from onnxtool.model.operators.shape_inference import infer_shapes
from onnxtool.model.operators.table import named
from onnxtool.model.operators.value_facts import rank_of

_REDUCTIONS, _PLACES = named(shape="reduce"), named(shape="arg")


def count_axes_from_first(model: ir.Model) -> None:
    """Write the axes of reductions, ArgMax and ArgMin without a sign, where the rank of what they reduce is known."""
    infer_shapes(model)
    for node in all_nodes(model):
        rank = rank_of(node.inputs[0]) if node.domain == "" and node.inputs else None
        if rank is None:
            continue
        if node.op_type in _PLACES and attribute(node, "axis", 0) < 0:
            node.attributes["axis"] = ir.AttrInt64("axis", axis_of(node, rank, 0))
        axes = axes_of(node) if node.op_type in _REDUCTIONS else None
        if axes is None or min(axes, default=0) >= 0:
            continue
        counted = [axis % rank for axis in axes]
        if "axes" in node.attributes:
            node.attributes["axes"] = ir.AttrInt64s("axes", counted)
        else:
            name = f"{node.outputs[0].name}_axes"
            node.replace_input_with(1, new_initializer(model.graph, name, np.array(counted, np.int64)))
