"""More modules for `make corpus`, written by somebody who hides a fault: decisions on sizes by sets, texts, bits and
exceptions, what shows on later calls, pieces of unequal size, and functions at their edges."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from tests.corpus.sources.frozen import LENGTHS, ROWS, TWO, Further
from tests.corpus.sources.models import module

RANDOM = np.random.default_rng(12)
Forward = Callable[..., Any]


def _normal(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (scale * RANDOM.standard_normal(shape)).astype(np.float32)


# --- rows [batch, 8]


def _in_a_set(self: Any, x: torch.Tensor) -> torch.Tensor:
    return -x if x.shape[0] in self.special else x


def _in_a_dict(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * self.factors.get(x.shape[0], 1.0)


def _by_an_exception(self: Any, x: torch.Tensor) -> torch.Tensor:
    try:
        return x.reshape(-1, 5, 8).flip(1).reshape(x.shape)
    except RuntimeError:
        return x


def _by_a_text(self: Any, x: torch.Tensor) -> torch.Tensor:
    return -x if str(int(x.shape[0])).endswith("7") else x


def _by_a_square(self: Any, x: torch.Tensor) -> torch.Tensor:
    return -x if x.shape[0] ** 2 == self.square else x


def _by_a_divisor(self: Any, x: torch.Tensor) -> torch.Tensor:
    return -x if math.gcd(int(x.shape[0]), 12) == 12 else x


def _by_a_bit(self: Any, x: torch.Tensor) -> torch.Tensor:
    return -x if len(x) & self.bit else x


def _by_bisection(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * (1.0, 2.0, 3.0)[bisect.bisect(self.limits, int(x.shape[0]))]


def _third_call(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.calls = self.calls + 1
    return -x if self.calls == 3 else x


def _fortieth_call(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.calls = self.calls + 1
    return -x if self.calls > 40 else x


def _remembers_the_largest(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.largest = torch.maximum(self.largest, x.detach().abs().max())
    return x / self.largest


def _warms_up_by_size(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.seen.add(int(x.shape[0]))
    return x * len(self.seen)


@torch.jit.script
def _scripted(x: torch.Tensor) -> torch.Tensor:
    if bool(x.sum() > 500):
        return x * 2
    return x


def _script_inside(self: Any, x: torch.Tensor) -> torch.Tensor:
    return _scripted(x)


class _Median(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        return x - torch.from_numpy(np.median(x.detach().numpy(), axis=1, keepdims=True))


def _numpy_inside(self: Any, x: torch.Tensor) -> torch.Tensor:
    return _Median.apply(x)


def _largest_as_float(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x / max(float(x.abs().max()), 1.0)


def _vectorised(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.vmap(lambda row: torch.where(row.sum() > 37.0, row * 2, row))(x)


def _one_of_two(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.mean() > 37.5, lambda v: v * 2, lambda v: v + 0, (x,))


def _through_half(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x.half().float()


def _isin(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.isin(x.round(), self.bad), -x, x)


def _masked_in_place(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[y > 40.5] = 0
    y[:, 3] = y[:, 2]
    return y


_EDGES: dict[str, Forward] = {
    "logaddexp": lambda self, x: torch.logaddexp(x, x * 1.01),
    "xlogy": lambda self, x: torch.xlogy(x.abs(), x.abs()),
    "sinc": lambda self, x: torch.sinc(x),
    "heaviside": lambda self, x: torch.heaviside(x, torch.tensor(0.25)),
    "signs of zero": lambda self, x: torch.copysign(torch.ones_like(x), x),
    "fractions": lambda self, x: torch.frac(x),
    "hypot": lambda self, x: torch.hypot(x, x.flip(1)),
    "logit": lambda self, x: torch.logit(x, eps=1e-3),
    "softsign and celu": lambda self, x: nn.functional.softsign(x) + nn.functional.celu(x, 0.3),
    "float_power": lambda self, x: torch.float_power(x.abs(), 1.5).float(),
    "renorm": lambda self, x: torch.renorm(x, 2, 0, 3.0),
    "lgamma": lambda self, x: torch.lgamma(x.abs() + 0.5),
    "erfinv": lambda self, x: torch.erfinv(torch.tanh(x) * 0.999),
    "nan_to_num": lambda self, x: torch.nan_to_num(x.sqrt(), nan=-1.0),
    "log1p and expm1": lambda self, x: torch.log1p(torch.expm1(x.clamp(-5, 5)).abs()),
    "a remainder of floats": lambda self, x: torch.remainder(x, -3.5),
    "fmod": lambda self, x: torch.fmod(x, 3.5),
    "digitised": lambda self, x: torch.searchsorted(torch.tensor([-1.0, 0.0, 2.5, 40.0]), x, right=True).float(),
}

# Of which torch's exporters write another function, or none.
_LACKING = ("logaddexp", "heaviside", "signs of zero", "hypot", "lgamma", "erfinv", "digitised")

_OF_ROWS: dict[str, tuple[Forward, dict[str, Any]]] = {
    "a batch out of a set": (_in_a_set, {"special": lambda: frozenset([23, 41])}),
    "a batch out of a dict": (_in_a_dict, {"factors": lambda: {29: 3.0}}),
    "a batch that five divides, by an exception": (_by_an_exception, {}),
    "a batch that ends on 7 as a text": (_by_a_text, {}),
    "a batch whose square is 1369": (_by_a_square, {"square": 1369}),
    "a batch that twelve divides": (_by_a_divisor, {}),
    "a batch by a bit": (_by_a_bit, {"bit": 16}),
    "a batch by bisection": (_by_bisection, {"limits": lambda: [19, 150]}),
    "a third call": (_third_call, {"calls": 0}),
    "more than forty calls": (_fortieth_call, {"calls": 0}),
    "the largest number so far": (_remembers_the_largest, {"largest": lambda: torch.tensor(1.0)}),
    "as many sizes as were seen": (_warms_up_by_size, {"seen": set}),
    "a scripted branch on a sum": (_script_inside, {}),
    "a median by numpy": (_numpy_inside, {}),
    "the largest as a float": (_largest_as_float, {}),
    "sound: a condition by rows": (_vectorised, {}),
    "sound: torch.cond on a mean": (_one_of_two, {}),
    "sound: through half precision": (_through_half, {}),
    "one of a few numbers": (_isin, {"bad": lambda: torch.tensor([3.0, 17.0, 900.0])}),
    "sound: places by a mask": (_masked_in_place, {}),
    **{f"{'' if name in _LACKING else 'sound: '}{name}": (forward, {}) for name, forward in _EDGES.items()},
}


# --- sequences [batch, length, 8]


def _thirds(self: Any, x: torch.Tensor) -> torch.Tensor:
    parts = x.chunk(3, dim=1)
    return torch.cat([p * (i + 1) for i, p in enumerate(parts)], 1)


def _split_in_three(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.cat([p * (i + 1) for i, p in enumerate(torch.tensor_split(x, 3, dim=1))], 1)


def _unfolded(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x.unfold(1, 5, 3).sum(-1)


def _bucket(self: Any, x: torch.Tensor) -> torch.Tensor:
    n = int(x.shape[1])
    size = min(b for b in (16, 64, 256, 1024) if b >= n)
    return nn.functional.pad(x, (0, 0, 0, size - n)).mean(1)


def _bit_length(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * int(x.shape[1]).bit_length()


def _every_seventh(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x[:, i] for i in range(0, x.shape[1], 7)], 1)


def _prime(self: Any, x: torch.Tensor) -> torch.Tensor:
    n = int(x.shape[1])
    return -x if n > 40 and all(n % k for k in range(2, n)) else x


def _rolled_by_a_third(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x.roll(x.shape[1] // 3, 1)


def _two_ends(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x[:, :40], x[:, -40:]], 1).mean(1)


def _cumulated(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x.cumsum(1) / torch.arange(1, x.shape[1] + 1)[None, :, None]


_OF_LENGTHS: dict[str, Forward] = {
    "three pieces": _thirds,
    "a split in three": _split_in_three,
    "sound: unfolded by three": _unfolded,
    "padded to one of four lengths": _bucket,
    "the number of bits of a length": _bit_length,
    "every seventh": _every_seventh,
    "prime lengths above 40": _prime,
    "rolled by a third": _rolled_by_a_third,
    "sound: two ends": _two_ends,
    "sound: a running mean": _cumulated,
}


# --- two inputs


def _alike_by_a_set(self: Any, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return x * 2 if (x is z) or x.data_ptr() == z.data_ptr() else x + z


def _sorted_alike(self: Any, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    same = (x.sort(1).values == z.sort(1).values).all(1, keepdim=True)
    return torch.where(same, x - z, x + z)


_OF_TWO: dict[str, Forward] = {
    "inputs of one place in memory": _alike_by_a_set,
    "sound: one input is the other in another order": _sorted_alike,
}


def torch_outside() -> Iterator[Further]:
    """(name, the module made anew, arguments of `convert`, inputs that show it)."""
    rows = [{"x": x} for x in (_normal(4, 8), _normal(1, 8), _normal(7, 8, scale=1e3), -np.abs(_normal(20, 8)) * 100,
                               _normal(4, 8) + 60, np.round(_normal(9, 8)), np.zeros((3, 8), np.float32),
                               -np.zeros((3, 8), np.float32))]  # fmt: skip
    rows += [{"x": _normal(n, 8)} for n in (5, 12, 16, 17, 19, 23, 24, 29, 37, 41, 48, 150, 151, 200)]
    sequences = [{"x": _normal(2, n, 8)} for n in (16, 1, 4, 5, 7, 8, 17, 47, 48, 64, 65, 130, 257, 301)]
    made = _normal(4, 8)
    pairs = [{"x": made, "z": z} for z in (_normal(4, 8), made.copy(), np.ascontiguousarray(made[:, ::-1]))]
    for known, settings, inputs in (
        (_OF_ROWS, ROWS, rows),
        ({n: (f, {}) for n, f in _OF_LENGTHS.items()}, LENGTHS, sequences),
        ({n: (f, {}) for n, f in _OF_TWO.items()}, TWO, pairs),
    ):
        for name, (forward, parts) in known.items():
            yield f"outside: {name}", lambda f=forward, p=parts: module(f, **p)().eval(), settings, inputs
