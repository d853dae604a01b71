"""Texts that the outputs of a recogniser spell, and how far two of them are apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def collapse(steps: np.ndarray, blank: int) -> list[int]:
    """What a CTC decoder reads off the best classes of each step: repetitions as one, without blanks.

    Source: Graves et al. 2006, "Connectionist temporal classification", section 3.1.
    """
    kept = np.concatenate([[True], steps[1:] != steps[:-1]]) & (steps != blank)
    return [int(c) for c in steps[kept]]


def edit_distance(a: Sequence[int], b: Sequence[int]) -> int:
    """Insertions, deletions and replacements that turn one sequence into the other.

    Source: Wagner and Fischer 1974, "The string-to-string correction problem".
    """
    if list(a) == list(b):
        return 0
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        above, row[0] = row[0], i
        for j, right in enumerate(b, 1):
            above, row[j] = row[j], min(above + (left != right), row[j] + 1, row[j - 1] + 1)
    return row[-1]
