"""Logits and probabilities."""

from __future__ import annotations

import numpy as np


def probabilities(values: np.ndarray) -> np.ndarray:
    """Values over the last axis as probabilities: as they are when they sum to one, else their softmax."""
    if values.min() >= 0 and np.abs(values.sum(axis=-1) - 1).max() < 1e-3:
        return values
    powers = np.exp(values - values.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))
