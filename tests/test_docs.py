"""What the docs name is there: files of the repository, links between pages, anchors of promises."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*.md"), *ROOT.glob("fixtures/*.md")]
)
TOP = ("onnxtool", "tests", "docs", "examples", "fixtures", "benchmarks")
_PATH = re.compile(rf"`((?:{'|'.join(TOP)})/[\w./<>*-]*)`")
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def named_paths(text: str) -> set[str]:
    """Paths of the repository in back quotes; those with a <placeholder> or a * are cut off before it."""
    found = (re.split(r"[^/]*[<*]", path)[0] for path in _PATH.findall(text))
    return {path for path in found if not re.search(r"/\d+$", path)}  # "onnxtool/check/1" is a JSON schema


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_path_that_is_named_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [p for p in sorted(named_paths(text)) if not (ROOT / p).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_between_pages_leads_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [link for link in _LINK.findall(text) if not (page.parent / link).exists()] == []


def test_a_path_that_is_not_there_is_noticed() -> None:
    assert named_paths("see `onnxtool/no/such.py` and `tests/<package>/test_x.py`") == {"onnxtool/no/such.py", "tests/"}
    assert not (ROOT / "onnxtool/no/such.py").exists()


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs/architecture.md"])
def test_packages_are_named_in_the_map(name: str) -> None:
    """The map names every package; the two others lead to it."""
    text = (ROOT / name).read_text(encoding="utf-8")
    if name != "docs/architecture.md":
        assert "docs/architecture.md" in text
        return
    packages = {p.parent.name for p in (ROOT / "onnxtool").glob("*/__init__.py")}
    assert [p for p in sorted(packages) if f"`onnxtool/{p}/`" not in text] == []
