"""Vectors that are compared with one another: does a candidate keep their angles and their neighbours?"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from onnxtool.quantization.evaluation.bounds import amount_bound

_MOST_ROWS = 512
_NEAREST = 10
_ALIKE = 1e-12  # cosine, by which no row is nearer than another
_DISCOUNT = 1 / np.log2(np.arange(_NEAREST) + 2.0)  # by rank: the second is looked at less often than the first


@dataclass
class VectorAgreement:
    """Rows of the float model and of a candidate, at most 512.

    Attributes:
        pairs: width of a row -> batches of (the float model's, of length 1, the candidate's, the sample of each); rows
            of different widths (as long as their sequence) are not compared with one another.
    """

    pairs: dict[int, list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = field(default_factory=dict)
    rows: int = 0
    samples: int = 0

    def add(self, right: np.ndarray, found: np.ndarray, samples: int) -> None:
        """Take in a batch of so many samples; the last axis is the vector's."""
        a, b = (x.reshape(-1, x.shape[-1]).astype(np.float64) for x in (right, found))
        each = max(len(a) // max(samples, 1), 1)
        alive = np.linalg.norm(a, axis=1) > 0
        ids = (self.samples + np.arange(len(a)) // each)[alive][: _MOST_ROWS - self.rows]
        a, b = a[alive][: _MOST_ROWS - self.rows], b[alive][: _MOST_ROWS - self.rows]
        self.samples += samples
        self.__dict__.pop("_lost", None)
        if len(a):
            a = a / np.linalg.norm(a, axis=1, keepdims=True)
            b = b / np.maximum(np.linalg.norm(b, axis=1, keepdims=True), 1e-300)
            self.pairs.setdefault(a.shape[1], []).append((a, b, ids))
            self.rows += len(a)

    def cosine(self, confidence: float | None = None) -> float:
        """Mean cosine between a row and the same row of the candidate, at least where a confidence is given; 1 where
        there is none.
        """
        off = [(1 - (a * b).sum(axis=1), ids) for batches in self.pairs.values() for a, b, ids in batches]
        return 1 - _mean(off, confidence) if off else 1.0

    def recall(self, confidence: float | None = None) -> float | None:
        """What the candidate's 10 nearest of each row (by cosine) are worth, of what the 10 nearest are, at least where
        a confidence is given; None below 21 rows alike.

        A row is worth by how much it is nearer than all rows are on the mean, by the float model's cosines, and less
        the later it comes: one that takes the place of another as near costs nothing (Jarvelin and Kekalainen 2002,
        "Cumulated gain-based evaluation of IR techniques").
        """
        return 1 - _mean(self._lost, confidence) if self._lost else None

    @cached_property
    def _lost(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of each row with enough others, the share of what its nearest are worth; and its sample."""
        joined = [[np.concatenate(x) for x in zip(*batches, strict=True)] for batches in self.pairs.values()]
        return [(_worth_lost(a, b), ids) for a, b, ids in joined if len(a) > 2 * _NEAREST]


def _mean(shares: list[tuple[np.ndarray, np.ndarray]], confidence: float | None) -> float:
    """The mean share of all rows, or what it is at most: rows of one sample belong together."""
    values, ids = (np.concatenate(x) for x in zip(*shares, strict=True))
    values = np.maximum(values, 0.0)
    if confidence is None:
        return float(values.mean())
    sums = np.bincount(np.unique(ids, return_inverse=True)[1], values)
    return amount_bound(sums, confidence) * len(sums) / len(values)


def _worth_lost(right: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """By row, which share of what its nearest are worth those by the other set are not."""
    near, found = (rows @ rows.T for rows in (right, actual))
    means = (near.sum(axis=1) - np.diag(near)) / (len(near) - 1)
    worth = []
    for angles in (near, found):
        np.fill_diagonal(angles, -np.inf)
        nearest = np.argpartition(-angles, _NEAREST, axis=1)[:, :_NEAREST]
        order = np.argsort(-np.take_along_axis(angles, nearest, axis=1), axis=1)
        nearest = np.take_along_axis(nearest, order, axis=1)
        worth.append((np.take_along_axis(near, nearest, axis=1) - means[:, None]) @ _DISCOUNT)
    best, chosen = worth
    return np.where(best > _ALIKE, (best - chosen) / np.maximum(best, _ALIKE), 0.0)
