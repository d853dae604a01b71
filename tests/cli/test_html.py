"""The HTML pages: self-contained, neutralised, and without complaints from a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from subprocess import CompletedProcess

import onnx
import pytest
from onnx import numpy_helper

Command = Callable[..., CompletedProcess[str]]
BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)

KINDS = ("check", "compare", "bench", "optimize", "quantize")


class Balance(HTMLParser):
    """Counts open tags, and remembers what the page refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.references += [v or "" for k, v in attributes if k in ("src", "href", "xlink:href")]
        if tag not in ("meta", "wbr"):  # these have no end
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def pages(onnxtool: Command, digits_onnx: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of each kind, of models with evil names and real differences."""
    folder = tmp_path_factory.mktemp("pages")
    model = onnx.load(digits_onnx)
    tensor = next(t for t in model.graph.initializer if t.name == "features.1.0.weight")
    values = numpy_helper.to_array(tensor).copy()
    values[0, 0, 0, 0] += 1
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    model.graph.initializer.add(name="<script>alert(1)</script>\x1b[2J", data_type=1, dims=[1], float_data=[1.0])
    onnx.save(model, folder / "bad.onnx")
    bad, made = folder / "bad.onnx", {kind: folder / f"{kind}.html" for kind in KINDS}
    onnxtool("check", bad, digits_onnx, "--html", made["check"], "-q")
    onnxtool("compare", digits_onnx, bad, "--layers", "--html", made["compare"], "-q")
    quick = ("--threads", "1", "--budget", "0.05", "--profile")
    onnxtool("bench", digits_onnx, bad, *quick, "--html", made["bench"], "-q")
    quick = ("--data", digits_onnx.parent / "calib.npz", "--time-limit", "3")
    onnxtool("quantize", digits_onnx, "-o", folder / "q.onnx", *quick, "--html", made["quantize"], "-q")
    onnxtool("optimize", digits_onnx, "-o", folder / "out.onnx", "--level", "all", "--html", made["optimize"], "-q")
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_page_is_whole_and_asks_for_nothing(kind: str, pages: dict[str, Path]) -> None:
    text = pages[kind].read_text(encoding="utf-8")
    parser = Balance()
    parser.feed(text)
    assert parser.open == []
    assert parser.references == []
    assert "script" not in parser.tags
    assert not re.search(r"https?://|url\(|@import", text)
    assert "\x1b" not in text
    assert "prefers-color-scheme: dark" in text


def test_pages_tell_what_they_are_for(pages: dict[str, Path]) -> None:
    assert "&lt;script&gt;" in pages["check"].read_text(encoding="utf-8")
    compare = pages["compare"].read_text(encoding="utf-8")
    assert "elements by their error" in compare
    assert re.search(r"First wrong tensor:.*conv2d_1", compare)
    assert "dot-bad" in compare
    bench = pages["bench"].read_text(encoding="utf-8")
    assert bench.count('class="box"') == 2
    assert "time by operator" in bench
    optimize = pages["optimize"].read_text(encoding="utf-8")
    for part in ("Operators", "Biggest changes", "Fusions into the runtime", "Passes"):
        assert f"<h2>{part}" in optimize
    assert re.search(r"latency</td>.*\[\d\.\d+, \d\.\d+\]", optimize)
    assert optimize.count('class="bar pale"') == optimize.count('class="bar"') > 3
    assert "com.microsoft.FusedConv" in optimize


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("kind", KINDS)
def test_browser_shows_the_page_without_complaint(kind: str, pages: dict[str, Path], tmp_path: Path) -> None:
    assert BROWSER is not None
    picture = tmp_path / "page.png"
    done = subprocess.run(
        [
            BROWSER,
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--window-size=1000,1200"),
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--screenshot={picture}",
            pages[kind].as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert "CONSOLE" not in done.stderr
    # A blank page of this size is a few kB.
    assert picture.stat().st_size > 15_000
