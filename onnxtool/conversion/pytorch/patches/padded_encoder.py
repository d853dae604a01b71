"""nn.TransformerEncoder with a padding mask: torch's fused kernels give zeros at padded places, its export does not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from onnxtool.conversion.patches import Patch, replaced

_FORWARD = nn.TransformerEncoder.forward


@contextmanager
def _padded_with_zeros(_module: nn.Module, _opset: int) -> Iterator[None]:
    with replaced(nn.TransformerEncoder, "forward", _forward):
        yield


def _forward(
    encoder: nn.TransformerEncoder,
    src: torch.Tensor,
    mask: torch.Tensor | None = None,
    src_key_padding_mask: torch.Tensor | None = None,
    is_causal: bool | None = None,
) -> torch.Tensor:
    """The layers one after the other, then zeros where the fused kernels have them, then the last normalization."""
    norm, fast = encoder.norm, torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    encoder.norm = None
    try:
        output = _FORWARD(encoder, src, mask, src_key_padding_mask, is_causal)
    finally:
        encoder.norm = norm
        torch.backends.mha.set_fastpath_enabled(fast)
    nested = fast and getattr(encoder, "use_nested_tensor", False) and not encoder.layers[0].training
    if (
        src_key_padding_mask is not None
        and nested
        and mask is None
        and src.dim() == 3
        and not torch.is_autocast_enabled()
    ):
        padded = src_key_padding_mask != 0
        left = torch.ones((), dtype=torch.bool)
        if getattr(encoder, "mask_check", True):  # a mask with a gap takes the other way
            left = (padded[:, :-1] & ~padded[:, 1:]).sum() == 0  # not any(): the exporters' form is wrong of nothing
        output = torch.where((padded & left)[:, :, None], 0.0, output)
    return output if norm is None else norm(output)


@contextmanager
def _causal_where_said(_module: nn.Module, _opset: int) -> Iterator[None]:
    """A mask that the graph computes cannot be read while it is exported; that it is causal is a hint for kernels."""

    def said(mask: object, is_causal: bool | None = None, size: object = None) -> bool:
        del mask, size
        return is_causal is True

    with replaced(torch.nn.modules.transformer, "_detect_is_causal_mask", said):
        yield


CAUSAL = Patch("torch", "", "torch 2.13's decoder reads its mask to see whether it is causal", _causal_where_said)
PATCH = Patch(
    "torch", "", "torch exports the layers of nn.TransformerEncoder, which fill padded places", _padded_with_zeros
)
