"""Conversions start with little garbage to collect, and search a few steps for larger differences."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from unittest import mock

import pytest

from onnxtool.equality.search import difference

_STEPS = 60


@pytest.fixture(scope="module", autouse=True)
def few_steps(quick_proofs: None) -> Iterator[None]:
    """Tests of converters plant no fault that only a search finds; those of the search are in tests/equality/search.

    At effort quick a search takes up to 500 steps, and half a second of every conversion.
    """
    with mock.patch.dict(difference._MOST_STEPS, quick=_STEPS, normal=_STEPS):
        yield


@pytest.fixture(scope="module", autouse=True)
def little_garbage() -> None:
    """What earlier modules left is let go."""
    gc.collect()


@pytest.fixture(autouse=True)
def little_to_collect() -> None:
    """`convert` lets models go by collecting garbage: it need not look at what the frameworks made when imported.

    Some of it is imported only by the first tests that export.
    """
    gc.freeze()
