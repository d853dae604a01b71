"""The JSON schemas: up to date in docs/schema, valid, and kept by what the commands print."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import jsonschema
import pytest

from onnxtool.report.base import Report
from onnxtool.report.schema import json_schema, report_classes

DOCS = Path(__file__).parents[2] / "docs" / "schema"
KINDS = sorted(report_classes())


@dataclasses.dataclass(frozen=True)
class Leaf:
    """A leaf."""

    value: float
    twin: Leaf | None = None


@dataclasses.dataclass(frozen=True)
class Sample(Report):
    """A sample."""

    kind: ClassVar[str] = "sample"
    version: ClassVar[int] = 3

    leaves: tuple[Leaf, ...]
    pair: tuple[int, str]
    table: dict[str, tuple[int, ...]]
    anything: Any = None


@pytest.mark.parametrize("kind", KINDS)
def test_is_up_to_date_in_docs(kind: str) -> None:
    written = json.loads((DOCS / f"{kind}.json").read_text(encoding="utf-8"))
    assert written == json_schema(report_classes()[kind]), "run: python -m onnxtool.report.schema docs/schema"


def test_docs_hold_no_schema_of_a_report_that_is_gone() -> None:
    assert sorted(p.stem for p in DOCS.glob("*.json")) == KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_is_itself_a_valid_schema(kind: str) -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema(report_classes()[kind]))


def test_describes_nested_reports() -> None:
    report = Sample((Leaf(float("inf"), Leaf(0.5)),), (1, "a"), {"x": (1, 2)})
    jsonschema.validate(report.to_dict(), json_schema(Sample))


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d.update(schema="onnxtool/sample/2"),
        lambda d: d.pop("pair"),
        lambda d: d["leaves"][0].update(value="many"),
        lambda d: d["table"].update(x="1"),
        lambda d: d.update(pair=[1]),
    ],
)
def test_notices_what_does_not_fit(damage: Callable[[dict[str, Any]], object]) -> None:
    plain = Sample((Leaf(1.0),), (1, "a"), {"x": (1,)}).to_dict()
    damage(plain)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(plain, json_schema(Sample))
