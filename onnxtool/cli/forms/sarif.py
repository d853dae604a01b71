"""SARIF 2.1.0 of the findings of `check`: what code-scanning services read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from onnxtool import __version__
from onnxtool.cli.text import clean
from onnxtool.errors import UsageError
from onnxtool.report.base import Report
from onnxtool.report.check import CheckReport, ChecksReport, Finding

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render(report: Report) -> str:
    """The report as SARIF.

    Raises:
        UsageError: the report has no findings to tell.
    """
    if not isinstance(report, (CheckReport, ChecksReport)):
        raise UsageError(f"--sarif: a {report.kind} report has no findings to write.")
    reports = report.reports if isinstance(report, ChecksReport) else (report,)
    results = [_result(one, finding) for one in reports for finding in one.findings]
    notifications = []
    if isinstance(report, ChecksReport):
        notifications = [
            {"level": "error", "message": {"text": clean(u.error, 2000)}, "locations": [_location(u.model, "")]}
            for u in report.unreadable
        ]
    invocation: dict[str, Any] = {"executionSuccessful": not notifications}
    if notifications:
        invocation["toolExecutionNotifications"] = notifications
    driver = {
        "name": "onnxtool",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": list(_rules({f.id for one in reports for f in one.findings})),
    }
    run = {
        "tool": {"driver": driver},
        "results": results,
        "invocations": [invocation],
        "columnKind": "unicodeCodePoints",
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def _rules(used: set[str]) -> Iterator[dict[str, Any]]:
    from onnxtool.lint.catalog import RULES

    for identifier in sorted(used):
        rule = RULES[identifier]
        yield {
            "id": rule.id,
            "name": "".join(word.capitalize() for word in re.findall(r"\w+", rule.title)),
            "shortDescription": {"text": rule.title},
            "fullDescription": {"text": rule.explanation},
            "help": {"text": rule.fix},
            "defaultConfiguration": {"level": rule.severity.value},
            "properties": {"tags": [rule.family]},
        }


def _result(report: CheckReport, finding: Finding) -> dict[str, Any]:
    where = f"{finding.where}: " if finding.where else ""
    return {
        "ruleId": finding.id,
        "level": finding.severity.value,
        "message": {"text": clean(f"{where}{finding.message}", 2000)},
        "locations": [_location(report.model, finding.where)],
        # The same finding at the same place keeps its identity from one run to the next.
        "partialFingerprints": {"findingAndPlace/v1": f"{finding.id}:{clean(finding.where, 500)}"},
    }


def _location(model: str, where: str) -> dict[str, Any]:
    place: dict[str, Any] = {"physicalLocation": {"artifactLocation": {"uri": quote(PurePath(model).as_posix())}}}
    if where:
        place["logicalLocations"] = [{"name": clean(where, 500)}]
    return place
