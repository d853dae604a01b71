"""Rows whose nearest neighbours are a matter of order: the last of them and the next are at one distance.

scikit-learn then takes the one that its search tree meets first, which no file can know.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.sklearn.schema import steps_of

_EQUAL = 1e-13  # of squared distances, relative: what their rounding may be


def tied_rows(estimator: Estimator, run: Callable[[], Any], count: int) -> np.ndarray:
    """bool[rows]: where a neighbour of one of the estimator's members is chosen by order alone.

    Args:
        estimator: fitted; its members that look for neighbours are watched.
        run: predicts by it on some rows.
        count: how many rows.
    """
    tied = np.zeros(count, bool)
    members = [m for m in steps_of(estimator) if hasattr(m, "kneighbors") and hasattr(m, "_fit_X")]
    if not members:
        return tied
    with ExitStack() as stack:
        for member in members:
            for name in ("predict", "predict_proba"):
                if hasattr(member, name):
                    watched = _watched(member, getattr(member, name), tied)
                    stack.callback(vars(member).pop, name)
                    vars(member)[name] = watched
        run()
    return tied


def _watched(member: Any, plain: Callable[..., Any], tied: np.ndarray) -> Callable[..., Any]:
    fitted = member._fit_X
    squares = fitted.multiply(fitted) if hasattr(fitted, "multiply") else np.square(fitted)
    # Without a search tree it takes products of whole rows off their lengths.
    longest = float(squares.sum(axis=1).max()) if member._fit_method == "brute" else 0.0

    def watched(rows: Any, *more: Any, **options: Any) -> Any:
        if len(tied) == np.shape(rows)[0] and member.n_neighbors < member.n_samples_fit_:
            last = member.kneighbors(rows, member.n_neighbors + 1)[0][:, -2:] ** 2
            tied[:] |= last[:, 1] - last[:, 0] <= _EQUAL * (last[:, 1] + 2 * longest)
        return plain(rows, *more, **options)

    return watched
