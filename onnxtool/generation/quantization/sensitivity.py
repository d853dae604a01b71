"""Groups of products, and how many of them a budget allows in fewer bits."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import onnx_ir as ir

_PARTS = 5
_EVALUATIONS = 5
Found = TypeVar("Found")


@dataclass(frozen=True)
class LayerGroup:
    """Products of one kind in one part of the layers.

    Attributes:
        name: "down_proj of layers 6 to 11".
        nodes: their names.
        weights: how many weights they have.
    """

    name: str
    nodes: tuple[str, ...]
    weights: int


def groups_of(nodes: Sequence[ir.Node], layers: int) -> list[LayerGroup]:
    """Put the products of the layers into groups by their kind and a fifth of the layers."""
    found: dict[str, list[tuple[str, int]]] = {}
    starts = [-(-layers * part // _PARTS) for part in range(_PARTS + 1)]
    for node in nodes:
        number = re.search(r"(?:layers|h|blocks?)[./](\d+)[./]", str(node.name))
        weight = node.inputs[1]
        if number is None or weight is None or weight.const_value is None:
            continue
        kind = re.split(r"[./]", str(node.name)[number.end() :])
        kind = [k for k in kind if not k.startswith("MatMul")]
        part = max(0, bisect_right(starts, int(number[1]), hi=_PARTS) - 1)
        key = f"{kind[-1] if kind else 'products'} of layers {starts[part]} to {starts[part + 1] - 1}"
        found.setdefault(key, []).append((str(node.name), int(weight.const_value.size)))
    return [LayerGroup(k, tuple(n for n, _ in v), sum(s for _, s in v)) for k, v in found.items()]


def widest_within(
    ordered: Sequence[LayerGroup],
    measure: Callable[[Sequence[LayerGroup]], Found],
    fits: Callable[[Found], bool],
    late: Callable[[], bool],
) -> list[Found]:
    """Bisect for the most groups from the front that still fit, with at most five measurements; all that were made."""
    low, high = 0, len(ordered)
    found: list[Found] = []
    middle = max(1, len(ordered) // 3)
    while len(found) < _EVALUATIONS and low < high and not late():
        found.append(measure(ordered[:middle]))
        if fits(found[-1]):
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
        if middle == low:
            break
    return found
