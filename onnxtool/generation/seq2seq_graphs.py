"""The graphs of an encoder-decoder, exported from PyTorch: encoder, decoder, decoder with a cache, and both in one.

Names are those that optimum and transformers.js read: `encoder_hidden_states`, `past_key_values.0.decoder.key`,
`present.0.decoder.key`.
"""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtool.conversion.pytorch.cleanup import clean_up
from onnxtool.conversion.quiet import quiet
from onnxtool.model import io

ENCODER, DECODER, WITH_PAST = "encoder_model.onnx", "decoder_model.onnx", "decoder_with_past_model.onnx"
_EXTERNAL_ABOVE = 1 << 30  # bytes of weights; a protobuf file ends at 2 GB
_OPSET = 20
_TEXT_LENGTH = 7


def export_graphs(model: Any, folder: Path, sample: np.ndarray) -> None:
    """Write the four graphs.

    Args:
        model: of transformers, in float32.
        folder: where to write them.
        sample: what the encoder takes, [2, ...]; int64 for text.
    """
    import torch

    auto = torch.export.Dim.AUTO
    text = sample.dtype == np.int64
    batch, both = {0: auto}, {0: auto, 1: auto}
    first: tuple[Any, ...] = (torch.from_numpy(sample[:, :_TEXT_LENGTH] if text else sample),)
    mask = torch.ones(2, _TEXT_LENGTH, dtype=torch.int64) if text else None
    masks, mask_names, mask_dims = ((mask,), ["attention_mask"], (both,)) if text else ((), [], ())
    encoder = _encoder(model, text)
    names = [str(model.main_input_name), *mask_names]
    long = both if text else batch
    _export(encoder, (*first, *masks), (long, *mask_dims), names, ["last_hidden_state"], folder / ENCODER)
    with torch.no_grad():
        hidden = encoder(*first, *masks)
        decoder = _decoder(model, text)
        ids = torch.full((2, 5), 3)
        outputs = decoder(ids, hidden, *masks)
    layers = (len(outputs) - 1) // 4
    mask_names = [f"encoder_{n}" for n in mask_names]
    common = ["input_ids", "encoder_hidden_states", *mask_names]
    present = ["logits", *_cache("present", layers)]
    _export(decoder, (ids, hidden, *masks), (both, long, *mask_dims), common, present, folder / DECODER)
    past = outputs[1:]
    dims = [{0: auto, 2: auto} if text or i % 4 < 2 else batch for i in range(4 * layers)]
    _export(
        _decoder(model, text),
        (ids[:, :1], hidden, *masks, *past),
        (batch, long, *mask_dims, *dims),
        [*common, *_cache("past_key_values", layers)],
        [n for n in present if ".encoder." not in n],
        folder / WITH_PAST,
    )
    _save(merged_decoder(io.load(folder / DECODER), io.load(folder / WITH_PAST)), folder / MERGED)


def _cache(prefix: str, layers: int) -> list[str]:
    kinds = ("decoder.key", "decoder.value", "encoder.key", "encoder.value")
    return [f"{prefix}.{layer}.{kind}" for layer in range(layers) for kind in kinds]


def _encoder(model: Any, text: bool) -> Any:
    import torch

    class Encoder(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.encoder = model.get_encoder()

        def forward(self, inputs: Any, *mask: Any) -> Any:
            given = {"attention_mask": mask[0]} if text else {}
            return self.encoder(inputs, **given).last_hidden_state

    return Encoder().eval()


def _decoder(model: Any, text: bool) -> Any:
    import torch
    from transformers.cache_utils import DynamicCache, EncoderDecoderCache
    from transformers.modeling_outputs import BaseModelOutput

    class DecoderGraph(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: Any, hidden: Any, *others: Any) -> Any:
            past = others[1:] if text else others
            own, cross = DynamicCache(), DynamicCache()
            for layer in range(len(past) // 4):
                own.update(past[4 * layer], past[4 * layer + 1], layer)
                cross.update(past[4 * layer + 2], past[4 * layer + 3], layer)
            found = self.model(
                decoder_input_ids=ids,
                encoder_outputs=BaseModelOutput(last_hidden_state=hidden),
                past_key_values=EncoderDecoderCache(own, cross),
                use_cache=True,
                **({"attention_mask": others[0]} if text else {}),
            )
            cache = found.past_key_values
            values = [found.logits]
            layers = zip(cache.self_attention_cache.layers, cache.cross_attention_cache.layers, strict=True)
            for mine, encoders in layers:
                values += [mine.keys, mine.values]
                if not past:
                    values += [encoders.keys, encoders.values]
            return tuple(values)

    return DecoderGraph().eval()


def _export(
    module: Any,
    inputs: tuple[Any, ...],
    dims: tuple[Any, ...],
    names: list[str],
    outputs: list[str],
    path: Path,
) -> None:
    import torch

    # What a function takes as *others has its shapes in a tuple of its own.
    spread = 2 if "input_ids" in names and "encoder_hidden_states" in names else 1
    shapes = (*dims[:spread], tuple(dims[spread:])) if len(inputs) > spread else dims
    with quiet(0), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module,
            inputs,
            None,
            dynamo=True,
            dynamic_shapes=shapes,
            input_names=names,
            output_names=outputs,
            opset_version=_OPSET,
            verbose=False,
        )
    assert program is not None
    graph = program.model
    clean_up(graph)
    for value in [v for v in graph.graph.inputs if not v.uses()]:
        graph.graph.inputs.remove(value)  # the keys and values of the encoder's states are in the cache
    _save(graph, path)


def _save(model: ir.Model, path: Path) -> None:
    size = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None)
    io.save(model, path, external=size > _EXTERNAL_ABOVE)


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
    kept.outputs[:] = outputs
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
