"""Types and shapes of intermediate values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir
from onnx_ir.passes.common._c_api_utils import call_onnx_api

if TYPE_CHECKING:
    from onnxtool.optimize.context import PassContext


def infer_shapes(model: ir.Model, context: PassContext) -> None:  # noqa: ARG001
    """Infer what can be inferred; graph inputs and outputs keep their declared shapes."""

    def infer(proto: onnx.ModelProto) -> onnx.ModelProto:
        return onnx.shape_inference.infer_shapes(proto, data_prop=True)

    try:
        inferred = ir.from_proto(call_onnx_api(infer, model))
    except Exception:
        return
    for graph, other in zip(model.graphs(), inferred.graphs(), strict=True):
        found = {v.name: v for node in other for v in node.outputs}
        for node in graph:
            for value in node.outputs:
                match = found.get(value.name)
                if match is None or value.is_graph_output():
                    continue
                value.shape = match.shape or value.shape
                value.type = match.type or value.type
