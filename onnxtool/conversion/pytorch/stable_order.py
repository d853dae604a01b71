"""The order of equal numbers: torch.topk and torch.sort leave it open, and ONNX's TopK takes the first one first."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_NAMES = {
    "topk": ("input", "k", "dim", "largest", "sorted"),
    "sort": ("input", "dim", "descending"),
    "argsort": ("input", "dim", "descending"),
}
_KINDS = {
    function: name
    for name in _NAMES
    for function in (getattr(torch, name), getattr(torch.Tensor, name), getattr(torch.ops.aten, name).default)
}


class StableOrder(TorchFunctionMode):  # type: ignore[misc]
    """Inside the block, of equal numbers the one of lower index comes first, which is one of the orders torch may give.

    Attributes:
        told: torch itself gave another order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.told = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found, kind = func(*args, **(kwargs or {})), _KINDS.get(func)
        if kind is None:
            return found
        given = {**(kwargs or {}), **dict(zip(_NAMES[kind], args, strict=False))}
        values = given.get("input", given.get("self"))
        if values is None or not values.dim() or given.get("out") is not None or given.get("stable"):
            return found
        dim, descending = given.get("dim", -1), given.get("largest" if kind == "topk" else "descending", kind == "topk")
        stable = torch.sort(values, dim=dim, descending=descending, stable=True)
        if kind == "topk":
            stable = torch.return_types.topk([part.narrow(dim, 0, given["k"]) for part in stable])
        places = found if kind == "argsort" else found[1]
        self.told = self.told or not torch.equal(places, stable.indices)
        return stable.indices if kind == "argsort" else stable
