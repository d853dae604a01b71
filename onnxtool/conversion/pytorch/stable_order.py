"""The order of equal numbers: torch.topk and torch.sort leave it open, and ONNX's TopK takes the first one first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from onnxtool.conversion.patches import replaced

_NAMES = {
    "topk": ("input", "k", "dim", "largest", "sorted"),
    "sort": ("input", "dim", "descending"),
    "argsort": ("input", "dim", "descending"),
}


@dataclass
class SeenOrder:
    """What was met inside of `stable_order`.

    Attributes:
        differs: torch itself gave another order.
    """

    differs: bool = False


@contextmanager
def stable_order() -> Iterator[SeenOrder]:
    """Inside the block, of equal numbers the one of lower index comes first, which is one of the orders torch may give.

    Functions that a model has imported by name, and exported programs, are as they are. A mode of torch's would see
    these too, but makes layers leave out their shortcuts, which give other numbers where a mask leaves nothing.
    """
    seen = SeenOrder()
    with ExitStack() as stack:
        for owner in (torch, torch.Tensor):
            for name in _NAMES:
                stack.enter_context(replaced(owner, name, _stable(name, getattr(owner, name), seen)))
        stack.enter_context(replaced(torch, "embedding_bag", _checked(torch.embedding_bag)))
        yield seen


def _checked(usual: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.embedding_bag`, which reads beyond its memory where there is no bag, or one begins before the last one."""

    def bags(weight: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, *rest: Any, **named: Any) -> Any:
        ends = bool(named.get("include_last_offset", rest[4:5] == (True,)))
        if len(offsets) <= ends or bool((offsets.diff() < 0).any()):
            raise ValueError("offsets of bags have to ascend")
        return usual(weight, indices, offsets, *rest, **named)

    return bags


def _stable(name: str, usual: Callable[..., Any], seen: SeenOrder) -> Callable[..., Any]:
    def ordered(*args: Any, **named: Any) -> Any:
        found = usual(*args, **named)
        given = {**named, **dict(zip(_NAMES[name], args, strict=False))}
        values = given.get("input")
        if values is None or not values.dim() or given.get("out") is not None or given.get("stable"):
            return found
        dim, descending = given.get("dim", -1), given.get("largest" if name == "topk" else "descending", name == "topk")
        stable = torch.sort(values, dim=dim, descending=descending, stable=True)
        if name == "topk":
            stable = torch.return_types.topk([part.narrow(dim, 0, given["k"]) for part in stable])
        seen.differs = seen.differs or not torch.equal(found if name == "argsort" else found.indices, stable.indices)
        return stable.indices if name == "argsort" else stable

    return ordered
