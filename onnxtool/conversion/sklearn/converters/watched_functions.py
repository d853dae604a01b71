"""Which of NumPy's functions a function of the user's calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


class _Watched(np.ndarray):
    """An array that notes what is called with it, and with what comes of it."""

    seen: set[str]

    def __array_finalize__(self, other: Any) -> None:
        self.seen = getattr(other, "seen", set())

    def __array_ufunc__(self, ufunc: np.ufunc, method: Any, *inputs: Any, **kwargs: Any) -> Any:
        """Note it, and call it with plain arrays."""
        self.seen.add(ufunc.__name__ if method == "__call__" else method)
        outputs = {"out": tuple(map(_plain, kwargs.pop("out")))} if "out" in kwargs else {}
        return self._watched(getattr(ufunc, method)(*map(_plain, inputs), **kwargs, **outputs))

    def __array_function__(self, function: Any, types: Any, given: Any, options: Any) -> Any:
        """Some give plain arrays."""
        return self._watched(super().__array_function__(function, types, given, options))

    def _watched(self, found: Any) -> Any:
        if isinstance(found, np.ndarray):
            found = found.view(_Watched)
            found.seen = self.seen
        return found


def _plain(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, _Watched) else value


def functions_of(function: Callable[..., Any], columns: int, options: Mapping[str, Any]) -> set[str] | None:
    """The names of those that it calls on ones, float64 [1, columns]; None where it does not take such a row."""
    rows = np.ones((1, columns)).view(_Watched)
    seen = rows.seen
    try:
        with np.errstate(all="ignore"):
            function(rows, **options)
    except Exception:  # of any code
        return None
    return seen
