"""What a report says to people, as data. Each form (terminal, HTML page, Markdown) draws any view.

Texts come from untrusted files: the forms neutralise all of them, so a view passes them on as they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from onnxtool.report.check import Finding, Severity

Tone = Literal["", "good", "bad", "warn", "dim", "info"]
# "brief": only where space is short (a terminal without -v, Markdown); "full": only with -v and on pages.
When = Literal["always", "brief", "full"]

_MEANINGS: dict[Tone, tuple[str, ...]] = {
    "good": ("passed", "equal", "kept", "faster", "built", "installed", "built in", "plugin", "yes"),
    "bad": ("failed", "differs", "slower", "broken", "unreadable"),
    "warn": ("warned", "unclear", "stale", "missing", "not installed", "other tensor", "not compared"),
    "dim": ("skipped",),
}
_TONES: dict[str, Tone] = {word: tone for tone, words in _MEANINGS.items() for word in words}


@dataclass(frozen=True)
class Words:
    """A cell that has a tone, or on a page a link."""

    text: str
    tone: Tone = ""
    link: str = ""

    def __str__(self) -> str:
        return self.text


Cell = str | Words
Row = tuple[Cell, ...]


def state(word: str, tone: Tone = "") -> Words:
    """A word such as "passed" or "slower" in the tone that it has in all reports, or in another one."""
    return Words(word, tone or _TONES.get(word, ""))


@dataclass(frozen=True, kw_only=True)
class Part:
    """One thing that a view shows."""

    when: When = "always"


@dataclass(frozen=True)
class Verdict(Part):
    """Why a report is good or bad, in a sentence. A report that judges nothing has none.

    Attributes:
        subject: what was judged, for those who did not type the command.
        but: the word in the place of "OK", of what is good enough by the user's own measure alone.
    """

    text: str
    subject: str = ""
    but: str = ""


@dataclass(frozen=True)
class Line(Part):
    """A sentence, behind a label in its tone ("warning:"); without a label the sentence has the tone.

    Attributes:
        indent: how many columns it is moved to the right.
        whole: a terminal does not break it: it is searched for, or holds something to copy.
    """

    text: str
    label: str = ""
    tone: Tone = ""
    indent: int = 0
    whole: bool = False


@dataclass(frozen=True)
class Heading(Part):
    """What the parts below it are about."""

    text: str


@dataclass(frozen=True)
class Facts(Part):
    """Labels with their values; empty values are left out.

    Attributes:
        rows: label and value; a value of several lines is a tuple.
        few: how many lines of one value are shown where space is short.
    """

    rows: Sequence[tuple[str, Any]]
    few: int = 8

    def lines(self, everything: bool) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Each label with the lines of its value that are shown."""
        for label, value in self.rows:
            if value not in (None, "", ()):
                lines = tuple(map(str, value)) if isinstance(value, tuple) else (str(value),)
                left = 0 if everything else len(lines) - self.few
                yield label, (*lines[: self.few], f"and {left} more (-v)") if left > 0 else lines


@dataclass(frozen=True)
class Table(Part):
    """Rows under the names of their columns. Columns in which nothing stands, and a table without rows, are not shown.

    Attributes:
        numbers: columns that hold numbers.
        title: what the rows are.
        few: how many rows are shown where space is short; None for all.
        wide: columns that a narrow terminal leaves out.
        chosen: the index of the row that stands out; None where none can.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numbers: tuple[str, ...] = ()
    title: str = ""
    few: int | None = None
    wide: tuple[str, ...] = ()
    chosen: int | None = None

    @property
    def filled(self) -> list[int]:
        """The columns in which something stands."""
        return [i for i in range(len(self.columns)) if any(str(row[i]) for row in self.rows)]


@dataclass(frozen=True)
class Code(Part):
    """Lines that are copied or read as they are; those of a "diff" begin with their sign."""

    lines: Sequence[str]
    language: str = ""
    title: str = ""


@dataclass(frozen=True)
class FindingList(Part):
    """What `check` found in one model.

    Attributes:
        title: the model, where there are several.
        least: the mildest that a terminal shows without -v.
    """

    items: Sequence[Finding]
    title: str = ""
    least: Severity = Severity.NOTE


@dataclass(frozen=True)
class Plot(Part):
    """A picture, which only pages show."""

    title: str


@dataclass(frozen=True)
class Bars(Plot):
    """Lying bars: what each is of, how long it is, what is written at its end; with `before` a pale one to each."""

    items: Sequence[tuple[str, float, str]]
    before: Sequence[float] = ()
    few: int = 30


@dataclass(frozen=True)
class HistogramPlot(Plot):
    """Upright bars, by the logarithm of their counts; `across` and `up` say what the axes are."""

    items: Sequence[tuple[str, int]]
    across: str
    up: str


@dataclass(frozen=True)
class Boxes(Plot):
    """Spread of latencies: a name and 21 quantiles in seconds for each."""

    items: Sequence[tuple[str, Sequence[float]]]


@dataclass(frozen=True)
class Point:
    """A dot of a scatter plot; `label` is shown when it is pointed at."""

    kind: Literal["best", "kept", "broken", "dot-good", "dot-bad"]
    x: float
    y: float
    label: str


LATENCY = "latency against float (1 = dashed)"


@dataclass(frozen=True)
class Scatter(Plot):
    """Dots.

    Attributes:
        across, up: what the axes are.
        legend: each kind of dot, and what it means.
        mark: where a line stands on the axis across; None for none.
        powers: the axis up is in powers of ten.
    """

    points: Sequence[Point]
    across: str
    up: str
    legend: Sequence[tuple[str, str]]
    mark: float | None = None
    powers: bool = False


@dataclass(frozen=True)
class View:
    """What a report says: its verdict, and the other parts in the order in which they are read."""

    ok: bool
    verdict: Verdict
    parts: tuple[Part, ...]

    @property
    def word(self) -> tuple[str, Tone]:
        """The verdict in a word, and its tone."""
        if not self.ok:
            return "FAILED", "bad"
        return (self.verdict.but, "warn") if self.verdict.but else ("OK", "good")


def inner_view(view: View) -> Iterator[Part]:
    """A view inside of another one, with its verdict at the end."""
    yield from view.parts
    yield Line(view.verdict.text, *view.word)


def with_detail(parts: Iterable[Part]) -> Iterable[Part]:
    """Parts of another view that are shown only where there is room."""
    return (dataclasses.replace(part, when="full") for part in parts if part.when != "brief")


def warnings(lines: Iterable[str]) -> Iterable[Line]:
    """Warnings, one line each."""
    return (Line(line, "warning:", "warn") for line in lines)
