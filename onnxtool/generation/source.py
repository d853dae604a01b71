"""Where a language model comes from: a Hugging Face folder or a GGUF file. Looks, never executes."""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxtool.errors import InputError, UnsafeError, UnsupportedError, needs_extra, one_line
from onnxtool.model.json_file import read_json
from onnxtool.model.safety.declared_sizes import verify_counts, verify_declared_sizes

TASK = "text-generation"
_GGUF = b"GGUF"
_DECODERS = ("ForCausalLM", "LMHeadModel")
_INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class TextModelSource:
    """A language model's folder or file that has been looked at.

    Attributes:
        path: the folder, or the GGUF file.
        gguf: it is a GGUF file.
        config: its config.json; empty for a GGUF file.
        pickled: its weights are pickled.
    """

    path: Path
    gguf: bool
    config: dict[str, Any]
    pickled: bool = False


def is_gguf(path: Path) -> bool:
    """True for a file that begins as GGUF files do, or is named as one."""
    try:
        with open(path, "rb") as file:
            return file.read(4) == _GGUF or path.suffix.lower() == ".gguf"
    except OSError:
        return False


def is_text_decoder(path: Path) -> bool:
    """True for a GGUF file, and for a folder whose config.json names a decoder that generates text."""
    if path.is_file():
        return is_gguf(path)
    try:
        config = json.loads((path / "config.json").read_bytes())
        names = config.get("architectures") or []
        return bool(names) and str(names[0]).endswith(_DECODERS) and not config.get("is_encoder_decoder")
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return False


def wants_bundle(source: Path | None, output: Path, task: str | None) -> bool:
    """True where convert is to write a bundle: for a decoder or with the task, unless the output is an .onnx file."""
    if source is None or output.suffix == ".onnx":
        return False
    return task == TASK or (task is None and is_text_decoder(source))


def open_source(path: Path, *, trust: bool = False) -> TextModelSource:
    """Look at a folder or file before anything loads it.

    Raises:
        InputError: nothing there, damaged, a file missing.
        UnsafeError: pickled weights or code of its own, without `trust`.
        UnsupportedError: not a decoder that generates text.
    """
    if path.is_file():
        if not is_gguf(path):
            raise InputError(f"{path}: neither a Hugging Face folder nor a GGUF file.")
        _verify_gguf(path)
        return TextModelSource(path, True, {})
    if not path.is_dir():
        raise InputError(f"{path}: no such file or folder.")
    config = read_json(path / "config.json")
    verify_code(path, config, trust)
    names = config.get("architectures")
    if not isinstance(names, list) or not names or not str(names[0]).endswith(_DECODERS):
        raise UnsupportedError(
            f"{path}: its config.json names {names!r}, which is not a decoder that generates text "
            f"(a class ending in {' or '.join(_DECODERS)})."
        )
    pickled = verify_weights(path)
    verify_declared_sizes(path / "config.json", config, path)
    verify_unpickled(path, pickled, trust)
    if not any((path / n).is_file() for n in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        raise InputError(f"{path}: has no tokenizer (tokenizer.json, tokenizer.model or vocab.json).")
    return TextModelSource(path, False, config, pickled)


def verify_code(path: Path, config: dict[str, Any], trust: bool) -> None:
    """Code that a folder brings is not run.

    Raises:
        UnsafeError: its config.json names some, without `trust`.
    """
    if config.get("auto_map") and not trust:
        raise UnsafeError(f"{path}: this model brings its own Python code. Pass --trust if you trust it.")


def verify_unpickled(path: Path, pickled: bool, trust: bool) -> None:
    """Pickled weights are not loaded.

    Raises:
        UnsafeError: they are pickled, without `trust`.
    """
    if pickled and not trust:
        raise UnsafeError(
            f"{path}: its weights are pickled (.bin), which can run code when loaded. Pass --trust if you trust them, "
            "or save them as safetensors."
        )


def verify_weights(folder: Path) -> bool:
    """Every file of weights is there and whole; True when they are pickled."""
    index = folder / _INDEX
    if index.is_file():
        places = read_json(index).get("weight_map")
        if not isinstance(places, dict) or not places:
            raise InputError(f"{index}: has no weight_map.")
        shards = sorted({str(v) for v in places.values()})
        for shard in shards:
            if os.path.basename(shard) != shard:
                raise UnsafeError(f"{index}: the shard {shard!r} lies outside the folder.")
            if not (folder / shard).is_file():
                raise InputError(f"{folder}: the shard {shard} is missing; its index names {len(shards)}.")
    else:
        shards = [f.name for f in folder.glob("*.safetensors")]
    for shard in shards:
        _verify_safetensors(folder / shard)
    if shards:
        return False
    if any(folder.glob("*.bin")):
        return True
    raise InputError(f"{folder}: has no weights (model.safetensors, or shards with {_INDEX}).")


def _verify_safetensors(path: Path) -> None:
    with needs_extra(str(path), "safetensors", "generation"):
        from safetensors import SafetensorError, safe_open
    try:
        with safe_open(path, "np"):
            pass
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: damaged or cut off ({one_line(error, 200)}).") from error


def _verify_gguf(path: Path) -> None:
    """The header is sound, and every tensor's bytes are there.

    Source of the layout: the GGUF specification of the ggml project, version 3.
    """
    size = path.stat().st_size
    with open(path, "rb") as file:
        head = file.read(24)
    if len(head) < 24 or head[:4] != _GGUF:
        raise InputError(f"{path}: not a GGUF file.")
    version, tensors, pairs = struct.unpack("<IQQ", head[4:])
    if version not in (2, 3):
        raise UnsupportedError(f"{path}: GGUF version {version} is not supported; 2 and 3 are.")
    if 0 in (tensors, pairs) or tensors > size // 24 or pairs > size // 12:
        raise InputError(f"{path}: damaged: a header of {tensors} tensors and {pairs} values in {size} bytes.")
    with needs_extra(str(path), "gguf", "generation"):
        import gguf
    try:
        reader = gguf.GGUFReader(str(path))
        end = max(int(t.data_offset) + int(t.n_bytes) for t in reader.tensors)
        declared = {name: field.contents() for name, field in reader.fields.items() if name.endswith("_count")}
    except Exception as error:
        line = one_line(error, 150)
        raise InputError(f"{path}: damaged or cut off (gguf: {line}).") from error
    if end > size:
        raise InputError(f"{path}: cut off: its tensors end at byte {end}, the file at {size}.")
    verify_counts(path, declared, tensors=len(reader.tensors), size=size)
