"""Proofs are what is tested here: they try as many inputs as for users."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def as_many_as_for_users(all_trials: None) -> None:
    """For every test of this folder."""
