"""What a configuration declares is bounded by the weights beside it: what is built of it takes memory and time first.

A library builds a module for each layer that a configuration names, before it looks for one weight.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from onnxtool.errors import InputError

# Each of these has tensors of its own, unless layers share them, as ALBERT's dozen does.
_COUNTS = re.compile(r"(layers?|blocks?|depths?|stages?|experts?|block_count|expert_count)$")
_FREE_COUNT = 1024
# Each of these is a dim of a tensor.
_DIMS = re.compile(r"(size|dim|heads|labels|d_model|d_ff|n_embd|n_inner)$")
_FREE_DIM = 1 << 20
_LEAST_TENSOR = 256  # bytes: a guess for weights whose tensors cannot be counted without loading them
_MOST_HEADER = 1 << 28


def verify_declared_sizes(path: Path, config: Mapping[str, Any], folder: Path) -> None:
    """Hold the numbers of layers and sizes in a configuration against the files of weights.

    Args:
        path: of the configuration, for the message.
        config: what it holds, with configurations of parts inside.
        folder: with the weights.

    Raises:
        InputError: it declares more than the weights can be of.
    """
    weights = [f for kind in ("*.safetensors", "*.bin") for f in folder.glob(kind) if f.is_file()]
    if weights:
        verify_counts(path, config, tensors=sum(map(_tensors, weights)), size=sum(f.stat().st_size for f in weights))


def verify_counts(path: Path, config: Mapping[str, Any], *, tensors: int, size: int) -> None:
    """Hold the numbers of a configuration against weights of so many tensors and bytes.

    Raises:
        InputError: it declares more.
    """
    for name, number in _numbers(config, ""):
        if _COUNTS.search(name) and number > max(_FREE_COUNT, tensors):
            raise InputError(f"{path}: {name} is {number:.0f}, but its weights are {tensors} tensors.")
        if _DIMS.search(name) and number > max(_FREE_DIM, size):
            raise InputError(f"{path}: {name} is {number:.0f}, but its weights have {size} bytes.")


def _numbers(value: Any, name: str) -> Iterator[tuple[str, float]]:
    """Every number in it with the name it stands under; in a list, the name of the list."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _numbers(inner, str(key))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _numbers(inner, name)
    elif isinstance(value, (int, float)):
        yield name, value


def _tensors(path: Path) -> int:
    size = path.stat().st_size
    if path.suffix == ".safetensors":
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length <= min(size, _MOST_HEADER):
                try:
                    return len(json.loads(file.read(length)))
                except (ValueError, TypeError, RecursionError):
                    return 0  # who loads it says what is wrong with it
    return size // _LEAST_TENSOR
