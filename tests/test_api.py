"""The Python front door: a function for every command, lazily imported, callable packages included."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import onnxtool
from onnxtool.cli.app import COMMANDS
from onnxtool.report.base import Report


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_a_function(name: str) -> None:
    assert name in dir(onnxtool)
    assert callable(getattr(onnxtool, name))
    assert name in onnxtool.__all__


def test_functions_give_the_reports_that_commands_show(digits_onnx: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    reports: list[Report] = [
        onnxtool.optimize(digits_onnx, out),
        onnxtool.check(out),
        onnxtool.inspect(out),
        onnxtool.compare(digits_onnx, out),
        onnxtool.diff(digits_onnx, out),
        onnxtool.verify(out, source=digits_onnx),
        onnxtool.run(out),
        onnxtool.doctor(),
    ]
    kinds = [r.kind for r in reports]
    assert kinds == ["optimize", "check", "inspect", "compare", "diff", "verify", "run", "doctor"]
    assert all(r.ok for r in reports if r.kind != "diff")


def test_a_package_stays_a_package_after_it_was_called(digits_onnx: Path, tmp_path: Path) -> None:
    script = (
        "import sys, onnxtool\n"
        "report = onnxtool.optimize(sys.argv[1], sys.argv[2])\n"
        "from onnxtool.optimization.pipeline import optimize_model\n"
        "print(report.ok, callable(onnxtool.optimize), callable(optimize_model))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, digits_onnx, tmp_path / "o.onnx"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True True True\n"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'frobnicate'"):
        onnxtool.frobnicate  # noqa: B018
