"""What `--effort normal` stands for while tests run: what quick does, except where a test is about the search."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

from onnxtool.conversion import equivalence
from onnxtool.equality.search import branch_distance, difference
from onnxtool.equality.trials import observe, trial

# What `--effort` stands for, in each place that reads it.
_TABLES = (
    equivalence.CERTIFICATE_SECONDS,
    trial._SECONDS,
    observe._MOST_TRIALS,
    branch_distance._RUNS,
    difference._MOST_STEPS,
)
_NORMAL = tuple(table["normal"] for table in _TABLES)  # type: ignore[attr-defined]


def are_quick() -> bool:
    """Whether "normal" is "quick" in this process."""
    return bool(trial._SECONDS["normal"] == trial._SECONDS["quick"])


@contextmanager
def meaning(*, quick: bool) -> Iterator[None]:
    """Makes "normal" the same as "quick", or what it is for users."""
    with ExitStack() as changed:
        for table, normal in zip(_TABLES, _NORMAL, strict=True):
            changed.enter_context(mock.patch.dict(table, normal=table["quick"] if quick else normal))  # type: ignore
        yield
