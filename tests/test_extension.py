"""What packages that extend onnxtool rely on: one documented import, and entry points that are found."""

from __future__ import annotations

import ast
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from onnxtool import extension
from onnxtool.errors import UsageError
from onnxtool.quantization.calibration import range_estimators
from onnxtool.quantization.calibration.range_estimators import Histogram, ObservedRange
from onnxtool.quantization.recipe import QuantRecipe

EXAMPLES = Path(__file__).parent.parent / "examples"


def half(histogram: Histogram, coverage: float) -> tuple[float, float]:
    """A range estimator of a third party."""
    return (-0.5, 0.5)


@pytest.fixture
def with_half(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("half", f"{__name__}:half", range_estimators.ENTRY_POINTS)
    monkeypatch.setattr(range_estimators, "entry_points", lambda group: [point])
    monkeypatch.setattr(range_estimators, "estimators", range_estimators.estimators.__wrapped__)
    monkeypatch.setattr("onnxtool.quantization.recipe.estimators", range_estimators.estimators)


def test_every_name_that_is_offered_is_there() -> None:
    assert all(hasattr(extension, name) for name in extension.__all__)


def test_examples_import_from_the_documented_module_only() -> None:
    for path in EXAMPLES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            modules += [a.name for a in node.names] if isinstance(node, ast.Import) else []
            for module in modules:
                allowed = module.split(".")[0] != "onnxtool" or module in ("onnxtool", "onnxtool.extension")
                assert allowed, f"{path.name} imports {module}"


def test_a_range_estimator_of_another_package_is_used(with_half: None) -> None:
    assert QuantRecipe(method="half").method == "half"
    seen = ObservedRange(histogram=True)
    seen.add(-3.0, 4.0, np.linspace(-3, 4, 100, dtype=np.float32))
    assert seen.range("half") == (-0.5, 0.5)
    assert seen.range("minmax") == (-3.0, 4.0)


def test_an_unknown_range_estimator_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="--method tenth: choose one of minmax, percentile, mse, entropy"):
        QuantRecipe(method="tenth")


def test_a_name_that_is_taken_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("mse", f"{__name__}:half", range_estimators.ENTRY_POINTS)
    monkeypatch.setattr(range_estimators, "entry_points", lambda group: [point])
    with pytest.raises(UsageError, match="called 'mse' is there already"):
        range_estimators.estimators.__wrapped__()


def shout(report: extension.Report) -> str:
    """A report format of a third party."""
    return f"{report.kind.upper()}!"


def test_a_report_format_of_another_package_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from onnxtool.cli.forms import registry
    from onnxtool.report.check import RulesReport

    point = EntryPoint("shout", f"{__name__}:shout", registry.ENTRY_POINTS)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [point])
    files = registry.parse_reports([f"shout={tmp_path / 'a.txt'}", f"html={tmp_path / 'b.html'}"])
    assert [registry.find_renderer(name)(RulesReport(())) for name in files if name == "shout"] == ["RULES!"]
    assert files["html"] == tmp_path / "b.html"
    for wrong, said in (
        ("shout", "write FORMAT=FILE"),
        ("whisper=x", "choose one of html, junit, markdown, sarif, shout"),
    ):
        with pytest.raises(UsageError, match=said):
            registry.parse_reports([wrong])
