"""Numbers as people read them."""

from __future__ import annotations

import pytest

from onnxtool.cli.text import cosine, plural


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1.0, "1.00000"), (1 - 2e-7, "1 - 2.0e-07"), (0.99312, "0.99312"), (0.999994, "0.99999"), (-1.0, "-1.00000")],
)
def test_a_cosine_is_never_rounded_to_one(value: float, shown: str) -> None:
    assert cosine(value) == shown


def test_plural() -> None:
    assert [plural(n, "core") for n in (0, 1, 2)] == ["0 cores", "1 core", "2 cores"]
