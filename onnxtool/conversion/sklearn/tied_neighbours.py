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
    members = [m for m in steps_of(estimator) if hasattr(m, "_fit_X") and hasattr(m, "n_neighbors")]
    if not members:
        return tied
    with ExitStack() as stack:
        for member in members:
            finds = hasattr(member, "kneighbors")
            for name in ("predict", "predict_proba") if finds else ("transform",):
                if hasattr(member, name):
                    watched = (_watched if finds else _watched_imputer)(member, getattr(member, name), tied)
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


def _watched_imputer(member: Any, plain: Callable[..., Any], tied: np.ndarray) -> Callable[..., Any]:
    """Of an imputer: the neighbours of each missing number are those that have it."""
    from sklearn.metrics.pairwise import nan_euclidean_distances

    def watched(rows: Any, *more: Any, **options: Any) -> Any:
        given, fitted = np.asarray(rows, np.float64), np.asarray(member._fit_X)
        if len(tied) == len(given) and np.isnan(given).any():
            squares = np.nan_to_num(nan_euclidean_distances(given, fitted, squared=True), nan=np.inf)
            longest = float(np.nansum(fitted * fitted, axis=1).max())
            for column in range(given.shape[1]):
                lacking, known = np.isnan(given[:, column]), ~np.isnan(fitted[:, column])
                if known.sum() > member.n_neighbors and lacking.any():
                    near = np.partition(
                        squares[lacking][:, known], (member.n_neighbors - 1, member.n_neighbors), axis=1
                    )
                    last, following = near[:, member.n_neighbors - 1], near[:, member.n_neighbors]
                    with np.errstate(invalid="ignore"):  # of rows that are far from all
                        tied[lacking] |= ~(following - last > _EQUAL * (following + 2 * longest))
        return plain(rows, *more, **options)

    return watched
