"""A result that was measured as slower is measured again, and simplified where that is true. Timing is stood in for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from onnxtool.optimization import pass_bisection as module
from onnxtool.optimization.pass_bisection import BisectionAttempt, without_regression
from onnxtool.report.measurement.bench import LatencyRatio
from onnxtool.runtime.session.session import SessionOptions


def ratio(value: float, half: float = 0.01) -> LatencyRatio:
    return LatencyRatio(value, value - half, value + half, 1.0, value, 1)


def attempt(name: str, fault: str | None = None) -> BisectionAttempt:
    passes = [
        SimpleNamespace(name="fold", rewrites=1, level="basic"),
        SimpleNamespace(name="fuse", rewrites=2, level="all"),
    ]
    model: Any = name
    result: Any = SimpleNamespace(passes=passes)
    return BisectionAttempt(model, result, fault)


def chosen(
    monkeypatch: pytest.MonkeyPatch,
    first: LatencyRatio,
    again: dict[str, LatencyRatio],
    simple: BisectionAttempt | None,
) -> tuple[str, float, str]:
    monkeypatch.setattr(module, "confirmed_ratio", lambda _s, model, *_: again[model])
    source: Any = "source"
    found, latency, warning = without_regression(source, attempt("whole"), first, {}, SessionOptions(), lambda: simple)
    name: Any = found.model
    return name, latency.value, warning


def test_what_is_not_slower_is_not_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(monkeypatch, ratio(1.0, 0.02), {}, None) == ("whole", 1.0, "")


def test_a_second_measurement_may_clear_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(monkeypatch, ratio(1.1), {"whole": ratio(0.99)}, None) == ("whole", 0.99, "")


def test_what_is_slower_twice_gives_way_to_basic_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    again = {"whole": ratio(1.1), "basic": ratio(1.0)}
    name, value, warning = chosen(monkeypatch, ratio(1.1), again, attempt("basic"))
    assert (name, value) == ("basic", 1.0)
    assert warning.startswith("with fuse it takes 1.10 times as long as the source (1.09 to 1.11)")


def test_what_is_slower_and_cannot_be_simpler_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    again = {"whole": ratio(1.1), "basic": ratio(1.2)}
    for simple in (None, attempt("basic"), attempt("basic", "wrong")):
        name, _, warning = chosen(monkeypatch, ratio(1.1), again, simple)
        assert name == "whole"
        assert "1.10 times as long as the source" in warning
