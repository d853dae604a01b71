"""Netron's page: the model and nothing else is given out, to this machine, and the page reaches no other place."""

from __future__ import annotations

import http.client
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import onnx
import pytest

from onnxtool.errors import InputError, MissingExtraError, UsageError
from onnxtool.runtime.view import NetronPage

needs_netron = pytest.mark.skipif(find_spec("netron") is None, reason="Netron is not installed")
CHROMIUM = next((c for c in ("chromium", "chromium-browser", "google-chrome") if shutil.which(c)), None)


@pytest.fixture
def shown(tmp_path: Path, digits_onnx: Path) -> Iterator[NetronPage]:
    onnx.save(
        onnx.load(digits_onnx),
        tmp_path / "a model.onnx",
        save_as_external_data=True,
        location="w.data",
        size_threshold=0,
    )
    (tmp_path / "secret.txt").write_text("not for the page")
    with NetronPage(tmp_path / "a model.onnx") as view:
        yield view


def get(view: NetronPage, path: str, host: str = "localhost") -> tuple[int, bytes, dict[str, str]]:
    place = urlsplit(view.address)
    assert place.hostname == "localhost"
    connection = http.client.HTTPConnection("127.0.0.1", place.port, timeout=10)
    connection.request("GET", path, headers={"Host": host})
    answer = connection.getresponse()
    return answer.status, answer.read(), dict(answer.getheaders())


@needs_netron
def test_gives_the_model_and_its_data_alone(shown: NetronPage, tmp_path: Path) -> None:
    assert get(shown, "/data/a%20model.onnx")[1] == (tmp_path / "a model.onnx").read_bytes()
    assert get(shown, "/data/w.data")[1] == (tmp_path / "w.data").read_bytes()
    for path in (
        "/data/secret.txt",
        "/data/../secret.txt",
        "/secret.txt",
        "/../server.py",
        "/server.py",
        "/__init__.py",
    ):
        assert get(shown, path)[0] == 404, path
    assert get(shown, "/", host="evil.example")[0] == 403


@needs_netron
def test_the_page_may_reach_no_other_place(shown: NetronPage) -> None:
    status, page, headers = get(shown, "/")
    assert status == 200
    assert b"/data/a%20model.onnx" in page
    assert page.index(b'content="0.0.0"') < page.index(b'<meta name="version"', page.index(b'content="0.0.0"'))
    assert "connect-src 'self'" in headers["Content-Security-Policy"]
    assert get(shown, "/index.js")[0] in (200, 404)  # names of its parts differ from version to version
    assert get(shown, "/browser.js")[0] == 200


@needs_netron
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: make browser")
def test_a_browser_draws_the_graph(shown: NetronPage, tmp_path: Path) -> None:
    line = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    line += ["--virtual-time-budget=15000", "--dump-dom", shown.address]
    page = subprocess.run(line, capture_output=True, text=True, timeout=120, check=True).stdout  # type: ignore[arg-type]
    assert "Conv" in page and "Gemm" in page, page[-2000:]
    assert "This app uses cookies" not in page


def test_what_cannot_be_shown_is_one_line(tmp_path: Path, digits_onnx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("netron") is not None:
        (tmp_path / "m.onnx").write_text("not a model")
        with pytest.raises(InputError):
            NetronPage(tmp_path / "m.onnx")
        with NetronPage(digits_onnx) as first, pytest.raises(UsageError, match="--port"):
            NetronPage(digits_onnx, urlsplit(first.address).port or 0)
    monkeypatch.setattr("onnxtool.runtime.view.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match="view"):
        NetronPage(digits_onnx)
