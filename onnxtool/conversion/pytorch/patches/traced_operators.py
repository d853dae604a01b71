"""Operators that torch's older exporter gets wrong or lacks, spelled with plain ones while a module is traced."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from onnxtool.conversion.patches import Patch, replaced
from onnxtool.conversion.pytorch.patches import padded_encoder

# The exporter writes attention from this opset on.
_ATTENTION = 14
_OWN_ATTENTION = functional.scaled_dot_product_attention
_UNFLATTEN = torch.Tensor.unflatten
_EQUAL = torch.equal


@contextmanager
def _attended(module: torch.nn.Module, opset: int) -> Iterator[None]:
    attention = _attention if opset < _ATTENTION else _attention_of_groups
    # A mode of torch's would be simpler, but hides the lines of the model from the tracer's warnings.
    places = [(names, name) for names in _namespaces(module) for name, v in [*names.items()] if v is _OWN_ATTENTION]
    try:
        for names, name in places:
            names[name] = attention
        yield
    finally:
        for names, name in places:
            names[name] = _OWN_ATTENTION


@contextmanager
def _without_fused_attention(_module: torch.nn.Module, _opset: int) -> Iterator[None]:
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


@contextmanager
def _replaced(name: str, function: Callable[..., object], _module: torch.nn.Module, _opset: int) -> Iterator[None]:
    with replaced(torch.Tensor, name, function), replaced(torch, name, function):
        yield


def _namespaces(module: torch.nn.Module) -> list[dict[str, Any]]:
    """Globals of all modules loaded, and of the files in which the parts of the model stand, which may be none."""
    found = [getattr(m, "__dict__", None) for m in list(sys.modules.values()) if m is not sys.modules[__name__]]
    kinds = {kind for part in module.modules() for kind in type(part).__mro__}
    found += [getattr(vars(kind).get("forward"), "__globals__", None) for kind in kinds]
    return list({id(names): names for names in found if isinstance(names, dict)}.values())


def _unflatten(tensor: torch.Tensor, dim: Any, sizes: Any) -> torch.Tensor:
    if not isinstance(dim, int):  # a named dim
        return _UNFLATTEN(tensor, dim, sizes)
    axis = dim % tensor.dim()
    return tensor.reshape((*tensor.shape[:axis], *sizes, *tensor.shape[axis + 1 :]))


def _equal(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """torch.equal, with the warning that the tracer gives for all other conditions on values."""
    text = "torch.equal converts a tensor to a Python boolean"
    warnings.warn(text, torch.jit.TracerWarning, stacklevel=2)
    return bool(_EQUAL(tensor, other))


def _attention_of_groups(*args: Any, **kwargs: Any) -> torch.Tensor:
    """Heads that share keys are what the exporter cannot write at any opset."""
    return (_attention if kwargs.get("enable_gqa") else _OWN_ATTENTION)(*args, **kwargs)


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,  # noqa: ARG001  (the signature is torch's)
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """scaled_dot_product_attention as its documentation spells it; nothing is dropped, since nothing is trained."""
    if enable_gqa:
        repeats = query.size(-3) // key.size(-3)
        key, value = key.repeat_interleave(repeats, -3), value.repeat_interleave(repeats, -3)
    scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.size(-1)) if scale is None else scale)
    if is_causal:
        rows, columns = (torch.arange(t.size(-2), device=t.device) for t in (query, key))
        attn_mask = columns[None, :] <= rows[:, None]
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        scores = scores + attn_mask
    if attn_mask is None or attn_mask.dtype != torch.bool:
        return scores.softmax(-1) @ value
    # Where a row of the mask hides everything, torch gives zeros.
    weights = scores.masked_fill(~attn_mask, -math.inf).softmax(-1)
    return weights.masked_fill(~attn_mask, 0.0) @ value


GROUPED_ATTENTION = Patch(
    "torch",
    "",
    "torch's tracing exporter has no attention of heads that share keys, and below opset 14 none at all",
    _attended,
)
FUSED_ATTENTION = Patch(
    "torch",
    "",
    "torch's tracing exporter has no form of the one operator that attention layers call in evaluation mode",
    _without_fused_attention,
)
UNFLATTEN = Patch(
    "torch", "", "torch's tracing exporter has no unflatten below opset 13", partial(_replaced, "unflatten", _unflatten)
)
EQUAL = Patch("torch", "", "tracing torch.equal warns of nothing", partial(_replaced, "equal", _equal))
# Given the module that is traced, and the opset.
PATCHES = (padded_encoder.PATCH, GROUPED_ATTENTION, FUSED_ATTENTION, UNFLATTEN, EQUAL)
