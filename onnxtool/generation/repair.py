"""What the graph builders get wrong, mended before anything is proven."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx

from onnxtool import __version__
from onnxtool.errors import InputError
from onnxtool.generation.bundle import CONFIG
from onnxtool.generation.reference import SourceGenerator
from onnxtool.model.io import external_files, read_proto, write_atomic
from onnxtool.model.provenance.digest import DIGEST_KEY, file_digest, seal
from onnxtool.model.provenance.metadata import HISTORY_KEY

# Decoders that the onnxruntime-genai runtime knows by name and runs alike; any other goes under the first one's name.
_RUNTIME_TYPES = (
    *("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi", "phi3", "phi3small", "olmo"),
    *("granite", "smollm3", "nemotron", "internlm2", "chatglm", "ernie4_5", "gptoss", "hunyuan_v1_dense", "lfm2"),
)


def repair_config(config: dict[str, Any], reference: SourceGenerator) -> None:
    """Builders guess the context and leave out ends of text; the source says both.

    Raises:
        InputError: not what a builder writes.
    """
    try:
        model, search = config["model"], config["search"]
        model["context_length"] = reference.context
        if model.get("type") not in _RUNTIME_TYPES:
            model["type"] = _RUNTIME_TYPES[0]
        search["max_length"] = reference.context
        ends = list(reference.eos)
        model["eos_token_id"] = ends[0] if len(ends) == 1 else ends
        for name in ("bos_token_id", "pad_token_id"):
            found = getattr(reference.tokenizer, name, None)
            if model.get(name) is None and found is not None:
                model[name] = int(found)
        if model.get("pad_token_id") is None and ends:
            model["pad_token_id"] = ends[0]
    except (KeyError, TypeError) as error:
        raise InputError(f"the builder's {CONFIG} has no {error}.") from error


def repair_shapes(path: Path) -> None:
    """Forget the shapes that are noted for constants: onnxruntime-genai 0.18 notes some of rank 1 as of rank 0."""
    proto = read_proto(path)
    constants = {name for node in proto.graph.node if node.op_type == "Constant" for name in node.output}
    kept = [v for v in proto.graph.value_info if v.name not in constants]
    if len(kept) != len(proto.graph.value_info):
        del proto.graph.value_info[:]
        proto.graph.value_info.extend(kept)
        write_atomic(path, proto.SerializeToString())


def seal_model(path: Path, step: dict[str, Any]) -> None:
    """Write the step that made a model into its metadata, and the digest of it and its external data at its end."""
    proto = read_proto(path)
    for key in (HISTORY_KEY, DIGEST_KEY):
        for entry in [e for e in proto.metadata_props if e.key == key]:
            proto.metadata_props.remove(entry)
    steps = [{**step, "onnxtool": __version__}]
    proto.metadata_props.append(
        onnx.StringStringEntryProto(key=HISTORY_KEY, value=json.dumps(steps, sort_keys=True, ensure_ascii=False))
    )
    body = proto.SerializeToString()
    write_atomic(path, body + seal(body, [file_digest(f) for f in external_files(path)]))
