"""The HTML pages of `build`: beside the index one for each model, with what its steps reported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from onnxtool.cli.forms.html import draw, page
from onnxtool.cli.views import view_of
from onnxtool.cli.views.build import model_page, page_name
from onnxtool.cli.views.view import Heading, Part, inner_view
from onnxtool.report.build import BuildReport, ModelOutcome


def write_model_pages(report: BuildReport, index: Path) -> None:
    """Write a page for each model into the folder `models` beside the index."""
    from onnxtool.cli.output import write_text

    folder = index.parent / "models"
    folder.mkdir(parents=True, exist_ok=True)
    back = f'<p><a href="../{quote(index.name)}">all models</a></p>'
    for model in report.models:
        parts = (*model_page(model), *_steps(model, report))
        write_text(folder / page_name(model), page(f"build: {model.name}", (back, *draw(parts))))


def _steps(model: ModelOutcome, report: BuildReport) -> Iterator[Part]:
    """What each step's own report says."""
    from onnxtool.report.schema import report_from_plain
    from onnxtool.workflow.store import Store

    store = Store(Path(report.cache))
    for step in model.steps:
        entry = store.entry(step.key) if step.key else None
        if entry is not None:
            yield Heading(step.command)
            yield from inner_view(view_of(report_from_plain(entry.report)))
