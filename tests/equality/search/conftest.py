"""These tests are about the search: "normal" is what it is for users."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def search_as_for_users(normal_effort: None) -> None:
    """Each test of this folder."""
