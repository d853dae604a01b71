"""Manual pages: one for each command, with every option, and nothing that roff would take for a request."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from onnxtool.cli.app import COMMANDS, build
from onnxtool.cli.man_pages import of_command, write_all

REQUESTS = (".TH ", ".SH ", ".TP", ".PP", ".B ", ".BR ", ".nf", ".fi")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_all(tmp_path_factory.mktemp("man"))


def test_each_command_has_a_page_with_all_its_options(pages: list[Path]) -> None:
    assert {p.name for p in pages} == {"onnxtool.1", *(f"onnxtool-{name}.1" for name in COMMANDS)}
    for name in COMMANDS:
        text = of_command(name).replace("\\-", "-")
        for option in build(name).params:
            if option.param_type_name == "option" and not option.hidden:
                assert option.opts[-1] in text
        assert "EXIT STATUS" in text and "EXAMPLES" in text


def test_text_is_never_taken_for_a_request(pages: list[Path]) -> None:
    for page in pages:
        for line in page.read_text(encoding="utf-8").splitlines():
            assert line.startswith(REQUESTS) or not line.startswith((".", "'")), (page.name, line)


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_roff_has_nothing_to_say(pages: list[Path]) -> None:
    for page in pages:
        done = subprocess.run(
            ["groff", "-man", "-ww", "-Wbreak", "-Tutf8", str(page)], capture_output=True, text=True, check=True
        )
        assert done.stderr == ""
