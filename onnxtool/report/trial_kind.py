"""Kinds of further inputs, and what each means for a verdict: declared once."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Self

# What a kind may mean, beside its label.
_EXACT, _MAY_FAIL, _REPORT_ONLY, _WITHOUT_SOURCE = "exact", "may fail", "report only", "without source"


class TrialKind(StrEnum):
    """What is particular about an input. The first word of each is its value, which stands in JSON."""

    _label: str
    _meaning: frozenset[str]

    def __new__(cls, value: str, label: str = "", meaning: Iterable[str] = ()) -> Self:
        """A member with its label in reports, and what it means."""
        member = str.__new__(cls, value)
        member._value_, member._label, member._meaning = value, label or value, frozenset(meaning)
        return member

    USUAL = "usual", "usual", {_EXACT}
    SIZE = "size", "other sizes", {_WITHOUT_SOURCE}
    EMPTY = "empty", "sizes of 0", {_MAY_FAIL}
    VALUES = "values", "other values"
    MASK = "mask", "masks", {_EXACT, _WITHOUT_SOURCE}
    # Rows of which nothing is left in.
    EMPTY_MASK = "empty mask", "masks that leave nothing in", {_EXACT, _WITHOUT_SOURCE}
    # A mask is there to hold ones and zeros, and squares of 1e20 do not fit into a float.
    MASK_VALUES = "mask values", "masks of other numbers", {_REPORT_ONLY}
    EXTREME_VALUES = "extreme values", "values of 1e20", {_REPORT_ONLY}
    THRESHOLDS = "thresholds", "at thresholds", {_EXACT}
    MISSING = "missing", "not finite"
    # NaN, infinity and numbers for which the reference gives no finite numbers.
    MISSING_BROKEN = "missing, not finite", "not finite, for which the reference gives no numbers", {_MAY_FAIL}
    MISSING_ROWS = "missing rows", "nothing but NaN in places", {_MAY_FAIL}
    TEXT = "text", "other texts", {_WITHOUT_SOURCE}
    BRANCH = "branch", "for branches"
    SEARCH = "search"
    BROKEN = "not finite", "for which the reference gives NaN or infinity", {_MAY_FAIL}

    @property
    def label(self) -> str:
        """In reports, after how many there were."""
        return self._label

    @property
    def is_exact(self) -> bool:
        """Its values lie next to a step on purpose, so rounding may not excuse a difference there."""
        return _EXACT in self._meaning

    @property
    def may_fail(self) -> bool:
        """A candidate that fails to run there is loud, and no wrong answer: that is said and no failure."""
        return _MAY_FAIL in self._meaning

    @property
    def report_only(self) -> bool:
        """A difference there is said and no failure."""
        return _REPORT_ONLY in self._meaning

    @property
    def is_like_usual(self) -> bool:
        """Inputs of its kind may be changed further, towards branches and differences."""
        return self is not TrialKind.EMPTY and not self.report_only

    @property
    def without_source(self) -> bool:
        """A difference there is judged without a second run of the source."""
        return _WITHOUT_SOURCE in self._meaning
