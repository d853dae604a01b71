"""What a bundle is made of, and what it takes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx

from onnxtool.generation.bundle import Bundle
from onnxtool.generation.decoder import cache_bytes_per_token
from onnxtool.generation.tokenizer import BundleTokenizer
from onnxtool.model.io import read_proto
from onnxtool.report.bundle.inspect import BundleInspectReport

_CONTEXTS = (512, 2048, 8192, 32768, 131072)
_FLOATS = {"FLOAT": "float32", "FLOAT16": "float16", "BFLOAT16": "bfloat16"}


def inspect_bundle(folder: str | Path) -> BundleInspectReport:
    """Look at a bundle without running it.

    Raises:
        InputError, UnsafeError, ResourceError: not a sound bundle.
    """
    bundle = Bundle.open(folder)
    proto = read_proto(bundle.model)
    weights = _weights(proto)
    per_token = cache_bytes_per_token(bundle)
    contexts = sorted({c for c in _CONTEXTS if c < bundle.context} | {bundle.context})
    operators = Counter(f"{n.domain}.{n.op_type}".lstrip(".") for n in proto.graph.node)
    return BundleInspectReport(
        bundle=str(folder),
        type=str(bundle.config["model"].get("type", "")),
        layers=bundle.layers,
        heads=bundle.heads,
        kv_heads=bundle.kv_heads,
        head_size=bundle.head_size,
        hidden_size=bundle.hidden_size,
        vocabulary=bundle.vocabulary,
        context=bundle.context,
        eos=bundle.eos,
        chat_template=BundleTokenizer(bundle.folder).chat_template is not None,
        parameters=sum(weights.values()),
        weights=weights,
        operators=dict(operators.most_common()),
        model_bytes=bundle.model_bytes,
        cache_bytes_per_token=per_token,
        memory={c: bundle.model_bytes + c * per_token for c in contexts},
    )


def _weights(proto: onnx.ModelProto) -> dict[str, int]:
    """Number of weights in each format; scales, zero points and tables of positions do not count."""
    counts: Counter[str] = Counter()
    tensors = {t.name: t for t in proto.graph.initializer}
    counted: set[str] = set()
    for node in proto.graph.node:
        attributes = {a.name: a.i for a in node.attribute}
        if node.op_type == "MatMulNBits" and node.input[1] not in counted:
            counts[f"int{attributes.get('bits', 4)}"] += attributes["K"] * attributes["N"]
            counted.add(node.input[1])
        for place, name in enumerate(node.input):
            tensor = tensors.get(name)
            if tensor is None or name in counted or "cache" in name:
                continue
            form = _FLOATS.get(onnx.TensorProto.DataType.Name(tensor.data_type))
            if form is not None and not (node.op_type in ("MatMulNBits", "GatherBlockQuantized") and place > 1):
                size = 1
                for dim in tensor.dims:
                    size *= dim
                counts[form] += size
                counted.add(name)
    return dict(counts)
