"""Plain values are what Typer makes of them, and everything else is still Typer's."""

from __future__ import annotations

import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from onnxtool.cli import plain_values


class Colour(Enum):
    """A choice."""

    RED = "red"


def _parsed(annotation: Any, words: list[str], info: Any, plain: bool, monkeypatch: pytest.MonkeyPatch) -> Any:
    if not plain:
        monkeypatch.setattr(plain_values, "_plain", lambda *_: plain_values._OTHER)
    app, seen = typer.Typer(), []

    def command(value=info) -> None:  # type: ignore[no-untyped-def]
        seen.append(value)

    command.__annotations__ = {"value": annotation, "return": None}
    app.command()(command)
    done = CliRunner().invoke(app, words)
    monkeypatch.undo()
    return (done.exit_code, done.output, repr(seen))


CASES = [
    (int | None, ["--value", word], {})
    for word in ("1", "-3", "+4", "1_000", " 5", "1.0", "0x10", "9" * 30, "", "٣", "word")
]
CASES += [(int, ["--value", word], {"min": 1, "max": 9, "default": 2}) for word in ("0", "1", "9", "10")]
CASES += [
    (float | None, ["--value", word], {})
    for word in ("1", "-.5", "1e-3", "1E5", "inf", "nan", "1_0.0", "1e", ".", "0x1p3", "1e999")
]
CASES += [(float, ["--value", word], {"min": 0.0, "default": 0.5}) for word in ("-1", "0", "2.5")]
CASES += [(str | None, ["--value", word], {}) for word in ("", "text", "é\U0001f642")]
CASES += [(Path | None, ["--value", word], {}) for word in ("", "a/../b", "/x//y", "~")]
CASES += [(Path | None, ["--value", "nowhere"], {"exists": True}), (Path | None, ["--value", "x"], {"dir_okay": False})]
CASES += [(list[int] | None, ["--value", "1", "--value", "2"], {}), (list[int] | None, ["--value", "x"], {})]
CASES += [(list[str] | None, [], {}), (list[Path] | None, ["--value", "a"], {})]
CASES += [(bool, ["--value"], {"default": False}), (bool, [], {"default": False})]
CASES += [(Colour | None, ["--value", "red"], {}), (Colour | None, ["--value", "blue"], {})]
CASES += [(Colour, [], {"default": Colour.RED}), (Colour | None, ["--value", "RED"], {"case_sensitive": False})]


@pytest.mark.parametrize(("annotation", "words", "settings"), CASES, ids=lambda v: str(v)[:40])
def test_a_value_is_what_typer_makes_of_it(
    annotation: Any, words: list[str], settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = dict(settings)
    info = typer.Option(given.pop("default", None), "--value", **given)
    assert _parsed(annotation, words, info, True, monkeypatch) == _parsed(annotation, words, info, False, monkeypatch)


def test_a_command_with_plain_values_does_not_import_pydantic(digits_onnx: Path) -> None:
    code = (
        "import sys; sys.argv = ['onnxtool', 'diff', *sys.argv[1:]]\n"
        "from onnxtool.cli.app import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "assert 'pydantic' not in sys.modules, 'pydantic was imported'"
    )
    command = [sys.executable, "-c", code, str(digits_onnx), str(digits_onnx)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
