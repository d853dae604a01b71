"""A part of a model as a model of its own, and a model that gives its inner values too."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

import numpy as np
import onnx
from onnx import helper

from onnxtool.model.proto_nodes import inner_graphs


def captured_names(node: onnx.NodeProto) -> set[str]:
    """Names that a node reads, those inside its subgraphs included."""
    names = set(node.input)
    for graph in inner_graphs(node):
        names |= {name for inner in graph.node for name in captured_names(inner)}
        names |= {value.name for value in graph.output}
    return names - {""}


def cut_model(
    source: onnx.ModelProto,
    tensors: Collection[str],
    inputs: Mapping[str, np.ndarray],
    results: Sequence[str],
    *,
    weight: Callable[[onnx.TensorProto], onnx.TensorProto] | None = None,
    fixed: bool = True,
) -> onnx.ModelProto:
    """The nodes that make some tensors, with the constants that they read.

    Args:
        source: the model.
        tensors: what the wanted nodes make.
        inputs: what goes in, by its names, with arrays of the types and shapes.
        results: the outputs.
        weight: gives an initializer with its bytes in it, where they are in other files.
        fixed: the inputs have the arrays' sizes; else only their ranks.
    """
    wanted = set(tensors)
    nodes = [n for n in source.graph.node if wanted & set(n.output)]
    read = {name for node in nodes for name in captured_names(node)} | set(results)
    constants = [n for n in source.graph.node if n.op_type == "Constant" and set(n.output) & (read - wanted)]
    infos = [
        helper.make_tensor_value_info(
            n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape if fixed else [f"{n}.{i}" for i in range(a.ndim)]
        )
        for n, a in inputs.items()
    ]
    weights = [t for t in source.graph.initializer if t.name in read and t.name not in inputs]
    graph = helper.make_graph(
        [*constants, *nodes],
        "part",
        infos,
        [helper.make_empty_tensor_value_info(name) for name in results],
        weights if weight is None else [weight(t) for t in weights],
    )
    graph.sparse_initializer.extend(s for s in source.graph.sparse_initializer if s.values.name in read)
    part = helper.make_model(graph, opset_imports=source.opset_import, ir_version=source.ir_version)
    part.functions.extend(source.functions)
    part.producer_name = "onnxtool"
    with suppress(Exception):  # inference refuses models that the runtime takes
        return onnx.shape_inference.infer_shapes(part)
    return part


def with_outputs(model: onnx.ModelProto, names: Collection[str]) -> onnx.ModelProto:
    """A copy that gives some of the model's values beside its own outputs, without types: the runtime finds them."""
    wider = onnx.ModelProto()
    wider.CopyFrom(model)
    given = {o.name for o in wider.graph.output}
    wider.graph.output.extend(helper.make_empty_tensor_value_info(n) for n in sorted(set(names) - given))
    return wider


__all__ = ["captured_names", "cut_model", "with_outputs"]
