"""One decoder for the first step and for those with a cache: what transformers.js runs.

An If on the input `use_cache_branch` holds both graphs, which share their weights. With the cache, the keys and values
of the encoder's states come back as empty tensors: whoever feeds them back keeps those that it has. That is the layout
of optimum's merged decoders.
"""

from __future__ import annotations

import hashlib

import numpy as np
import onnx_ir as ir

MERGED = "decoder_model_merged.onnx"
_USES_CACHE = "use_cache_branch"
_BATCH = "batch_size"  # the name by which transformers.js knows how large an empty cache has to be


def merged_decoder(first: ir.Model, cached: ir.Model) -> ir.Model:
    """Join two decoders; both are taken apart.

    Args:
        first: without a cache: inputs `input_ids`, `encoder_hidden_states` ..., outputs `logits`, `present.*`.
        cached: with `past_key_values.*` as inputs, and without the encoder's part in the outputs.

    Returns:
        A model with the inputs of both and bool[1] `use_cache_branch`; past tensors are ignored where that is false.
    """
    uses_cache = ir.Value(name=_USES_CACHE, type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([1]))
    inputs = {v.name: v for v in first.graph.inputs}
    inputs |= {v.name: v for v in cached.graph.inputs if v.name not in inputs}
    results = [
        ir.Value(name=o.name, type=o.type, shape=ir.Shape([None] * len(o.shape)) if o.shape is not None else None)
        for o in first.graph.outputs
    ]
    for value in inputs.values():
        _name_dims(value)
    weights: dict[bytes, ir.Value] = {}
    without = _branch(first, "without_cache", inputs, weights)
    kept = _branch(cached, "with_cache", inputs, weights)
    given = {str(o.name).removesuffix("_with_cache"): o for o in kept.outputs}
    outputs = [given.get(str(r.name)) or _empty(r, kept) for r in results]
    kept.outputs.clear()
    kept.outputs.extend(outputs)
    attributes = {"then_branch": ir.AttrGraph("then_branch", kept), "else_branch": ir.AttrGraph("else_branch", without)}
    choice = ir.Node("", "If", [uses_cache], attributes=list(attributes.values()), outputs=results, name="choice")
    graph = ir.Graph(
        [*inputs.values(), uses_cache],
        results,
        nodes=[choice],
        initializers=list(weights.values()),
        opset_imports=dict(first.graph.opset_imports),
        name="merged_decoder",
    )
    return ir.Model(graph, ir_version=first.ir_version, functions=[*first.functions.values()])


def _branch(
    model: ir.Model, suffix: str, inputs: dict[str | None, ir.Value], weights: dict[bytes, ir.Value]
) -> ir.Graph:
    """The nodes of a graph as a branch that reads inputs and weights from outside."""
    graph = model.graph
    for value in graph.inputs:
        if inputs[value.name] is not value:
            value.replace_all_uses_with(inputs[value.name])
    for value in list(graph.initializers.values()):
        assert value.const_value is not None
        tensor = value.const_value
        key = hashlib.sha256(f"{tensor.dtype} {tensor.shape} ".encode() + tensor.tobytes()).digest()
        if key not in weights:
            weights[key] = ir.Value(
                name=f"weight_{len(weights)}", type=value.type, shape=value.shape, const_value=tensor
            )
        value.replace_all_uses_with(weights[key])
    nodes, outputs = list(graph), list(graph.outputs)
    graph.outputs.clear()
    graph.inputs.clear()
    graph.remove(nodes)
    for number, node in enumerate(nodes):
        node.name = f"{suffix}_{number}"
        for place, value in enumerate(node.outputs):
            value.name = f"{value.name}_{suffix}" if value in outputs else f"{suffix}_{number}_{place}"
    return ir.Graph([], outputs, nodes=nodes, name=suffix)


def _empty(like: ir.Value, graph: ir.Graph) -> ir.Value:
    """A constant of the same rank without elements, in a branch."""
    assert like.shape is not None
    zeros = ir.tensor(np.zeros([0] * len(like.shape), np.float32))
    node = ir.Node("", "Constant", [], attributes=[ir.AttrTensor("value", zeros)], name=f"empty_{like.name}")
    node.outputs[0].name = f"{like.name}_empty"
    graph.append(node)
    return node.outputs[0]


def _name_dims(value: ir.Value) -> None:
    """Names of an input's dynamic dims that say what they are: the two graphs were exported apart."""
    length = "encoder_sequence" if "encoder" in str(value.name) else "sequence"
    length = "past_sequence" if ".decoder." in str(value.name) else length
    if value.shape is not None:
        dims = [d if isinstance(d, int) else (length if i else _BATCH) for i, d in enumerate(value.shape)]
        value.shape = ir.Shape(dims)
