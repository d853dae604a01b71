"""Whether inputs move an output: what is the same in every row of every run tells nothing of how it is computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from onnxtool.runtime.feeds import flatten

_FLOAT_ROWS, _OTHER_ROWS = 2, 8  # a label may well come out alike in a few rows


class Movement:
    """Takes in what a model gave for one output, run by run.

    Attributes:
        found: a row, of any run, is another than the first.
    """

    def __init__(self) -> None:
        self.found = False
        self._first: np.ndarray | None = None
        self._rows = 0

    def add(self, output: Any) -> None:
        """Take in one run.

        Args:
            output: of any shape; rows are along the first dim. One without dims or with one is a row for each element.
        """
        array = np.asarray(output)
        if self.found or not array.size:
            return
        rows = array.reshape(len(array), -1) if array.ndim > 1 else array.reshape(-1, 1)
        if self._first is None:
            self._first = rows[0].copy()
        if rows.shape[1] == self._first.size:
            self.found = not _alike(rows, self._first)
        else:  # at other sizes only the same number throughout is the same row
            self.found = not (_alike(rows, self._first[:1]) and _alike(self._first, self._first[:1]))
        self._rows += len(rows)

    @property
    def is_constant(self) -> bool:
        """Whether enough rows were seen and all of them are alike."""
        if self.found or self._first is None:
            return False
        return self._rows >= (_FLOAT_ROWS if self._first.dtype.kind in "fcV" else _OTHER_ROWS)


def movements(runs: Iterable[Mapping[str, Any]]) -> dict[str, Movement]:
    """How the outputs move among runs of one model."""
    known: dict[str, Movement] = {}
    for outputs in runs:
        for name, value in flatten(outputs).items():
            known.setdefault(name, Movement()).add(value)
    return known


def _alike(rows: np.ndarray, row: np.ndarray) -> bool:
    same = rows == row
    if rows.dtype.kind in "fcV":
        same |= (rows != rows) & (row != row)
    return bool(np.all(same))
