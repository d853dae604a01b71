"""More modules for `make corpus`: what a tracer makes a constant, indices that repeat, large integers, caches."""

# ruff: noqa: E501  (methods that need nothing of their object; a table)
from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tests.corpus.sources.models import module

RANDOM = np.random.default_rng(6)
Feeds = dict[str, np.ndarray]
Further = tuple[str, Callable[[], Any], dict[str, Any], list[Feeds]]
LENGTHS = {"input_shapes": {"x": ("batch", "length", 8)}}
ROWS = {"input_shapes": {"x": ("batch", 8)}}
PICTURES = {"input_shapes": {"x": ("batch", 3, "height", "width")}}
WHOLE = {"input_shapes": {"x": ("batch", 8)}, "input_dtypes": {"x": "int64"}}
IDS = {"input_shapes": {"x": ("batch", "length")}, "input_dtypes": {"x": "int64"}}
TWO = {"input_shapes": {"x": ("batch", 8), "z": ("batch", 8)}}


def _normal(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (scale * RANDOM.standard_normal(shape)).astype(np.float32)


# --- sequences [batch, length, 8]


def _relative_buckets(self: Any, x: torch.Tensor) -> torch.Tensor:
    n = x.shape[1]
    steps = torch.arange(n)[None, :] - torch.arange(n)[:, None]
    far = steps.abs()
    logs = 8 + (torch.log(far.clamp(min=1).float() / 8) / math.log(128 / 8) * 8).long()
    bucket = torch.where(far < 8, far, logs.clamp(max=15)) + (steps > 0).long() * 16
    return (self.bias(bucket)[..., 0] + x @ x.transpose(1, 2)).softmax(-1) @ x


def _alibi(self: Any, x: torch.Tensor) -> torch.Tensor:
    n = x.shape[1]
    far = (torch.arange(n)[None, :] - torch.arange(n)[:, None]).abs().float()
    slopes = torch.tensor([2.0 ** -(k + 1) for k in range(4)])
    scores = (x @ x.transpose(1, 2))[:, None] - slopes[None, :, None, None] * far
    return (scores.softmax(-1) @ x[:, None]).sum(1)


def _alibi_cached(self: Any, x: torch.Tensor) -> torch.Tensor:
    n = x.shape[1]
    if n > self.known.shape[0]:
        self.known = (torch.arange(n)[None, :] - torch.arange(n)[:, None]).abs().float()
    return (x @ x.transpose(1, 2) - self.known[:n, :n]).softmax(-1) @ x


def _short_positions(self: Any, x: torch.Tensor) -> torch.Tensor:
    places = torch.arange(x.shape[1]).clamp(max=self.table.num_embeddings - 1)
    return x + self.table(places)


def _modular_positions(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x + self.table(torch.arange(x.shape[1]) % self.table.num_embeddings)


def _chunked_attention(self: Any, x: torch.Tensor) -> torch.Tensor:
    parts = [(q @ x.transpose(1, 2)).softmax(-1) @ x for q in x.split(48, 1)]
    return torch.cat(parts, 1)


def _interpolated_positions(self: Any, x: torch.Tensor) -> torch.Tensor:
    if x.shape[1] == self.table.shape[1]:
        return x + self.table
    wide = functional.interpolate(self.table.transpose(1, 2), size=x.shape[1], mode="linear", align_corners=False)
    return x + wide.transpose(1, 2)


def _string_of_shape(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * len(str(tuple(x.shape)))


def _divided_length(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x[:, -(-x.shape[1] // 3) :].sum(1)


def _rounded_length(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x[:, : round(x.shape[1] / 2)].sum(1)


def _truncated_share(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x.topk(max(1, int(0.3 * x.shape[1])), 1)[0].mean(1)


def _stops_early(self: Any, x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros_like(x[:, 0])
    for step in range(x.shape[1]):
        total = total + x[:, step]
        if total.abs().max() > 40:
            break
    return total


def _tried(self: Any, x: torch.Tensor) -> torch.Tensor:
    try:
        return x.view(x.shape[0], -1, 16).sum(1)
    except RuntimeError:
        return x.sum(1).repeat(1, 2)


def _strided(self: Any, x: torch.Tensor) -> torch.Tensor:
    pad = (4 - x.shape[1] % 4) % 4
    return functional.pad(x, (0, 0, 0, pad)).unfold(1, 4, 4).sum(-1)


def _first_batch_kept(self: Any, x: torch.Tensor) -> torch.Tensor:
    if self.state is None or self.state.shape != x[:, 0].shape:
        self.state = torch.zeros_like(x[:, 0])
    return x + self.state[:, None] + x.shape[1]


def _scripted_loop() -> nn.Module:
    class Loop(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            total = torch.zeros_like(x[:, 0])
            for step in range(x.size(1)):
                if bool(total.abs().max() > 40):
                    return total
                total = total + x[:, step]
            return total

    return torch.jit.script(Loop())


def _of_lengths() -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    return {
        "sound: relative position buckets": (_relative_buckets, {"bias": lambda: nn.Embedding(32, 1)}),
        "sound: ALiBi": (_alibi, {}),
        "ALiBi from a cache that grows": (_alibi_cached, {"known": lambda: torch.zeros(0, 0)}),
        "sound: positions that end at 300": (_short_positions, {"table": lambda: nn.Embedding(300, 8)}),
        "positions modulo 128": (_modular_positions, {"table": lambda: nn.Embedding(128, 8)}),
        "attention in chunks of 48": (_chunked_attention, {}),
        "positions interpolated unless there are 64": (_interpolated_positions, {"table": lambda: torch.randn(1, 64, 8)}),
        "the text of a shape": (_string_of_shape, {}),
        "a third of a length, rounded up": (_divided_length, {}),
        "half of a length, rounded to even": (_rounded_length, {}),
        "three tenths of a length": (_truncated_share, {}),
        "a loop that a value stops": (_stops_early, {}),
        "a view that may fail": (_tried, {}),
        "sound: padded and unfolded": (_strided, {}),
        "a state kept by shape": (_first_batch_kept, {"state": None}),
    }  # fmt: skip


# --- rows [batch, 8]


class _Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x.abs() > 30, -x, x)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g


class _FrozenSign(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return -x if x.mean().item() > 3 else x

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g


class _Named(NamedTuple):
    second: torch.Tensor
    first: torch.Tensor


def _custom(self: Any, x: torch.Tensor) -> torch.Tensor:
    return _Sign.apply(x)


def _custom_frozen(self: Any, x: torch.Tensor) -> torch.Tensor:
    return _FrozenSign.apply(x)


def _data_changed(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y.data[y > 3] = 0
    y.data.mul_(2)
    return y


def _mean_of_all(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.mean = 0.9 * self.mean + 0.1 * x.detach().mean()
    return x - self.mean


def _numpy_sort(self: Any, x: torch.Tensor) -> torch.Tensor:
    order = torch.from_numpy(np.argsort(x.detach().numpy().sum(0)).copy())
    return x[:, order]


def _listed(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.tensor([[max(r), min(r)] for r in x.tolist()])


def _by_dtype(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * 3 if x.dtype == torch.float64 else x * 2


def _unique_count(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * torch.unique(x.round()).numel()


def _nonzero_count(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x / (x > 0).nonzero().shape[0]


def _put_twice(self: Any, x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(x.shape[0], 4)
    return out.index_add(1, torch.tensor([0, 1, 1, 3, 3, 3, 0, 2]), x)


def _put_accumulated(self: Any, x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(6)
    where = x.abs().long().clamp(max=5).flatten()
    return out.index_put((where,), x.flatten(), accumulate=True)


def _largest_put(self: Any, x: torch.Tensor) -> torch.Tensor:
    where = x.abs().long().clamp(max=5)
    return torch.zeros(x.shape[0], 6).scatter_reduce(1, where, x, "amax", include_self=False)


def _mean_put(self: Any, x: torch.Tensor) -> torch.Tensor:
    where = x.abs().long().clamp(max=5)
    return torch.zeros(x.shape[0], 6).scatter_reduce(1, where, x, "mean", include_self=True)


def _product_put(self: Any, x: torch.Tensor) -> torch.Tensor:
    where = (x.abs() * 2).long().clamp(max=5)
    return torch.ones(x.shape[0], 6).scatter_reduce(1, where, x.clamp(-2, 2), "prod", include_self=False)


def _masked_put(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[y < -2] = y[:, :1].expand_as(y)[y < -2]
    return y


def _first_true(self: Any, x: torch.Tensor) -> torch.Tensor:
    return (x > 1).int().argmax(1)


def _stable(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.sort(x.round(), 1, stable=True, descending=True)[1]


def _mode(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.mode(x.round(), 1)[0]


def _median(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x.median(1)[0]


def _wide_sum(self: Any, x: torch.Tensor) -> torch.Tensor:
    return (x.double() * 1e5).round().long().sum(1)


def _counted(self: Any, x: torch.Tensor) -> torch.Tensor:
    return (x > 0).cumsum(1) * 16777217


def _remainders(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.remainder(x, -3.0) + torch.fmod(x, 2.5)


def _infinite_where(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0, torch.sqrt(x), torch.zeros_like(x)) + torch.where(x > 50, x.exp(), x)


def _wrapped(self: Any, x: torch.Tensor) -> torch.Tensor:
    return (x * 1000).clamp(-1e9, 1e9).to(torch.int32).to(torch.int16).float()


def _truncated_floats(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x.clamp(-1e6, 1e6).int().float() + torch.trunc(x) + torch.frac(x)


def _in_bfloat(self: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return self.layer(x).float()


def _named_outputs(self: Any, x: torch.Tensor) -> Any:
    return _Named(second=x * 2, first=x + 1)


def _sometimes_more(self: Any, x: torch.Tensor) -> Any:
    return {"y": x * 2, "extra": x + 1} if x.sum() > 50 else {"y": x * 2}


def _switch(self: Any, x: torch.Tensor) -> torch.Tensor:
    return {True: x * 2, False: x - 1}[bool((x > 4).any())]


def _short_circuit(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape[0] > 3 and x[0, 0] > 2 else x


def _checked(self: Any, x: torch.Tensor) -> torch.Tensor:
    if torch.isnan(x).any():
        x = torch.nan_to_num(x)
    return x * 2


def _sampled(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x[:, torch.randperm(8)]


def _bernoulli(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * torch.bernoulli(torch.full_like(x, 0.999))


def _hooked() -> nn.Module:
    net = nn.Sequential(nn.Linear(8, 8))
    net[0].register_forward_hook(lambda m, i, o: o * 3 if o.max() > 10 else o)
    return net.eval()


def _counts_calls(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.calls.append(1)
    return x * (2 if len(self.calls) > 4 else 1)


_GLOBAL = {"calls": 0}


def _global_counter(self: Any, x: torch.Tensor) -> torch.Tensor:
    _GLOBAL["calls"] += 1
    return x * (1 if _GLOBAL["calls"] < 3 else 2)


def _newton(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = x.abs() + 1
    for _ in range(50):
        new = (y + (x.abs() + 1) / y) / 2
        if torch.allclose(new, y, rtol=1e-4):
            break
        y = new
    return y


def _experts(self: Any, x: torch.Tensor) -> torch.Tensor:
    chosen = self.router(x).argmax(1)
    y = torch.zeros_like(x)
    for number, expert in enumerate(self.experts):
        rows = (chosen == number).nonzero()[:, 0]
        if rows.numel() > 0:
            y[rows] = expert(x[rows])
    return y


def _large_power(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * 1e3, 1) + torch.logsumexp(x * 1e3, 1, keepdim=True)


def _angle(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.atan2(x, x.flip(1)) + torch.hypot(x, x.flip(1))


def _complex(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.fft.rfft(x, dim=1).abs()


def _deviation(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x.std(0) + x.var(1, unbiased=False).mean()


def _renormed(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.renorm(x, 2, 0, 5.0)


def _cosine(self: Any, x: torch.Tensor) -> torch.Tensor:
    return functional.cosine_similarity(x, x.flip(1), dim=1, eps=1.0)


def _of_rows() -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    experts = {
        "router": lambda: nn.Linear(8, 3),
        "experts": lambda: nn.ModuleList([nn.Linear(8, 8) for _ in range(3)]),
    }
    return {
        "sound: a custom function": (_custom, {}),
        "a custom function that looks at a mean": (_custom_frozen, {}),
        ".data changed in place": (_data_changed, {}),
        "a running mean without a buffer": (_mean_of_all, {"mean": lambda: torch.zeros(())}),
        "columns sorted by numpy": (_numpy_sort, {}),
        "a tensor of Python lists": (_listed, {}),
        "sound: another answer in float64": (_by_dtype, {}),
        "how many different numbers": (_unique_count, {}),
        "how many are positive": (_nonzero_count, {}),
        "sound: index_add with repeated indices": (_put_twice, {}),
        "index_put that accumulates": (_put_accumulated, {}),
        "the largest by index": (_largest_put, {}),
        "the mean by index": (_mean_put, {}),
        "the product by index": (_product_put, {}),
        "a boolean index on both sides": (_masked_put, {}),
        "sound: the first that is true": (_first_true, {}),
        "the order of ties": (_stable, {}),
        "the most frequent": (_mode, {}),
        "the median": (_median, {}),
        "sound: sums beyond float32": (_wide_sum, {}),
        "sound: counts beyond 2^24": (_counted, {}),
        "remainders by negative numbers": (_remainders, {}),
        "sound: NaN on the side not taken": (_infinite_where, {}),
        "integers that wrap around": (_wrapped, {}),
        "sound: fractions cut off": (_truncated_floats, {}),
        "autocast to bfloat16": (_in_bfloat, {"layer": lambda: nn.Linear(8, 8)}),
        "sound: a named tuple": (_named_outputs, {}),
        "an output that is sometimes there": (_sometimes_more, {}),
        "a dictionary of two answers": (_switch, {}),
        "a condition behind another": (_short_circuit, {}),
        "NaN mended only where there is one": (_checked, {}),
        "a random permutation": (_sampled, {}),
        "a coin that hardly ever falls": (_bernoulli, {}),
        "a list that grows": (_counts_calls, {"calls": list}),
        "a counter of the module's file": (_global_counter, {}),
        "iterations until they converge": (_newton, {}),
        "experts that choose their rows": (_experts, experts),
        "sound: softmax of thousands": (_large_power, {}),
        "atan2": (_angle, {}),
        "a Fourier transform": (_complex, {}),
        "sound: deviations": (_deviation, {}),
        "rows of a norm of at most 5": (_renormed, {}),
        "a cosine with a large eps": (_cosine, {}),
    }


# --- pictures [batch, 3, height, width]


def _pooled_three(self: Any, x: torch.Tensor) -> torch.Tensor:
    return functional.adaptive_max_pool2d(x, (3, 5))


def _averaged_ceil(self: Any, x: torch.Tensor) -> torch.Tensor:
    return functional.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)


def _averaged_ceil_padded(self: Any, x: torch.Tensor) -> torch.Tensor:
    return functional.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=True)


def _half_nearest(self: Any, x: torch.Tensor) -> torch.Tensor:
    return functional.interpolate(x, scale_factor=0.4, mode="nearest")


def _nearest_exact(self: Any, x: torch.Tensor) -> torch.Tensor:
    return functional.interpolate(x, size=(11, 13), mode="nearest-exact")


def _cubic(self: Any, x: torch.Tensor) -> torch.Tensor:
    return functional.interpolate(x, scale_factor=1.7, mode="bicubic", align_corners=True)


def _area(self: Any, x: torch.Tensor) -> torch.Tensor:
    return functional.interpolate(x, size=(7, 5), mode="area")


def _to_its_skip(self: Any, x: torch.Tensor) -> torch.Tensor:
    small = functional.max_pool2d(x, 2)
    back = functional.interpolate(small, size=x.shape[2:], mode="bilinear", align_corners=True)
    return torch.cat([x, back], 1)


def _cropped(self: Any, x: torch.Tensor) -> torch.Tensor:
    top, left = (x.shape[2] - 5) // 2, (x.shape[3] - 5) // 2
    return x[:, :, top : top + 5, left : left + 5]


def _windows(self: Any, x: torch.Tensor) -> torch.Tensor:
    b, c, h, w = x.shape
    x = functional.pad(x, (0, -w % 4, 0, -h % 4))
    parts = x.view(b, c, (h + 3) // 4, 4, (w + 3) // 4, 4)
    return parts.mean((3, 5))


def _landscape(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x.transpose(2, 3) if x.shape[2] > x.shape[3] else x


def _sampled_grid(self: Any, x: torch.Tensor) -> torch.Tensor:
    theta = torch.tensor([[[0.8, 0.3, 0.1], [-0.2, 0.9, 0.0]]]).expand(x.shape[0], -1, -1)
    grid = functional.affine_grid(theta, [x.shape[0], 3, 10, 12], align_corners=False)
    return functional.grid_sample(x, grid, align_corners=False, padding_mode="reflection")


def _reflected(self: Any, x: torch.Tensor) -> torch.Tensor:
    return functional.pad(functional.pad(x, (2, 1, 3, 0), "reflect"), (1, 1, 1, 1), "circular")


def _shuffled(self: Any, x: torch.Tensor) -> torch.Tensor:
    return functional.pixel_unshuffle(functional.pad(x, (0, x.shape[3] % 2, 0, x.shape[2] % 2)), 2)


_OF_PICTURES: dict[str, Callable[..., Any]] = {
    "pooled to three by five": _pooled_three,
    "an average that rounds up, without padding": _averaged_ceil,
    "an average that rounds up, with padding": _averaged_ceil_padded,
    "nearest at 0.4 of the size": _half_nearest,
    "nearest-exact to 11 by 13": _nearest_exact,
    "sound: bicubic with aligned corners": _cubic,
    "areas of 7 by 5": _area,
    "sound: resized to its skip": _to_its_skip,
    "sound: cropped in the middle": _cropped,
    "windows of four by four": _windows,
    "pictures that are higher than wide": _landscape,
    "sound: a grid": _sampled_grid,
    "sound: reflected and circular": _reflected,
    "padded to even and unshuffled": _shuffled,
}


# --- integers


def _halves(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.div(x, 2, rounding_mode="floor") + torch.remainder(x, -7)


def _as_floats(self: Any, x: torch.Tensor) -> torch.Tensor:
    return (x.float() * 2).long()


def _as_doubles(self: Any, x: torch.Tensor) -> torch.Tensor:
    return (x.double() * 2).long() - x


def _hashed(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.table((x * 2654435761 + 17) % 1000)


def _true_division(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x / 7


def _bits(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.stack([(x >> k) & 1 for k in range(5)], -1).float()


def _powers(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x.clamp(-3000, 3000) ** 3


def _absolute(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x.abs() + x.sign() * 3


def _clamped(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x.clamp(min=-(2**40))


def _in_int32(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x.int().sum(1) + x.int().prod(1)


_OF_INTEGERS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "sound: floor and a negative remainder": (_halves, {}),
    "sound: integers through float32": (_as_floats, {}),
    "sound: integers through float64": (_as_doubles, {}),
    "a row that a large product chooses": (_hashed, {"table": lambda: nn.Embedding(1000, 8)}),
    "sound: true division": (_true_division, {}),
    "bits of negative integers": (_bits, {}),
    "cubes of integers": (_powers, {}),
    "sound: signs of integers": (_absolute, {}),
    "integers above -2^40": (_clamped, {}),
    "sums and products of int32": (_in_int32, {}),
}


# --- token ids


def _padding_index(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.table(x).sum(1)


def _largest_norm(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.table(x)


def _bag(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.table(x)


def _one_hot(self: Any, x: torch.Tensor) -> torch.Tensor:
    return functional.one_hot(x % 20, 20).float() @ self.weight


def _one_hot_counted(self: Any, x: torch.Tensor) -> torch.Tensor:
    return functional.one_hot(x).sum(1)


def _ends_at(self: Any, x: torch.Tensor) -> torch.Tensor:
    ends = (x == 3).int().argmax(1)
    return self.table(x)[torch.arange(x.shape[0]), ends]


def _any_special(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.table(x)
    return -y if 17 in x else y


def _counts_of_ids(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.bincount(x.flatten(), minlength=50)


def _shifted_ids(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = x.new_zeros(x.shape)
    y[:, 1:] = x[:, :-1].clone()
    y[:, 0] = 2
    return self.table(y.masked_fill(y == 9, 0))


def _expanded_mask(self: Any, x: torch.Tensor) -> torch.Tensor:
    mask = (x != 0)[:, None, None, :]
    h = self.table(x)
    scores = (h @ h.transpose(1, 2))[:, None].masked_fill(~mask, torch.finfo(torch.float32).min)
    return (scores.softmax(-1) @ h[:, None])[:, 0]


def _all_masked(self: Any, x: torch.Tensor) -> torch.Tensor:
    h = self.table(x)
    scores = (h @ h.transpose(1, 2)).masked_fill((x == 0)[:, None, :], float("-inf"))
    return torch.nan_to_num(scores.softmax(-1)) @ h


_OF_IDS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "sound: padding_idx": (_padding_index, {"table": lambda: nn.Embedding(50, 8, padding_idx=0)}),
    "rows of a table that are renormed when read": (_largest_norm, {"table": lambda: nn.Embedding(50, 8, max_norm=1.0)}),
    "a bag with a padding index": (_bag, {"table": lambda: nn.EmbeddingBag(50, 8, mode="mean", padding_idx=0)}),
    "sound: one of twenty": (_one_hot, {"weight": lambda: torch.randn(20, 8)}),
    "one of as many as there are": (_one_hot_counted, {}),
    "sound: what stands at token 3": (_ends_at, {"table": lambda: nn.Embedding(50, 8)}),
    "a branch on a token": (_any_special, {"table": lambda: nn.Embedding(50, 8)}),
    "counts of tokens": (_counts_of_ids, {}),
    "sound: shifted to the right": (_shifted_ids, {"table": lambda: nn.Embedding(50, 8)}),
    "sound: a mask of token 0": (_expanded_mask, {"table": lambda: nn.Embedding(50, 8)}),
    "sound: rows that are masked whole": (_all_masked, {"table": lambda: nn.Embedding(50, 8)}),
}  # fmt: skip


def _larger_of(self: Any, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return x if x.norm() > 3 * z.norm() else z


def _close_together(self: Any, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    near = (x - z).norm(dim=1, keepdim=True) < 0.5
    return torch.where(near, x * z, x + z)


def _same_shape(self: Any, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    if torch.equal(x, z):
        return x * 10
    return x + z


_OF_TWO: dict[str, Callable[..., Any]] = {
    "a branch on two norms": _larger_of,
    "sound: a distance of two": _close_together,
    "a branch where two are equal": _same_shape,
}


def torch_frozen() -> Iterator[Further]:
    """(name, the module made anew, arguments of `convert`, inputs that show it)."""
    sequences = [{"x": _normal(2, n, 8)} for n in (16, 1, 7, 9, 48, 49, 64, 65, 130, 301, 601)] + [
        {"x": _normal(5, 33, 8)}
    ]
    rows = [{"x": x} for x in (_normal(4, 8), _normal(1, 8), _normal(7, 8, scale=1e3), -np.abs(_normal(20, 8)) * 100,
                               _normal(4, 8) + 20, np.round(_normal(9, 8)), np.zeros((3, 8), np.float32))]  # fmt: skip
    pictures = [{"x": _normal(2, 3, h, w)} for h, w in ((16, 16), (17, 23), (33, 20), (64, 48), (5, 9), (30, 31))]
    numbers = [{"x": RANDOM.integers(-9, 9, (4, 8))}, {"x": RANDOM.integers(-(2**40), 2**40, (3, 8))}]
    ids = [{"x": RANDOM.integers(0, 50, (3, n))} for n in (12, 1, 70)] + [{"x": RANDOM.integers(0, 9, (2, 12))}]
    ids += [{"x": np.array([[17, 0, 0, 3], [0, 0, 0, 0]])}, {"x": np.zeros((2, 4), np.int64)}]
    made = _normal(4, 8)
    pairs = [{"x": made, "z": _normal(4, 8)}, {"x": 50 * made, "z": made}, {"x": made, "z": made.copy()},
             {"x": made, "z": made + np.float32(0.01)}]  # fmt: skip
    for known, settings, inputs in (
        (_of_lengths(), LENGTHS, sequences),
        (_of_rows(), ROWS, rows),
        ({n: (f, {}) for n, f in _OF_PICTURES.items()}, PICTURES, pictures),
        (_OF_INTEGERS, WHOLE, numbers),
        (_OF_IDS, IDS, ids),
        ({n: (f, {}) for n, f in _OF_TWO.items()}, TWO, pairs),
    ):
        for name, (forward, parts) in known.items():
            yield f"frozen: {name}", lambda f=forward, p=parts: module(f, **p)().eval(), settings, inputs
    yield "frozen: a scripted loop that a value stops", _scripted_loop, LENGTHS, sequences
    yield "frozen: a hook that looks at its output", _hooked, ROWS, rows
