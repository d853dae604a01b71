"""What a source's own code compares with, and what it asks of the machine."""

from __future__ import annotations

import cProfile
import datetime
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from onnxtool.conversion.source_code import caught_errors, read_code


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


BEYOND = 41
SPECIAL = frozenset([23, 24])


class Holds:
    """Numbers in collections, arguments and globals."""

    def __init__(self) -> None:
        self.factors = {29: 3.0}
        self.bounds = [19, 150]
        self.between = range(300, 400)
        self.flag = True

    def attributes(self, length: int = 5) -> float:
        found = self.factors.get(length, 1.0)
        return found if length in self.bounds or length in self.between else float(self.flag)

    def names(self, length: int = 5, limit: int = 77) -> bool:
        return length > limit or length > BEYOND or length in SPECIAL or length in (91, 93)


def test_numbers_in_collections_arguments_and_globals() -> None:
    assert {29, 19, 150, 300, 400} <= set(read_code(Holds().attributes).sizes)
    assert {77, 41, 23, 24, 91, 93} <= set(read_code(Holds().names).sizes)


def around(limit: int) -> Callable[[], bool]:
    def inner(length: int = 5) -> bool:
        return length > limit

    return inner


def test_what_a_function_around_it_holds_counts() -> None:
    assert 613 in read_code(around(613)).sizes


class Tries:
    def __init__(self, numbers: np.ndarray) -> None:
        self.numbers = numbers

    def reshapes(self) -> np.ndarray:
        try:
            return self.numbers.reshape(-1, 5)
        except ValueError:
            return self.numbers

    def looks_up(self) -> int:
        try:
            return {1: 2}.pop(3)
        except KeyError:
            return len(self.numbers.reshape(-1))


def test_a_profiler_that_runs_goes_on() -> None:
    profile = cProfile.Profile()
    profile.enable()
    read_code(lambda: max(1, 2))
    sum([3, 4])
    profile.disable()
    assert any("sum" in str(entry.code) for entry in profile.getstats())


def test_an_error_of_a_library_that_is_caught_is_named_with_its_line() -> None:
    (found,) = caught_errors(Tries(np.zeros(4)).reshapes, "numpy")
    assert found.startswith("test_source_code.py line ")
    assert caught_errors(Tries(np.zeros(5)).reshapes, "numpy") == []
    assert caught_errors(Tries(np.zeros(4)).reshapes, "torch") == []
    assert caught_errors(Tries(np.zeros(4)).looks_up, "numpy") == []


@dataclass
class Settings:
    limit: int = 37
    bounds: tuple[int, ...] = (311, 313)


SETTINGS = SimpleNamespace(longest=419)


class Configured:
    window = 57

    def __init__(self) -> None:
        self.settings = Settings()
        self.table = {"most": 61, "least": {"inner": 3}}
        self.edges = np.array([[67, 71]])

    def compares(self, length: int = 5) -> bool:
        inner = length > self.settings.limit or length in self.settings.bounds or length == self.window
        return inner or length > self.table["most"] or length > SETTINGS.longest or length > Settings.limit

    def searches(self, length: int = 5) -> int:
        return int(np.searchsorted(self.edges.reshape(-1), length))

    @property
    def broken(self) -> int:
        raise AssertionError("a property was run")

    def has_property(self, length: int = 5) -> bool:
        return length < 2 and length > self.broken


def test_numbers_of_settings_classes_and_arrays() -> None:
    read = read_code(Configured().compares)
    assert {37, 311, 313, 57, 61, 419} <= set(read.sizes)
    assert {67, 71} <= set(read_code(Configured().searches).sizes)
    read_code(Configured().has_property)
