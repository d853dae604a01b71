"""Logits and probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_SUMS_TO = 1e-3  # how near to one


def probabilities(values: np.ndarray) -> np.ndarray:
    """Values over the last axis as probabilities: as they are when they sum to one, else their softmax."""
    if values.min() >= 0 and np.abs(values.sum(axis=-1) - 1).max() < _SUMS_TO:
        return values
    powers = np.exp(values - values.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def are_distributions(outputs: Sequence[np.ndarray]) -> bool:
    """Whether every row of an output sums to one: whatever its graph says, it is of classes then."""
    return all(
        a.dtype.kind == "f" and a.ndim >= 2 and a.size and a.shape[-1] > 1
        and a.min() >= 0 and np.abs(a.sum(axis=-1, dtype=np.float64) - 1).max() < _SUMS_TO
        for a in outputs
    )  # fmt: skip
