"""The tables that discrete Fourier transforms are products with."""

from __future__ import annotations

import numpy as np


def waves(rows: int, columns: int, size: int, sign: int = 1) -> np.ndarray:
    """Cosines and sines of sign 2 pi i j k / size, float64[2, rows, columns], exact where they are 0.

    Source: Oppenheim and Schafer, "Discrete-Time Signal Processing", 3rd edition, chapter 8.
    """
    angles = 2 * np.pi * (np.outer(np.arange(rows), np.arange(columns)) % size) / size
    found = np.stack([np.cos(angles), sign * np.sin(angles)])
    return np.where(np.abs(found) < 1e-15, 0.0, found)  # no -0.0
