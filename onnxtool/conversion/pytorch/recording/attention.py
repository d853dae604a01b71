"""Attention as torch computes it, in plain operators: zeros where a mask leaves nothing to attend to."""

from __future__ import annotations

import torch


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,  # noqa: ARG001  (the signature is torch's; nothing is dropped, since nothing is trained)
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """torch.nn.functional.scaled_dot_product_attention: softmax(q k^T scale + mask) v.

    Args:
        query: [..., queries, width].
        key, value: [..., keys, width], of fewer heads where `enable_gqa` is set.
        attn_mask: broadcast to [..., queries, keys]; False or -inf leaves a key out.
        dropout_p: not used.
        is_causal: a query sees the keys up to its own place.
        scale: 1 / sqrt(width) unless given.
        enable_gqa: groups of heads share keys and values.

    Returns:
        [..., queries, width]. Rows of which the mask leaves no key are zero times the values, as in torch's kernels
        since 2.5, where a softmax alone would give NaN.
    """
    if enable_gqa:
        repeats = query.size(-3) // key.size(-3)
        key, value = key.repeat_interleave(repeats, -3), value.repeat_interleave(repeats, -3)
    root = (query.size(-1) ** -0.5 if scale is None else scale) ** 0.5
    scores = (query * root) @ (key.transpose(-2, -1) * root)
    nothing, hidden = (torch.full((), number, dtype=scores.dtype) for number in (0.0, -torch.inf))
    if is_causal:
        rows, columns = (torch.arange(t.size(-2), device=t.device) for t in (query, key))
        scores = scores + torch.where(columns[None, :] <= rows[:, None], nothing, hidden)
    if attn_mask is None:
        return scores.softmax(-1) @ value
    if attn_mask.dtype == torch.bool:
        attn_mask = torch.where(attn_mask, nothing, hidden)
    empty = attn_mask.amax(-1, keepdim=True) == -torch.inf
    mixed = (scores + torch.where(empty, nothing, attn_mask)).softmax(-1) @ value  # no 0 / 0 on the way
    return mixed * torch.where(empty, nothing, torch.ones((), dtype=scores.dtype))
