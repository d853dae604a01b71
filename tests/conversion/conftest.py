"""Conversions start with little garbage to collect."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True)
def little_to_collect() -> None:
    """`convert` lets models go by collecting garbage: it need not look at what the frameworks made when imported.

    Some of it is imported only by the first tests that export.
    """
    gc.freeze()
