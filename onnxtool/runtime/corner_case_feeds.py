"""Inputs at the edge of what a model may get: where two implementations part first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.feeds import concrete_shape, dim_values

if TYPE_CHECKING:
    from onnxtool.model.domains import Domain

_LARGE = 1e4  # beyond any sane activation, and within float16


def edge_feeds(
    specs: Sequence[TensorSpec], domains: Mapping[str, Domain] | None = None
) -> list[tuple[str, dict[str, np.ndarray]]]:
    """Zeros, the smallest and the largest values, alternating signs, and an empty batch where it is dynamic.

    Integers stay in their domain, or in [0, 1] without one. Strings become empty. Inputs that are not tensors make the
    list empty.

    Returns:
        (what it is, the feeds) for each.
    """
    if any(isinstance(s.dtype, str) and s.dtype != "string" for s in specs):
        return []
    cases = [
        (label, _filled(specs, domains or {}, label, 2)) for label in ("zeros", "smallest", "largest", "alternating")
    ]
    if any(s.shape and not isinstance(s.shape[0], int) for s in specs):
        cases.append(("empty batch", _filled(specs, domains or {}, "zeros", 0)))
    return cases


def _filled(
    specs: Sequence[TensorSpec], domains: Mapping[str, Domain], label: str, batch: int
) -> dict[str, np.ndarray]:
    numbers = dim_values(specs, batch=2)
    if batch == 0:
        numbers |= {s.shape[0]: 0 for s in specs if s.shape and isinstance(s.shape[0], str)}
    feeds = {}
    for spec in specs:
        shape = concrete_shape(spec.shape, numbers, batch=2)
        if batch == 0 and spec.shape and spec.shape[0] is None:
            shape = (0, *shape[1:])
        feeds[spec.name] = _values(spec, shape, domains.get(spec.name), label)
    return feeds


def _values(spec: TensorSpec, shape: tuple[int, ...], domain: Domain | None, label: str) -> np.ndarray:
    if isinstance(spec.dtype, str):
        return np.full(shape, "", dtype=object)
    whole = spec.dtype.kind in "iub"
    if domain is not None:
        low, high = domain.low, domain.high - 1 if whole else domain.high
    else:
        low, high = (0.0, 1.0) if whole else (-_LARGE, _LARGE)
    if label == "alternating":
        flat = np.where(np.arange(int(np.prod(shape))) % 2 == 0, low, high)
        return flat.reshape(shape).astype(spec.dtype)
    value = {"zeros": min(max(0.0, low), high), "smallest": low, "largest": high}[label]
    return np.full(shape, value).astype(spec.dtype)
