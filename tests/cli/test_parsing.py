"""Options that hold numbers."""

from __future__ import annotations

import pytest

from onnxtool.cli.parsing import byte_count
from onnxtool.errors import UsageError


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("100", 100), ("64MB", 64_000_000), ("1.5 GB", 1_500_000_000), ("3k", 3000), ("2tb", 2 * 10**12)],
)
def test_sizes(text: str, expected: int) -> None:
    assert byte_count("--size", text) == expected


@pytest.mark.parametrize("text", ["", "-1", "MB", "1 XB", "1e9", "nan", "12 34", "٣MB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match="such as 64MB"):
        byte_count("--size", text)


def test_no_size() -> None:
    assert byte_count("--size", None) is None
