"""Scalars that are added (the 3 of a hard swish) get one dim."""

from __future__ import annotations

from typing import Any

from onnxtool.conversion.patches import Patch


def _lift(graph: Any) -> None:
    from tf2onnx import utils

    for node in list(graph.get_nodes()):
        if node.type != "Add":
            continue
        for position, source in enumerate(node.inputs):
            if source is not None and source.is_const() and graph.get_shape(node.input[position]) == []:
                value = source.get_tensor_value(as_list=False).reshape(1)
                other = graph.get_shape(node.input[1 - position])
                if other:  # a scalar plus a scalar stays one
                    lifted = graph.make_const(utils.make_name("lifted"), value)
                    graph.replace_input(node, node.input[position], lifted.output[0], position)


# Given tf2onnx's graph.
PATCH = Patch(
    "tf2onnx",
    "1.18",
    "tf2onnx 1.17 takes the largest dim of what is added to a convolution, and fails on a scalar",
    _lift,
)
