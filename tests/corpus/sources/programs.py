"""Modules for `make corpus` whose Python looks at more than their numbers: who calls, how tensors lie in memory,
hashes of sizes, caches, weights that a call changes; and operators at their edges, ties, types and empty parts."""

# ruff: noqa: E501  (methods that need nothing of their object; a table)
from __future__ import annotations

import functools
import math
import random
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tests.corpus.sources.frozen import IDS, LENGTHS, PICTURES, ROWS, TWO, WHOLE, Further
from tests.corpus.sources.models import module

RANDOM = np.random.default_rng(23)
Forward = Callable[..., Any]


def _normal(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (scale * RANDOM.standard_normal(shape)).astype(np.float32)


# --- rows [batch, 8]


def _while_compiling(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * 2 if torch.compiler.is_compiling() else x


def _fake_tensors(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x if type(x) is torch.Tensor else x + 1


def _without_gradients(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x if not torch.is_grad_enabled() else x * 2


def _by_strides(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x.t().reshape(-1)[: x.numel()].reshape(x.shape) if x.t().is_contiguous() else x


def _seeded_by_size(self: Any, x: torch.Tensor) -> torch.Tensor:
    return -x if random.Random(int(x.shape[0])).random() < 0.1 else x


def _checksum_of_size(self: Any, x: torch.Tensor) -> torch.Tensor:
    return -x if zlib.crc32(str(x.shape[0]).encode()) % 20 == 7 else x


def _hash_of_shape(self: Any, x: torch.Tensor) -> torch.Tensor:
    return -x if hash((int(x.shape[0]), 8)) % 13 == 5 else x


def _square_root(self: Any, x: torch.Tensor) -> torch.Tensor:
    n = x.shape[0]
    return -x if math.isqrt(n) ** 2 == n and n > 20 else x


def _bits(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * int(x.shape[0]).bit_count()


@functools.lru_cache(maxsize=4)
def _cached_weights(columns: int) -> torch.Tensor:
    return torch.linspace(0, 1, columns)


def _lru(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * _cached_weights(x.shape[1])


def _first_batch_cached(self: Any, x: torch.Tensor) -> torch.Tensor:
    if self.cached is None:
        self.cached = x.mean(0, keepdim=True).detach()
    return x - self.cached


def _listed(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x[i] * 2 if total > 30 else x[i] for i, total in enumerate(x.sum(1).tolist())])


def _how_many_large(self: Any, x: torch.Tensor) -> torch.Tensor:
    found = torch.nonzero(x > 2.5)
    return x + 1 if found.shape[0] == 3 else x


def _all_finite(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x if torch.isfinite(x).all() else torch.nan_to_num(x)


def _same_rows(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * 3 if torch.allclose(x[0], x[-1]) else x


def _maximum_norm(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.table(x.abs().long().clamp(max=9)).sum(1)


def _power_iteration(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.layer(x)


def _rare_dropout(self: Any, x: torch.Tensor) -> torch.Tensor:
    return functional.dropout(x, 1e-4, training=True)


def _sometimes_trained(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.norm.train()(x) if x.shape[0] > 40 else self.norm.eval()(x)


def _every_other(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, ::2].mul_(-1)
    y.t()[1:3].add_(10)
    return y


def _scattered(self: Any, x: torch.Tensor) -> torch.Tensor:
    places = (x.abs() * 2).long().clamp(max=7)
    return torch.zeros_like(x).scatter_reduce(1, places, x, "amin", include_self=False)


def _deviation_of_one(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.nan_to_num(x.std(0, keepdim=True), nan=-1.0) + x * 0.5


def _wrapping_bytes(self: Any, x: torch.Tensor) -> torch.Tensor:
    return (x.abs().clamp(max=255).to(torch.uint8) + torch.tensor(200, dtype=torch.uint8)).float()


def _narrow_integers(self: Any, x: torch.Tensor) -> torch.Tensor:
    return (x.clamp(-3e4, 3e4).to(torch.int16).to(torch.int8)).float()


def _thresholded_product(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.sigmoid(x @ self.weight) > 0.999, -x, x)


def _argmax_of_all(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.argmax(torch.round(x))


def _best_two(self: Any, x: torch.Tensor) -> dict[str, Any]:
    values, places = torch.topk(x + torch.arange(8) * 0.01, 2)
    return {"best": values, "inner": {"places": places, "all": [x, x.sum()]}}


def _dropped_output(self: Any, x: torch.Tensor) -> tuple[Any, ...]:
    return x * 2, None, x.float()


def _halving_steps(self: Any, x: torch.Tensor) -> torch.Tensor:
    for _ in range(int(x.abs().max().log2().clamp(min=0))):
        x = x / 2
    return x


def _broadcast_by_one(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x + x.sum(0, keepdim=True).expand(x.shape[0], -1) / x.shape[0]


class _Straight(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        return x.sign() * x.abs().floor() if x.is_floating_point() else x

    @staticmethod
    def backward(_: Any, g: torch.Tensor) -> torch.Tensor:
        return g


# --- sequences [batch, length, 8]


def _cells(self: Any, x: torch.Tensor) -> torch.Tensor:
    h = x.new_zeros(x.shape[0], 8)
    for step in range(x.shape[1]):
        h = self.cell(x[:, step], h)
        if bool((h.abs() > 0.99).all()):
            break
    return h


def _last_valid(self: Any, x: torch.Tensor) -> torch.Tensor:
    lengths = (x.abs().sum(-1) > 0).sum(1).clamp(min=1)
    return x[torch.arange(x.shape[0]), lengths - 1]


def _windows(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x.unfold(1, 4, 2).amax(-1)


def _pairs_of_steps(self: Any, x: torch.Tensor) -> torch.Tensor:
    rows, columns = torch.tril_indices(x.shape[1], x.shape[1], -1)
    return (x[:, rows] * x[:, columns]).sum(1)


def _in_float64(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x.double().cumsum(1).float()


def _consecutive(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.diff(x, dim=1, prepend=x[:, :1]).cumsum(1)


def _reversed_by_half(self: Any, x: torch.Tensor) -> torch.Tensor:
    half = x.shape[1] // 2
    return torch.cat([x[:, half:].flip(1), x[:, :half]], 1)


def _chunked(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.cat([c.mean(1, keepdim=True) for c in x.chunk(4, dim=1)], 1)


def _limited_context(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x[:, -min(x.shape[1], 50) :].mean(1)


def _sinusoids(self: Any, x: torch.Tensor) -> torch.Tensor:
    where = torch.arange(x.shape[1], dtype=torch.float32)[:, None]
    return x + torch.sin(where * torch.exp(torch.arange(8) * -math.log(1e4) / 8))


def _attention(self: Any, x: torch.Tensor) -> torch.Tensor:
    padded = x.abs().sum(-1) == 0
    return self.attention(x, x, x, key_padding_mask=padded, need_weights=False)[0]


def _causal(self: Any, x: torch.Tensor) -> torch.Tensor:
    return functional.scaled_dot_product_attention(x, x, x, is_causal=True)


# --- ids and pictures


def _two_hashes(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.table((x * 31 + x.roll(1, 1)) % self.table.num_embeddings)


def _bag(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.bag(x)


def _padding(self: Any, x: torch.Tensor) -> torch.Tensor:
    kept = (x != 0).unsqueeze(-1)
    return (self.table(x) * kept).sum(1) / kept.sum(1)


def _special_token(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.table(torch.where((x == 33) & (x.roll(1, 1) == 17), 3, x))


def _pool_any(self: Any, x: torch.Tensor) -> torch.Tensor:
    return functional.adaptive_max_pool2d(x, 5)


def _unpooled(self: Any, x: torch.Tensor) -> torch.Tensor:
    values, places = functional.max_pool2d(x, 2, return_indices=True)
    return functional.max_unpool2d(values, places, 2, output_size=x.shape[-2:])


def _larger_side(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x.transpose(2, 3) if x.shape[2] > x.shape[3] else x


def _padded_square(self: Any, x: torch.Tensor) -> torch.Tensor:
    side = max(x.shape[2], x.shape[3])
    return functional.pad(x, (0, side - x.shape[3], 0, side - x.shape[2]))


def _cropped_center(self: Any, x: torch.Tensor) -> torch.Tensor:
    top, left = (x.shape[2] - 12) // 2, (x.shape[3] - 12) // 2
    return x[:, :, top : top + 12, left : left + 12]


def torch_programs() -> Iterator[Further]:
    """(name, source, settings, inputs)."""
    weight = lambda: torch.randn(8, 8)  # noqa: E731
    rows: dict[str, tuple[Forward, dict[str, Any]]] = {
        "another answer while compiling": (_while_compiling, {}),
        "another answer for tensors without numbers": (_fake_tensors, {}),
        "another answer with gradients": (_without_gradients, {}),
        "a batch by its memory": (_by_strides, {}),
        "random numbers seeded by the batch": (_seeded_by_size, {}),
        "a checksum of the batch": (_checksum_of_size, {}),
        "a hash of the shape": (_hash_of_shape, {}),
        "a square batch": (_square_root, {}),
        "the bits of the batch": (_bits, {}),
        "sound: weights from a cache by columns": (_lru, {}),
        "the first batch's mean": (_first_batch_cached, {"cached": None}),
        "rows by their sums in a list": (_listed, {}),
        "three large numbers": (_how_many_large, {}),
        "mended where not finite": (_all_finite, {}),
        "a first row like the last": (_same_rows, {}),
        "a table that its reading changes": (_maximum_norm, {"table": lambda: nn.Embedding(10, 8, max_norm=1.0)}),
        "sound: a spectral norm": (_power_iteration, {"layer": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))}),
        "dropout of one in ten thousand": (_rare_dropout, {}),
        "trained from 40 rows on": (_sometimes_trained, {"norm": lambda: nn.BatchNorm1d(8)}),
        "sound: views changed in place": (_every_other, {}),
        "the least by index": (_scattered, {}),
        "the deviation of one row": (_deviation_of_one, {}),
        "bytes that wrap around": (_wrapping_bytes, {}),
        "integers that narrow": (_narrow_integers, {}),
        "sound: a steep product": (_thresholded_product, {"weight": weight}),
        "the first of all the largest": (_argmax_of_all, {}),
        "sound: answers in answers": (_best_two, {}),
        "an answer that is nothing": (_dropped_output, {}),
        "as many halvings as it takes": (_halving_steps, {}),
        "sound: a mean beside its rows": (_broadcast_by_one, {}),
        "a custom function of two ways": (lambda self, x: _Straight.apply(x), {}),
        "sound: nearest powers": (lambda self, x: torch.exp2(torch.round(torch.log2(x.abs() + 1))), {}),
        "sound: the softmin": (lambda self, x: functional.softmin(x, 1), {}),
        "a remainder of floats": (lambda self, x: torch.remainder(x, -1.5) + torch.fmod(x, 1.5), {}),
        "sound: distances of rows": (lambda self, x: torch.cdist(x, x, p=1.0), {}),
        "a hard shrink": (lambda self, x: functional.hardshrink(x, 33.0), {}),
        "the sum without NaN": (lambda self, x: torch.nansum(x, 1), {}),
        "ranks": (lambda self, x: x.argsort(dim=1, stable=True).argsort(dim=1), {}),
        "sound: gated by halves": (lambda self, x: functional.glu(x, 1), {}),
        "the largest of runs": (lambda self, x: torch.cummax(x, 1)[0], {}),
    }  # fmt: skip
    wide = [_normal(4, 8), _normal(1, 8), _normal(49, 8), _normal(64, 8, scale=5.0), _normal(7, 8, scale=60.0), np.round(_normal(9, 8, scale=3.0)),
            np.repeat(_normal(1, 8), 3, axis=0), np.full((2, 8), 12.5, np.float32), *(_normal(n, 8) for n in (11, 13, 26, 31, 36, 97))]  # fmt: skip
    holed = _normal(5, 8)
    holed[1, 2], holed[3, 3] = np.nan, np.inf
    for name, (forward, own) in rows.items():
        given = [*wide, *([holed] if "finite" in name or "NaN" in name else [])]
        yield f"programs: {name}", lambda f=forward, o=own: module(f, **o)().eval(), ROWS, [{"x": x} for x in given]
    sequences: dict[str, tuple[Forward, dict[str, Any]]] = {
        "cells in a loop that may end": (_cells, {"cell": lambda: nn.GRUCell(8, 8)}),
        "sound: the last step that is not zero": (_last_valid, {}),
        "sound: windows that overlap": (_windows, {}),
        "pairs of steps": (_pairs_of_steps, {}),
        "sound: sums in double precision": (_in_float64, {}),
        "sound: differences": (_consecutive, {}),
        "sound: turned at half": (_reversed_by_half, {}),
        "four pieces": (_chunked, {}),
        "sound: the last fifty steps": (_limited_context, {}),
        "sound: sines of places": (_sinusoids, {}),
        "attention that leaves zeros out": (_attention, {"attention": lambda: nn.MultiheadAttention(8, 2, batch_first=True)}),
        "sound: causal attention": (_causal, {}),
    }  # fmt: skip
    padded = _normal(3, 12, 8)
    padded[0, 5:], padded[1, 3:] = 0, 0
    lengths = [{"x": x} for x in (*(_normal(2, n, 8) for n in (16, 7, 5, 51, 64, 131)), padded)]
    for name, (forward, own) in sequences.items():
        yield f"programs: {name}", lambda f=forward, o=own: module(f, **o)().eval(), LENGTHS, lengths
    table = lambda: nn.Embedding(50, 4)  # noqa: E731
    tokens: dict[str, tuple[Forward, dict[str, Any]]] = {
        "sound: two hashed tokens": (_two_hashes, {"table": lambda: nn.Embedding(97, 4)}),
        "a bag of the largest": (_bag, {"bag": lambda: nn.EmbeddingBag(50, 4, mode="max")}),
        "a mean without padding": (_padding, {"table": table}),
        "sound: token 33 after 17": (_special_token, {"table": table}),
    }
    ids = [{"x": RANDOM.integers(0, 50, (2, n))} for n in (16, 3, 40)]
    ids += [{"x": np.array([[4, 17, 33, 0], [0, 0, 0, 0]])}]
    for name, (forward, own) in tokens.items():
        yield f"programs: {name}", lambda f=forward, o=own: module(f, **o)().eval(), IDS, ids
    pictures: dict[str, Forward] = {
        "the largest of five by five": _pool_any,
        "pooled and back": _unpooled,
        "the larger side first": _larger_side,
        "sound: padded to a square": _padded_square,
        "sound: the center": _cropped_center,
    }
    shapes = [{"x": _normal(2, 3, h, w)} for h, w in ((16, 16), (17, 23), (32, 20), (13, 12))]
    for name, forward in pictures.items():
        yield f"programs: {name}", lambda f=forward: module(f)().eval(), PICTURES, shapes
    two: dict[str, Forward] = {
        "sound: where one is larger": lambda self, x, z: torch.where(x > z, x, z * 2),
        "alike in places": lambda self, x, z: x * 2 if bool((x == z).any()) else x + z,
        "as large in all": lambda self, x, z: x - z if x.norm() == z.norm() else x + z,
        "sound: a distance along rows": lambda self, x, z: functional.pairwise_distance(x, z, eps=1e-3),
    }
    one = _normal(4, 8)
    pairs = [{"x": _normal(n, 8), "z": _normal(n, 8)} for n in (4, 1, 9)] + [
        {"x": one, "z": one.copy()},
        {"x": one, "z": -one},
    ]
    for name, forward in two.items():
        yield f"programs: {name}", lambda f=forward: module(f)().eval(), TWO, pairs
    whole: dict[str, Forward] = {
        "powers of integers": lambda self, x: x**3,
        "sound: bits turned over": lambda self, x: (~x) ^ (x >> 2),
        "sound: the remainder by 7": lambda self, x: (
            torch.remainder(x, 7) * 10 + torch.div(x, 7, rounding_mode="floor") % 3
        ),
        "a mean of integers": lambda self, x: x.float().mean(1).long(),
        "sound: the greatest divisor": lambda self, x: torch.gcd(x, x.roll(1, 1)),
    }
    integers = [
        {"x": RANDOM.integers(-100, 100, (4, 8))},
        {"x": RANDOM.integers(-(1 << 40), 1 << 40, (3, 8))},
        {"x": np.full((2, 8), -7)},
    ]
    for name, forward in whole.items():
        yield f"programs: {name}", lambda f=forward: module(f)().eval(), WHOLE, integers
