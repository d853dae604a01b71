"""Operators that torch's older exporter gets wrong or lacks, spelled with plain ones while a module is traced."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from onnxtool.conversion.patches import Patch, replaced
from onnxtool.conversion.pytorch.patches import (
    distributions,
    growing_tables,
    padded_encoder,
    projected_lstm,
    recurrent_shapes,
    sizes,
    whole_steps,
)
from onnxtool.conversion.pytorch.recording.attention import attention

_OWN_ATTENTION = functional.scaled_dot_product_attention
_UNFLATTEN = torch.Tensor.unflatten
_EQUAL = torch.equal


@contextmanager
def _attended(module: torch.nn.Module, _opset: int) -> Iterator[None]:
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
    found += sizes.namespaces_of(module)
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


ATTENTION = Patch(
    "torch",
    "",
    "torch's tracing exporter has no attention below opset 14, none of heads that share keys, and NaN where a mask of "
    "-inf leaves nothing",
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
# Given the module that is exported, and the opset; those of modules serve either exporter.
OF_MODULES = (
    padded_encoder.PATCH,
    padded_encoder.CAUSAL,
    projected_lstm.PATCH,
    recurrent_shapes.PATCH,
    growing_tables.PATCH,
    whole_steps.PATCH,
    sizes.FUNCTIONS,
    distributions.PATCH,
)
PATCHES = (*OF_MODULES, ATTENTION, FUSED_ATTENTION, UNFLATTEN, EQUAL)
