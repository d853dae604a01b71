"""Limits as they are typed: positive numbers of known names, in force for the whole process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import pytest

from onnxtool.errors import UsageError
from onnxtool.model import io
from onnxtool.model.safety import limits
from onnxtool.model.safety.limits import DEFAULT, Limits, parse_limits, use, verify_environment


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    known = asdict(DEFAULT)
    yield
    for name, value in known.items():
        setattr(DEFAULT, name, value)


def test_numbers_and_sizes_are_read() -> None:
    assert parse_limits(["nodes=1e3", "memory-bytes=500MB", "depth=2"]) == Limits(
        max_nodes=1000, max_memory_bytes=500_000_000, max_depth=2
    )


@pytest.mark.parametrize("setting", ["nodes=0", "nodes=-1", "nodes=many", "nodes=1e999", "nodes=500MB", "rows=5"])
def test_what_is_no_limit_is_refused(setting: str) -> None:
    with pytest.raises(UsageError, match="--limit"):
        parse_limits([setting])


def test_limits_hold_for_all_who_have_them() -> None:
    held = DEFAULT
    use(["nodes=7"])
    assert held.max_nodes == 7 and held.max_depth == Limits().max_depth


def test_what_is_wrong_in_the_environment_is_said_when_a_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    verify_environment()
    monkeypatch.setenv(limits.ENVIRONMENT, "nodes=0")
    made, fault = limits._of_environment()
    assert made == Limits() and fault.startswith(f"{limits.ENVIRONMENT}=nodes=0")
    monkeypatch.setattr(limits, "FAULT", fault)
    with pytest.raises(UsageError, match=limits.ENVIRONMENT):
        io.read_proto("m.onnx")
