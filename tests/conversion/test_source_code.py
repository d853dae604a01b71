"""What a source's own code compares with, and what it asks of the machine."""

from __future__ import annotations

import datetime
import os
import time

import pytest

from onnxtool.conversion.source_code import read_code


class Net:
    window = 77

    def __init__(self) -> None:
        self.longest = 512

    def compares(self, length: int = 5) -> bool:
        return length > self.longest or length % 13 == 0 or length < 0.25

    def clock(self) -> float:
        return time.time()

    def date(self) -> int:
        return datetime.datetime.now().weekday()

    def environment(self) -> str:
        return os.environ.get("SCALE", "2")

    def variable(self) -> str | None:
        return os.getenv("SCALE")


def test_constants_and_attributes_beside_comparisons() -> None:
    read = read_code(Net().compares)
    assert {512, 13} <= set(read.sizes)
    assert 0.25 in read.values
    assert read.machine == []


@pytest.mark.parametrize(
    ("method", "what"),
    [
        ("clock", "the clock"),
        ("date", "the clock"),
        ("environment", "an environment variable"),
        ("variable", "an environment variable"),
    ],
)
def test_what_changes_from_machine_to_machine_is_named_with_its_line(method: str, what: str) -> None:
    (found,) = read_code(getattr(Net(), method)).machine
    assert found.startswith(f"{what} (test_source_code.py line ")


def test_a_library_that_asks_is_no_matter_of_the_model() -> None:
    import tempfile

    assert read_code(tempfile.gettempdirb).machine == []
