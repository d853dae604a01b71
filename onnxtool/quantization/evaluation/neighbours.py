"""Vectors that are compared with one another: does a candidate keep their angles and their neighbours?"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

_MOST_ROWS = 512
_NEAREST = 10


@dataclass
class VectorAgreement:
    """Rows of the float model and of a candidate.

    Attributes:
        right: the float model's rows, at most 512, each of length 1.
        found: the candidate's.
    """

    right: list[np.ndarray] = field(default_factory=list)
    found: list[np.ndarray] = field(default_factory=list)
    rows: int = 0

    def add(self, right: np.ndarray, found: np.ndarray) -> None:
        """Take in a batch; the last axis is the vector's."""
        a, b = (x.reshape(-1, x.shape[-1]).astype(np.float64) for x in (right, found))
        alive = np.linalg.norm(a, axis=1) > 0
        a, b = a[alive][: _MOST_ROWS - self.rows], b[alive][: _MOST_ROWS - self.rows]
        if len(a):
            self.right.append(a / np.linalg.norm(a, axis=1, keepdims=True))
            self.found.append(b / np.maximum(np.linalg.norm(b, axis=1, keepdims=True), 1e-300))
            self.rows += len(a)

    @property
    def cosine(self) -> float:
        """Mean cosine between a row and the same row of the candidate; 1 where there is none."""
        if not self.rows:
            return 1.0
        return float(np.mean(np.einsum("ij,ij->i", np.concatenate(self.right), np.concatenate(self.found))))

    @property
    def recall(self) -> float | None:
        """Share of each row's 10 nearest (by cosine) that the candidate has among its 10; None below 21 rows."""
        if self.rows <= 2 * _NEAREST:
            return None
        nearest = []
        for rows in (np.concatenate(self.right), np.concatenate(self.found)):
            angles = rows @ rows.T
            np.fill_diagonal(angles, -np.inf)
            nearest.append(np.argpartition(-angles, _NEAREST, axis=1)[:, :_NEAREST])
        kept = [len(set(a) & set(b)) for a, b in zip(*nearest, strict=True)]
        return float(np.mean(kept)) / _NEAREST
