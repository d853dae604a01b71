"""One node computed by ONNX's own reference implementation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import onnx


def compute(
    node: onnx.NodeProto, feeds: Mapping[str, np.ndarray], opsets: Iterable[onnx.OperatorSetIdProto]
) -> list[np.ndarray]:
    """The outputs of a node that have a name.

    Args:
        node: without subgraphs.
        feeds: its inputs by name.
        opsets: the versions of operator sets that its model imports.

    Raises:
        Exception: whatever the reference implementation raises of a node that it does not take.
    """
    from onnx.reference import ReferenceEvaluator

    unknown = onnx.TypeProto()
    inputs = [onnx.helper.make_value_info(name, unknown) for name in feeds]
    outputs = [onnx.helper.make_value_info(name, unknown) for name in node.output if name]
    graph = onnx.helper.make_graph([node], "node", inputs, outputs)
    with np.errstate(all="ignore"):
        results = ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=list(opsets))).run(None, dict(feeds))
    return [np.asarray(value) for value in results]
