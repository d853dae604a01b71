"""Every report can be shown in every form, and nothing in a report reaches a reader unescaped."""

from __future__ import annotations

import dataclasses
import inspect
import io
import random
import re
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any

import pytest
from rich.console import Console

from onnxtool.cli.forms import html, markdown, terminal
from onnxtool.cli.views import view_of
from onnxtool.cli.views.view import Code, Facts, Heading, Line, Part, Table, with_detail
from onnxtool.report.base import Report, json_fields
from onnxtool.report.check import CheckReport, Finding, Severity
from onnxtool.report.diff import Change, DiffReport
from onnxtool.report.schema import report_classes

EVIL = "[bold]\x1b[2J<script>alert(1)</script>\u202e|`*_\n::error::\r# x[/]"
KINDS = report_classes()


def made(hint: Any, rng: random.Random, name: str = "", lengths: tuple[int, ...] = (1, 2, 30)) -> Any:
    """Some value of a type, in which every text is evil; inside a long row nothing is long."""
    if name == "code":  # programs of our own, of several lines
        return {"python": "print(1)"}
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return made(rng.choice(arguments), rng, name, lengths)
    if hint in (None, type(None)):
        return None
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        hints = typing.get_type_hints(hint)
        return hint(**{f.name: made(hints[f.name], rng, f.name, lengths) for f in json_fields(hint)})
    if inspect.isclass(hint) and issubclass(hint, Enum):
        return rng.choice(list(hint))
    if hint in (bool, int, float):
        return hint(rng.choice((1, 8, 1500)) if name != "quantiles" else 1)
    container = origin or hint
    if inspect.isclass(container) and issubclass(container, Mapping):
        key = EVIL if arguments and arguments[0] is str else 1
        return {key: made(arguments[1], rng, "", lengths) if arguments else EVIL}
    if container is tuple:
        several = arguments[:1] * rng.choice(lengths) if Ellipsis in arguments else arguments
        inside = (1, 2) if len(several) > 2 and Ellipsis in arguments else lengths
        return tuple(made(a, rng, name, inside) for a in several)
    return EVIL


def shown(report: Report, verbose: int) -> str:
    """What a terminal of 80 columns, which has no colour, shows."""
    stream = io.StringIO()
    terminal.render(report, Console(file=stream, width=80, highlight=False), verbose)
    return stream.getvalue()


@pytest.mark.parametrize("kind", KINDS)
def test_every_report_is_shown_in_every_form_and_made_harmless(kind: str) -> None:
    for seed in range(6):
        report = made(KINDS[kind], random.Random(seed))
        view = view_of(report)
        assert view.ok is report.ok
        page, text_page = html.render(report), markdown.render(report)
        for text in (shown(report, 0), shown(report, 1), page, text_page):
            assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", text)
            assert "\n::error::" not in text
            assert text.strip() or not (view.verdict.text or view.parts)
        assert "<script" not in page
        outside_code = re.sub(r"^(`{3,}).*?^\1$", "", text_page, flags=re.DOTALL | re.MULTILINE)
        assert not re.search(r"(?<!\\)(<|`)", outside_code)


def test_a_kind_from_another_package_is_shown_by_its_fields() -> None:
    @dataclasses.dataclass(frozen=True, repr=False)
    class Strange(Report):
        kind = "strange"
        thing: str = "<b>thing</b>"

    assert re.search(r"thing +<b>thing</b>", shown(Strange(), 0))
    assert "&lt;b&gt;thing" in html.render(Strange())


def test_a_notebook_shows_every_report_in_a_few_lines() -> None:
    assert not [kind for kind, report in KINDS.items() if report.__repr__ is not Report.__repr__]


def test_the_verdict_stands_last_in_a_terminal_and_first_on_pages() -> None:
    finding = Finding("OT1", Severity.ERROR, "broken")
    report = CheckReport("m.onnx", 1, 8, {"ai.onnx": 20}, "p", (), (), 1, (), (finding,))
    assert shown(report, 0).splitlines()[-1].startswith("FAILED  1 error")
    assert re.search(r"<h1>.*FAILED.*</h1>\n<p><strong>1 error", html.render(report))
    assert markdown.render(report).splitlines()[:3] == [
        "### onnxtool check: FAILED",
        "",
        "1 error (onnxtool check --explain ID tells more)",
    ]


def drawn(part: Part, width: int = 80, verbose: int = 0) -> str:
    """One part in a terminal."""
    stream = io.StringIO()
    terminal.draw(part, Console(file=stream, width=width, highlight=False), verbose)
    return stream.getvalue()


def test_a_table_says_how_many_rows_it_leaves_out() -> None:
    table = Table(("name",), [(f"row{i}",) for i in range(5)], few=3)
    assert "row2" in drawn(table) and "row3" not in drawn(table)
    assert "and 2 more (-v)" in drawn(table)
    assert "row4" in drawn(table, verbose=1) and "more" not in drawn(table, verbose=1)
    page = "".join(html.draw([table]))
    assert "row4" in page and "more" not in page
    assert not drawn(Table(("name",), ()))


def test_a_narrow_terminal_breaks_names_and_no_numbers() -> None:
    numbers = ("first", "second", "third")
    table = Table(("name", *numbers), [("long name " * 9, *("1.0234 [0.95, 1.09]",) * 3)], numbers)
    assert max(map(len, drawn(table).splitlines())) <= 80
    assert drawn(table).count("1.0234 [0.95, 1.09]") == 3
    many = tuple(f"number {i}" for i in range(9))
    crowded = drawn(Table(("name", *many), [("a name", *("123456.78 ms",) * 9)], many))
    assert max(map(len, crowded.splitlines())) <= 80
    assert len(re.findall("[0-9]", crowded)) >= 9 * 8  # broken, but none of them lost


def test_more_detail_takes_the_place_of_less() -> None:
    report = DiffReport("a", "b", tuple(Change("node", "added", f"n{i}") for i in range(45)), {})
    assert "n44" not in shown(report, 0) and "and 5 more (-v)" in shown(report, 0)
    assert "n44" in shown(report, 1) and "more" not in shown(report, 1)


def test_columns_that_can_be_done_without_are_left_to_wide_terminals() -> None:
    table = Table(("name", "extra"), [("a", "b")], wide=("extra",))
    assert "extra" not in drawn(table) and "extra" in drawn(table, width=120)
    assert "extra" in "".join(html.draw([table]))


def test_columns_in_which_nothing_stands_are_not_shown() -> None:
    table = Table(("name", "drop", "size"), [("a", "", "1 B"), ("b", "", "")])
    for text in (drawn(table), "".join(html.draw([table])), "\n".join(markdown.draw(table))):
        assert "size" in text and "drop" not in text


def test_long_facts_and_details_have_their_place() -> None:
    facts = Facts((("input", tuple(f"x{i}" for i in range(10))), ("empty", "")), few=8)
    assert "and 2 more (-v)" in drawn(facts) and "x9" in drawn(facts, verbose=1)
    assert "empty" not in drawn(facts)
    parts = [Line("short", when="brief"), Line("long", when="full"), Heading("both")]
    page = "".join(html.draw(parts))
    assert "long" in page and "short" not in page and "both" in page
    assert [part.text for part in with_detail(parts) if isinstance(part, Line)] == ["long"]


def test_a_fence_of_markdown_is_longer_than_what_it_holds() -> None:
    lines = list(markdown.draw(Code(("````", "code"), "python")))
    assert lines == ["`````python", "````", "code", "`````"]
    assert next(markdown.draw(Code(("x",), "py`\n# thing"))) == "```pything"
