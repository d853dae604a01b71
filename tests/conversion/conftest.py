"""Conversions are proven at the least effort; what is about the search itself asks for more."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from onnxtool.conversion import equivalence
from onnxtool.equality.search import branch_distance, difference
from onnxtool.equality.trials import observe, trial

# What `--effort` stands for, in each place that reads it.
_EFFORTS = (
    equivalence.CERTIFICATE_SECONDS,
    trial._SECONDS,
    observe._MOST_TRIALS,
    branch_distance._RUNS,
    difference._MOST_STEPS,
)


@pytest.fixture(scope="module", autouse=True)
def little_to_collect() -> None:
    """`convert` lets models go by collecting garbage: it need not look at what the frameworks made when imported."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def quick_proofs() -> Iterator[None]:
    """What converts without naming an effort does so at "quick", also when a fixture of the module does it.

    A test of the converter needs the graph that it writes and its outputs; a fault of the graph that only a long search
    finds is planted in the tests of tests/equality.
    """
    with pytest.MonkeyPatch.context() as patch:
        for table in _EFFORTS:
            patch.setitem(table, "normal", table["quick"])  # type: ignore[attr-defined]
        yield


@pytest.fixture
def normal_effort(quick_proofs: None) -> Iterator[None]:
    """For a test that is about the search: "normal" is what it is for users."""
    with pytest.MonkeyPatch.context() as patch:
        for table, normal in zip(_EFFORTS, _NORMAL, strict=True):
            patch.setitem(table, "normal", normal)  # type: ignore[attr-defined]
        yield


_NORMAL = tuple(table["normal"] for table in _EFFORTS)  # type: ignore[attr-defined]
