"""Every excuse has a bound, and docs/equality.md has all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxtool.equality.rule.rule import EXCUSES, Rule, excuses_table
from onnxtool.equality.rule.tolerance import BITS, NUMBERS, Tolerance

DOCS = Path(__file__).parents[3] / "docs" / "equality.md"


def test_docs_have_the_excuses_as_they_are() -> None:
    assert excuses_table() in DOCS.read_text(encoding="utf-8")


def test_every_excuse_has_a_name_of_its_own_a_bound_and_a_reason() -> None:
    assert len({e.name for e in EXCUSES}) == len(EXCUSES)
    assert all(e.bound and e.reason for e in EXCUSES)


@pytest.mark.parametrize("exact", [BITS, NUMBERS])
def test_nothing_is_excused_where_floats_have_to_be_the_same(exact: Tolerance) -> None:
    rule = Rule(exact, otherwise=Tolerance(1e-2))
    assert rule.is_exact and not rule.excuses
    assert rule.relaxed() == Rule(Tolerance(1e-2), otherwise=Tolerance(1e-2))
    assert rule.relaxed().excuses == EXCUSES
