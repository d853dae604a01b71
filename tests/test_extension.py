"""What packages that extend onnxtool rely on: one documented import, and entry points that are found."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from onnxtool import extension
from onnxtool.cli.forms.registry import find_renderer
from onnxtool.conversion.registry import adapters
from onnxtool.editing import registry as editing_registry
from onnxtool.errors import UsageError
from onnxtool.optimization import registry as optimization_registry
from onnxtool.quantization.calibration import range_estimators
from onnxtool.quantization.calibration.range_estimators import Histogram, ObservedRange
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.runtime.data.formats.registry import find_format
from tests.conftest import Brought

EXAMPLES = Path(__file__).parent.parent / "examples"


def half(histogram: Histogram, coverage: float) -> tuple[float, float]:
    """A range estimator of a third party."""
    return (-0.5, 0.5)


@pytest.fixture
def with_half(brought: Brought, monkeypatch: pytest.MonkeyPatch) -> None:
    brought("half", f"{__name__}:half", range_estimators.ENTRY_POINTS)
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


def test_a_name_that_is_taken_is_refused(brought: Brought) -> None:
    brought("mse", f"{__name__}:half", range_estimators.ENTRY_POINTS)
    with pytest.raises(UsageError, match=r"'mse' of .*: a range estimator of this name is there already"):
        range_estimators.estimators.__wrapped__()


def shout(report: extension.Report) -> str:
    """A report format of a third party."""
    return f"{report.kind.upper()}!"


def test_a_report_format_of_another_package_is_written(brought: Brought, tmp_path: Path) -> None:
    from onnxtool.cli.forms import registry
    from onnxtool.report.check import RulesReport

    brought("shout", f"{__name__}:shout", registry.ENTRY_POINTS)
    files = registry.parse_reports([f"shout={tmp_path / 'a.txt'}", f"html={tmp_path / 'b.html'}"])
    assert [registry.find_renderer(name)(RulesReport(())) for name in files if name == "shout"] == ["RULES!"]
    assert files["html"] == tmp_path / "b.html"
    for wrong, said in (
        ("shout", "write FORMAT=FILE"),
        ("whisper=x", "choose one of html, junit, markdown, sarif, shout"),
    ):
        with pytest.raises(UsageError, match=said):
            registry.parse_reports([wrong])


@pytest.mark.parametrize(
    ("group", "ask"),
    [
        ("onnxtool.passes", optimization_registry.all_passes.__wrapped__),
        ("onnxtool.edits", editing_registry.all_operations.__wrapped__),
        ("onnxtool.adapters", lambda: list(adapters())),
        ("onnxtool.range_estimators", range_estimators.estimators.__wrapped__),
        ("onnxtool.data_formats", lambda: find_format(Path("x.own"))),
        ("onnxtool.report_formats", lambda: find_renderer("own")),
    ],
)
def test_what_a_package_brings_and_cannot_be_loaded_is_one_line(
    group: str, ask: Callable[[], object], brought: Brought
) -> None:
    brought("own", f"{__name__}:missing", group)
    with pytest.raises(UsageError, match=rf"'own' of {__name__}:missing \({group}\) cannot be loaded: "):
        ask()


@pytest.mark.parametrize(
    ("group", "ask", "said"),
    [
        ("onnxtool.passes", optimization_registry.all_passes.__wrapped__, "is not a Pass"),
        ("onnxtool.edits", editing_registry.all_operations.__wrapped__, "is not an Operation"),
        ("onnxtool.adapters", lambda: list(adapters()), "does not derive from onnxtool.extension.Adapter"),
    ],
)
def test_what_a_package_brings_and_is_something_else_is_one_line(
    group: str, ask: Callable[[], object], said: str, brought: Brought
) -> None:
    brought("own", "builtins:dict", group)
    with pytest.raises(UsageError, match=said):
        ask()
