"""Folders of sentence-transformers: transformer, pooling and what follows as one module.

What each module computes is that of the sentence-transformers library (Reimers and Gurevych, Sentence-BERT, 2019),
which need not be installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from onnxtool.conversion.pytorch.transformers import load_pretrained
from onnxtool.conversion.source import Source
from onnxtool.errors import InputError, UnsafeError, UnsupportedError, one_line
from onnxtool.model.json_file import read_json
from onnxtool.model.spec import Dim
from onnxtool.options.convert import ConvertOptions

MODULES = "modules.json"
_ACTIVATIONS = {"Tanh": torch.nn.Tanh, "Identity": torch.nn.Identity, "ReLU": torch.nn.ReLU, "GELU": torch.nn.GELU}


class EmbeddingModel(torch.nn.Module):  # type: ignore[misc]
    """Ids and mask of texts, both [batch, sequence], to `sentence_embedding`, [batch, width]."""

    def __init__(self, transformer: torch.nn.Module, after: Sequence[torch.nn.Module]) -> None:
        super().__init__()
        self.transformer, self.after = transformer, torch.nn.ModuleList(after)

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor | None = None
    ) -> dict[str, torch.Tensor]:
        """One pass; token_type_ids are zeros where they are not given."""
        segments = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        value = self.transformer(input_ids=input_ids, attention_mask=attention_mask, **segments).last_hidden_state
        for layer in self.after:
            value = layer(value, attention_mask) if isinstance(layer, Pooling) else layer(value)
        return {"sentence_embedding": value}


class Pooling(torch.nn.Module):  # type: ignore[misc]
    """One vector of those of a text's tokens, or several side by side."""

    def __init__(self, modes: Sequence[str]) -> None:
        super().__init__()
        self.modes = modes

    def forward(self, value: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """[batch, sequence, width] and the mask to [batch, width times modes]."""
        weights = mask.unsqueeze(-1).to(value.dtype)
        return torch.cat([_POOLINGS[mode](value, weights) for mode in self.modes], dim=1)


def _mean(value: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return (value * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-9)


def _positions(weights: torch.Tensor) -> torch.Tensor:
    return weights * torch.arange(1, weights.shape[1] + 1, dtype=weights.dtype)[None, :, None]


def _last(value: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    index = _positions(weights).argmax(dim=1, keepdim=True)
    return (value * weights).gather(1, index.expand(-1, 1, value.shape[-1]))[:, 0]


# In the order in which the library puts them side by side.
_POOLINGS: Mapping[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "cls_token": lambda value, _: value[:, 0],
    "max_tokens": lambda value, weights: value.masked_fill(weights == 0, -1e9).max(dim=1).values,
    "mean_tokens": _mean,
    "mean_sqrt_len_tokens": lambda value, weights: (
        (value * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-9).sqrt()
    ),
    "weightedmean_tokens": lambda value, weights: _mean(value, _positions(weights)),
    "lasttoken": _last,
}


class Normalize(torch.nn.Module):  # type: ignore[misc]
    """Each vector divided by its length."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Shapes stay."""
        return torch.nn.functional.normalize(value, p=2, dim=1)


def load_embedding_model(
    source: Source, options: ConvertOptions, notes: list[str]
) -> tuple[EmbeddingModel, dict[str, tuple[Dim, ...]]]:
    """Load transformer, pooling and what follows.

    Returns:
        The module, and the shapes of its inputs.

    Raises:
        InputError: damaged.
        UnsupportedError: a module or a pooling that is not known.
        UnsafeError: a module outside the folder, or code of its own, without `options.trust`.
        MissingExtraError: transformers is not installed.
    """
    modules = _modules(source)
    model, shapes = load_pretrained(transformer_of(source), replace(options, task="feature-extraction"), notes)
    if getattr(model.config, "is_encoder_decoder", False):
        model = model.get_encoder()
        shapes = {name: shape for name, shape in shapes.items() if not name.startswith("decoder_")}
    after = [_module(kind, place) for kind, place in modules[1:] if kind != "Dropout"]
    return EmbeddingModel(model, after), shapes


def transformer_of(source: Source) -> Source:
    """The folder of its transformer. Errors as of `load_embedding_model`."""
    place = _modules(source)[0][1]
    read_json(place / "config.json")
    return Source(place)


def _modules(source: Source) -> list[tuple[str, Path]]:
    """Kind and folder of each module, in order; the first is the transformer."""
    folder = source.path
    assert folder is not None
    try:
        modules = [(str(m["type"]).rpartition(".")[2], str(m.get("path", ""))) for m in source.json(MODULES)]
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{folder / MODULES}: not a list of modules ({error}).") from error
    for _, place in modules:
        if not (folder / place).resolve().is_relative_to(folder.resolve()):
            raise UnsafeError(f"{folder / MODULES}: the module {place!r} lies outside the folder.")
    if not modules or modules[0][0] != "Transformer":
        raise UnsupportedError(f"{folder}: its first module is not a Transformer.")
    return [(kind, folder / place) for kind, place in modules]


def _module(kind: str, place: Path) -> torch.nn.Module:
    if kind == "Normalize":
        return Normalize()
    if kind not in ("Pooling", "Dense"):
        raise UnsupportedError(
            f"{place}: a module {kind!r} is not supported; Transformer, Pooling, Dense, Dropout and Normalize are."
        )
    config = read_json(place / "config.json")
    return _pooling(place, config) if kind == "Pooling" else _dense(place, config)


def _pooling(place: Path, config: Mapping[str, Any]) -> Pooling:
    asked = {key.removeprefix("pooling_mode_") for key, on in config.items() if key.startswith("pooling_mode_") and on}
    unknown = sorted(asked - set(_POOLINGS))
    if unknown or not asked:
        raise UnsupportedError(f"{place}: the pooling {unknown} is not supported; {', '.join(_POOLINGS)} are.")
    return Pooling([mode for mode in _POOLINGS if mode in asked])


def _dense(place: Path, config: Mapping[str, Any]) -> torch.nn.Module:
    from safetensors.torch import load_file

    name = str(config.get("activation_function", "torch.nn.modules.activation.Tanh")).rpartition(".")[2]
    if name not in _ACTIVATIONS:
        raise UnsupportedError(f"{place}: the activation {name!r} is not supported.")
    path = place / "model.safetensors"
    if not path.is_file():
        raise InputError(f"{place}: has no model.safetensors.")
    try:
        linear = torch.nn.Linear(
            int(config["in_features"]), int(config["out_features"]), bool(config.get("bias", True))
        )
        linear.load_state_dict({k.removeprefix("linear."): v.float() for k, v in load_file(path).items()})
    except (RuntimeError, KeyError, ValueError, TypeError) as error:
        raise InputError(f"{path}: {one_line(error, 200)}") from error
    return torch.nn.Sequential(linear, _ACTIVATIONS[name]())
