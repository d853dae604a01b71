"""Attention of the runtime (com.microsoft), as our passes write it: no past, no lengths, no packed inputs."""

from __future__ import annotations

import math

import numpy as np

from onnxtool.equality.certificate.interpreter import Interpreter
from onnxtool.equality.certificate.values import Array, Attributes, Item, NotCoveredError, UndefinedError, Value


def multi_head_attention(m: Interpreter, i: list[Item], a: Attributes) -> Value:
    """Softmax(query . key * scale + bias) . value, with the heads side by side: [batch, length, heads * width]."""
    given = [*i, *[None] * 6][:6]
    if any(v is None or v.data.ndim != 3 for v in given[:3]) or any(v is not None for v in (*given[3:5], *i[6:])):
        raise NotCoveredError("MultiHeadAttention with packed inputs, a mask of keys or a past")
    query, key, value = (m.elements(v) for v in given[:3])
    return m.symbol(_attention(m, a, (query, key, value), given[5]), i[0].dtype)


def packed_attention(m: Interpreter, i: list[Item], a: Attributes) -> Value:
    """MultiHeadAttention of Split(x . weight + bias)."""
    x, weight, bias, mask, past, added = [*i, *[None] * 6][:6]
    if bias is None or mask is not None or past is not None or len(i) > 6:
        raise NotCoveredError("Attention with a mask of keys or a past, or without a bias")
    f = m.field
    m.meet(m.elements(x), -1)
    query, key, value = np.split(f.add(f.matmul(m.elements(x), m.elements(weight)), m.elements(bias)), 3, -1)
    return m.symbol(_attention(m, a, (query, key, value), added), x.dtype)


def _attention(m: Interpreter, a: Attributes, given: tuple[Array, Array, Array], bias: Value | None) -> Array:
    f, heads = m.field, a["num_heads"]
    query, key, value = given

    def apart(x: Array) -> Array:
        return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).transpose(0, 2, 1, 3)

    if a.get("scale", 0.0):
        factor = m.factor(a, "scale")
    else:
        width = query.shape[2] // heads
        root = math.isqrt(width)
        factor = f.inverse(f.from_int(root) if root * root == width else f.sqrt(f.from_int(width)))
    scores = f.mul(f.matmul(apart(query), np.swapaxes(apart(key), -1, -2)), factor)
    if bias is not None:
        scores = f.add(scores, m.elements(bias))
    mixed = f.matmul(f.softmax(scores, -1), apart(value)).transpose(0, 2, 1, 3)
    return mixed.reshape(*mixed.shape[:2], -1)


def rotary_embedding(m: Interpreter, i: list[Item], a: Attributes) -> Value:
    """Of each head [first, second]: [first * cos - second * sin, second * cos + first * sin], from a position on."""
    f, x, (cos, sin) = m.field, m.elements(i[0]), (m.elements(v) for v in i[2:4])
    first = m.numbers(i[1], "the position of RotaryEmbedding")
    if first.size != 1 or a.get("num_heads", 0) or a.get("rotary_embedding_dim", 0):
        raise NotCoveredError("RotaryEmbedding with positions for each sample, or of a part of each head")
    half = cos.shape[1]
    heads = x.reshape(*x.shape[:2], -1, 2 * half) if x.ndim == 3 else x.transpose(0, 2, 1, 3)
    start, length = int(first.reshape(())), heads.shape[1]
    if length > len(cos) - start:
        raise UndefinedError("RotaryEmbedding of more positions than there are")
    cos, sin = (part[start : start + length, None] for part in (cos, sin))
    left, right = heads[..., :half], heads[..., half:]
    turned = [f.sub(f.mul(left, cos), f.mul(right, sin)), f.add(f.mul(right, cos), f.mul(left, sin))]
    found = f.concat(turned, -1)
    return m.symbol(found.reshape(x.shape) if x.ndim == 3 else found.transpose(0, 2, 1, 3), i[0].dtype)


__all__ = ["multi_head_attention", "packed_attention", "rotary_embedding"]
