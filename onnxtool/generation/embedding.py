"""sentence-transformers folders: transformer, pooling and normalization as one ONNX file."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from onnxtool.conversion.convert import convert
from onnxtool.conversion.quiet import quiet
from onnxtool.errors import InputError, UnsafeError, UnsupportedError, needs_extra, one_line
from onnxtool.generation.source import verify_code, verify_unpickled
from onnxtool.model.json_file import read_json
from onnxtool.model.safety.declared_sizes import verify_declared_sizes
from onnxtool.options.convert import ConvertOptions
from onnxtool.report.convert import ConvertReport
from onnxtool.runtime.worker.isolation import ResourceAllowance, guarded

OUTPUT = "sentence_embedding"
_MODULES = "modules.json"
_PACE = ResourceAllowance(seconds_per_byte=2e-5, most_seconds=3600.0, bytes_per_byte=40.0, scale=30.0)
_POOLINGS = ("cls_token", "mean_tokens", "max_tokens", "lasttoken", "mean_sqrt_len_tokens")
_TEXTS = (
    "A short sentence.",
    "Another one, which is a good deal longer than the first; it has 23 words or so, and ends.",
)


def is_embedding_model(path: Path | None) -> bool:
    """True for a folder as sentence-transformers writes it."""
    return path is not None and (path / _MODULES).is_file()


def convert_embedding_model(
    folder: Path, output: Path, options: ConvertOptions, *, rtol: float = 1e-3, atol: float = 1e-5
) -> ConvertReport:
    """Convert a sentence-transformers folder into one model whose output is `sentence_embedding`.

    Args:
        folder: with modules.json.
        output: the .onnx file to write.
        options: as of `convert`.
        rtol, atol: tolerance of the comparison with PyTorch.

    Raises:
        InputError: damaged.
        UnsupportedError: a module or a pooling that is not known.
        UnsafeError: pickled weights or code of its own, without `options.trust`.
        MissingExtraError: transformers is not installed.
    """
    size = sum(f.stat().st_size for f in folder.rglob("*.safetensors"))
    with guarded("loading the embedding model", size, pace=_PACE):
        module, sample, notes = _load(folder, options.trust)
    text = ("batch", "sequence")
    options = replace(
        options,
        input_shapes=dict.fromkeys(sample, text),
        sample=sample,
        input_names=tuple(sample),
        output_names=(OUTPUT,),
    )
    with guarded("converting the embedding model", size, pace=_PACE):
        report = convert(module, output, options=options, rtol=rtol, atol=atol)
    return replace(report, source=str(folder), form=f"sentence-transformers folder ({', '.join(notes)})")


def _load(folder: Path, trust: bool) -> tuple[Any, dict[str, np.ndarray], list[str]]:
    with needs_extra(str(folder), "transformers", "generation"):
        import torch
        import transformers
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    stages = _stages(folder)
    main = stages[0][1]
    config = read_json(main / "config.json")
    verify_code(folder, config, trust)
    verify_unpickled(folder, not any(main.glob("*.safetensors")), trust)
    verify_declared_sizes(main / "config.json", config, main)
    try:
        with quiet(0):
            transformers.logging.set_verbosity_error()
            model = transformers.AutoModel.from_pretrained(str(main), local_files_only=True, dtype=torch.float32)
            tokenizer = transformers.AutoTokenizer.from_pretrained(str(main), local_files_only=True)
    except Exception as error:
        line = one_line(error, 250)
        raise InputError(f"{folder}: transformers cannot load this ({type(error).__name__}: {line}).") from error
    after: list[Any] = []
    names = ["transformer"]
    for kind, place in stages[1:]:
        layer, name = _layer(folder, kind, place)
        after.append(layer)
        names.append(name)
    encoded = tokenizer(list(_TEXTS), padding=True)
    takes = ("input_ids", "attention_mask", "token_type_ids")
    sample = {n: np.asarray(encoded[n], np.int64) for n in takes if n in encoded}
    return _module(model, after), sample, names


def _module(model: Any, after: list[Any]) -> Any:
    import torch

    class EmbeddingModel(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.transformer, self.after = model, torch.nn.ModuleList(after)

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any = None) -> Any:
            kinds = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
            return self._embed(attention_mask, input_ids=input_ids, **kinds)

        def _embed(self, mask: Any, **ids: Any) -> Any:
            value = self.transformer(attention_mask=mask, **ids).last_hidden_state
            for layer in self.after:
                value = layer(value, mask)
            return value

    return EmbeddingModel().eval()


def _layer(folder: Path, kind: str, place: Path) -> tuple[Any, str]:
    """One module after the transformer; it takes the value so far and the attention mask."""
    import torch

    class Pooling(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, mode: str) -> None:
            super().__init__()
            self.mode = mode

        def forward(self, value: Any, mask: Any) -> Any:
            weights = mask.unsqueeze(-1).to(value.dtype)
            if self.mode == "cls_token":
                return value[:, 0]
            if self.mode == "max_tokens":
                return value.masked_fill(weights == 0, -1e9).max(dim=1).values
            if self.mode == "lasttoken":
                last = mask.sum(dim=1).to(torch.int64) - 1
                return value.gather(1, last.clamp(min=0)[:, None, None].expand(-1, 1, value.shape[-1]))[:, 0]
            count = weights.sum(dim=1).clamp(min=1e-9)
            return (value * weights).sum(dim=1) / (count if self.mode == "mean_tokens" else count.sqrt())

    class Normalize(torch.nn.Module):  # type: ignore[misc]
        def forward(self, value: Any, _mask: Any) -> Any:
            return torch.nn.functional.normalize(value, p=2, dim=1)

    class Dense(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, linear: Any, activation: Any) -> None:
            super().__init__()
            self.linear, self.activation = linear, activation

        def forward(self, value: Any, _mask: Any) -> Any:
            return self.activation(self.linear(value))

    if kind == "Normalize":
        return Normalize(), "normalized"
    config = read_json(place / "config.json")
    if kind == "Pooling":
        mode = _pooling(folder, config)
        return Pooling(mode), f"{mode} pooling"
    if kind == "Dense":
        return Dense(_linear(place, config), _activation(folder, config)), "dense"
    raise UnsupportedError(f"{folder}: its module {kind!r} is not supported (Transformer, Pooling, Dense, Normalize).")


def _pooling(folder: Path, config: dict[str, Any]) -> str:
    found = [m for m in _POOLINGS if config.get(f"pooling_mode_{m}")]
    unknown = [k for k, v in config.items() if k.startswith("pooling_mode_") and v and k[13:] not in _POOLINGS]
    if unknown or len(found) != 1:
        raise UnsupportedError(
            f"{folder}: the pooling {unknown or found} is not supported; one of {list(_POOLINGS)} is."
        )
    return found[0]


def _linear(place: Path, config: dict[str, Any]) -> Any:
    import torch
    from safetensors.torch import load_file

    path = place / "model.safetensors"
    if not path.is_file():
        raise InputError(f"{place}: has no model.safetensors.")
    linear = torch.nn.Linear(int(config["in_features"]), int(config["out_features"]), bool(config.get("bias", True)))
    weights = {k.removeprefix("linear."): v.float() for k, v in load_file(path).items()}
    try:
        linear.load_state_dict(weights)
    except RuntimeError as error:
        raise InputError(f"{path}: {one_line(error, 200)}") from error
    return linear


def _activation(folder: Path, config: dict[str, Any]) -> Any:
    import torch

    name = str(config.get("activation_function", "torch.nn.modules.activation.Tanh")).rpartition(".")[2]
    known = {"Tanh": torch.nn.Tanh, "Identity": torch.nn.Identity, "ReLU": torch.nn.ReLU, "GELU": torch.nn.GELU}
    if name not in known:
        raise UnsupportedError(f"{folder}: the activation {name!r} is not supported.")
    return known[name]()


def _stages(folder: Path) -> list[tuple[str, Path]]:
    """Kind and folder of each module, in order; the first is the transformer."""
    try:
        listed = json.loads((folder / _MODULES).read_bytes())
        stages = [(str(m["type"]).rpartition(".")[2], str(m.get("path", ""))) for m in listed]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{folder / _MODULES}: not a list of modules ({error}).") from error
    for _, place in stages:
        if not (folder / place).resolve().is_relative_to(folder.resolve()):
            raise UnsafeError(f"{folder / _MODULES}: the module {place!r} lies outside the folder.")
    if not stages or stages[0][0] != "Transformer":
        raise UnsupportedError(f"{folder}: its first module is not a Transformer.")
    return [(kind, folder / place) for kind, place in stages]
