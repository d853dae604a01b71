"""The order of equal numbers: torch.topk and torch.sort leave it open, and ONNX's TopK takes the first one first."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_TOPK, _SORT, _ARGSORT = ({getattr(torch, n), getattr(torch.Tensor, n)} for n in ("topk", "sort", "argsort"))
_NAMES = ("dim", "descending")


class StableOrder(TorchFunctionMode):  # type: ignore[misc]
    """Inside the block, of equal numbers the one of lower index comes first, which is one of the orders torch may give.

    Attributes:
        told: torch itself gave another order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.told = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = dict(kwargs or {})
        found = func(*args, **named)
        if func not in _TOPK | _SORT | _ARGSORT or "out" in named or found is NotImplemented:
            return found
        if func in _TOPK:
            named |= dict(zip(("k", "dim", "largest", "sorted"), args[1:], strict=False))
            dim, count = named.get("dim", -1), named["k"]
            if not args[0].dim():
                return found
            order = torch.sort(args[0], dim=dim, descending=named.get("largest", True), stable=True)
            stable = torch.return_types.topk([part.narrow(dim, 0, count) for part in order])
        else:
            named |= dict(zip(_NAMES, args[1:], strict=False))
            stable = func(args[0], **(named | {"stable": True}))
        places = [x if isinstance(x, torch.Tensor) else x.indices for x in (found, stable)]
        self.told = self.told or not torch.equal(*places)
        return stable
