"""Vectors that are compared with one another: does a candidate keep their angles and their neighbours?"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

_MOST_ROWS = 512
_NEAREST = 10


@dataclass
class VectorAgreement:
    """Rows of the float model and of a candidate, at most 512.

    Attributes:
        pairs: width of a row -> batches of (the float model's, of length 1, the candidate's); rows of different widths
            (as long as their sequence) are not compared with one another.
    """

    pairs: dict[int, list[tuple[np.ndarray, np.ndarray]]] = field(default_factory=dict)
    rows: int = 0

    def add(self, right: np.ndarray, found: np.ndarray) -> None:
        """Take in a batch; the last axis is the vector's."""
        a, b = (x.reshape(-1, x.shape[-1]).astype(np.float64) for x in (right, found))
        alive = np.linalg.norm(a, axis=1) > 0
        a, b = a[alive][: _MOST_ROWS - self.rows], b[alive][: _MOST_ROWS - self.rows]
        if len(a):
            a = a / np.linalg.norm(a, axis=1, keepdims=True)
            b = b / np.maximum(np.linalg.norm(b, axis=1, keepdims=True), 1e-300)
            self.pairs.setdefault(a.shape[1], []).append((a, b))
            self.rows += len(a)

    @property
    def cosine(self) -> float:
        """Mean cosine between a row and the same row of the candidate; 1 where there is none."""
        if not self.rows:
            return 1.0
        return sum(float((a * b).sum()) for batches in self.pairs.values() for a, b in batches) / self.rows

    @property
    def recall(self) -> float | None:
        """Share of each row's 10 nearest (by cosine) that the candidate has among its 10; None below 21 rows alike."""
        kept: list[int] = []
        for batches in self.pairs.values():
            kept += _kept(*(np.concatenate(rows) for rows in zip(*batches, strict=True)))
        return float(np.mean(kept)) / _NEAREST if kept else None


def _kept(*sets: np.ndarray) -> list[int]:
    """How many of each row's nearest are the same in both sets; nothing of few rows."""
    if len(sets[0]) <= 2 * _NEAREST:
        return []
    nearest = []
    for rows in sets:
        angles = rows @ rows.T
        np.fill_diagonal(angles, -np.inf)
        nearest.append(np.argpartition(-angles, _NEAREST, axis=1)[:, :_NEAREST])
    return [len(set(a) & set(b)) for a, b in zip(*nearest, strict=True)]
