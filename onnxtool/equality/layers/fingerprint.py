"""Knowing a tensor again by its content, when it is gone: a few random projections of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

_PROBES = 8
_WIDTH = 4096
# Projections of equal tensors differ by rounding only: so much of the tensor's norm, for directions of such length.
_ROUNDING = 1e-5 * 64


@dataclass(frozen=True)
class Sketch:
    """What is left of a float tensor.

    Attributes:
        shape: of the tensor.
        norm: its 2-norm.
        places: its projections on fixed directions; the same ones for every tensor of as many elements.
    """

    shape: tuple[int, ...]
    norm: float
    places: np.ndarray

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape))

    def distance(self, other: Sketch) -> float:
        """0 for the same content, up to 1 for content that is the same but for rounding, infinite without a content."""
        if not (0 < self.norm < np.inf and 0 < other.norm < np.inf):
            return np.inf
        return float(np.abs(self.places - other.places).max()) / (_ROUNDING * max(self.norm, other.norm))


def sketch(value: Any) -> Sketch | None:
    """Sketch a tensor; None for what is not a float tensor, or a single number."""
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f" or value.size < 2:
        return None
    flat = value.astype(np.float32, copy=False).ravel()
    block = _directions(min(flat.size, _WIDTH))
    whole = flat.size // block.shape[1] * block.shape[1]
    rows = flat[:whole].reshape(-1, block.shape[1])
    with np.errstate(all="ignore"):
        weights = np.arange(1, len(rows) + 1, dtype=np.float32) / len(rows)
        places = block @ (weights @ rows)
        places += block[:, : flat.size - whole] @ flat[whole:]
        return Sketch(value.shape, float(np.linalg.norm(flat)), places)


@lru_cache(maxsize=16)
def _directions(width: int) -> np.ndarray:
    return np.random.default_rng(width).standard_normal((_PROBES, width), dtype=np.float32)
