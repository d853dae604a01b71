"""What a proof of equality tried, what it reached, and the input that refutes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Self

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


ODD_MASK = "a mask that holds "  # and a number that is neither 0 nor 1


BRANCHES = ("then branch", "else branch", "loop body")


@dataclass(frozen=True)
class Branch:
    """A part of a graph that runs on some inputs only.

    Attributes:
        model: which of the two models: its name in the report.
        node: name of the If or Loop node, or of a node that decides by a comparison.
        part: "then branch", "else branch", "loop body", "true outcome", "false outcome" or "row 7" of a table.
    """

    model: str
    node: str
    part: str

    def __str__(self) -> str:
        return f"the {self.part} of {self.node!r} in {self.model}"


@dataclass(frozen=True)
class Counterexample:
    """An input on which two models differ.

    Attributes:
        label: what is particular about it: "length 300", "mask padded on the left".
        kind: size, values, mask, thresholds, missing, text, branch or search.
        shapes: of the inputs.
        file: where it was kept (--keep-counterexample), with the reference's outputs; None when it was not.
    """

    label: str
    kind: str
    shapes: Mapping[str, tuple[int, ...]]
    file: str | None = None

    def __str__(self) -> str:
        shapes = ", ".join(f"{n} {list(s)}" for n, s in self.shapes.items())
        kept = f"; kept as {self.file}" if self.file else ""
        return f"{self.label} ({shapes}){kept}"


@dataclass(frozen=True)
class Coverage:
    """What was tried beyond the usual inputs.

    Attributes:
        effort: quick, normal or thorough.
        inputs: how many of each kind were compared.
        tried: what was particular about them, in order.
        refused: what the reference does not take.
        unusable: what the reference gives no finite numbers for.
        rounding: differences that the reference itself shows when its input changes by a few units in the last place.
        masked: differences only at positions that a mask leaves out.
        limits: inputs on which the outputs differ in a way that is known of the framework, and said.
        parts: branches and loop bodies in the models that were watched.
        unreached: those that no input ran.
        forced: always 0; kept for readers of JSON of the first version.
        searched: inputs were also changed towards a larger difference.
        complete: everything that was meant to be tried was; False when the time was up before.
        seed: of the random numbers.
    """

    effort: str
    inputs: Mapping[str, int]
    tried: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    unusable: tuple[str, ...] = ()
    rounding: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    parts: int = 0
    unreached: tuple[Branch, ...] = ()
    forced: int = 0
    searched: bool = False
    complete: bool = True
    seed: int = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know of a proof that found no difference, a line each."""
        lines = []
        if self.unreached:
            more = f" and {len(self.unreached) - 5} more" if len(self.unreached) > 5 else ""
            listed = ", ".join(str(b) for b in self.unreached[:5])
            lines.append(f"equal where run: no input tried reaches {listed}{more}")
        odd_masks = [label for label in self.limits if label.startswith(ODD_MASK)]
        others = [label for label in self.limits if label not in odd_masks]
        if others:
            listed = "; ".join(dict.fromkeys(others))
            lines.append(f"the outputs differ on some inputs: {listed}; no difference on the other inputs tried")
        if odd_masks:
            lines.append(
                "with a mask of zeros and ones the outputs are equal; of other numbers, which masks are not made of, "
                f"the two make different things, so that the outputs differ ({odd_masks[0]})"
            )
        if self.masked:
            lines.append(
                f"on the inputs tried, outputs differ only at positions that the mask leaves out ({self.masked[0]})"
            )
        return tuple(lines)

    @property
    def summary(self) -> str:
        """In a line: how many inputs of each kind, and what was not reached."""
        known = {kind.value: kind.label for kind in TrialKind}  # a report may come from another version's JSON
        kinds = ", ".join(f"{count} {known.get(kind, kind)}" for kind, count in self.inputs.items())
        left = "" if self.complete else "; more were left out (--effort thorough tries more)"
        missed = f"; {len(self.unreached)} of {self.parts} branches not reached" if self.unreached else ""
        return f"{kinds or 'no further inputs'}{missed}{left}"


@dataclass(frozen=True)
class Assumption:
    """Something that must hold for a rewritten model to be right.

    Attributes:
        claim: what is assumed, in one sentence: "dims named 'size' are equal".
        status: "held": a run in which it would show agreed; "broken": a run contradicts it; "unproven": no run could
            tell.
        reason: what showed it, or why nothing could.
        node: where it is assumed; empty where it is about the whole model.
    """

    claim: str
    status: Literal["held", "broken", "unproven"]
    reason: str = ""
    node: str = ""

    @property
    def holds(self) -> bool:
        """Whether a rewrite may rely on it."""
        return self.status == "held"

    def __str__(self) -> str:
        where = f"{self.node}: " if self.node else ""
        return f"{where}{self.claim}{f' ({self.reason})' if self.reason else ''}"
