"""The example package: installed with pip, found by its entry point, used by the real command."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from onnxtool.runtime.runner import OnnxRunner
from tests.conftest import ROOT, Result

PACKAGE = ROOT / "examples" / "adapter_package"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a user who has installed the package."""
    copy = tmp_path_factory.mktemp("package") / "source"
    shutil.copytree(PACKAGE, copy)  # pip builds inside the folder
    target = tmp_path_factory.mktemp("target")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    result = subprocess.run([*pip, "--target", str(target), str(copy)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return {"PYTHONPATH": str(target)}


def test_the_installed_adapter_converts_its_format(
    installed: dict[str, str], tmp_path: Path, onnxtool: Callable[..., Result]
) -> None:
    result = onnxtool("convert", PACKAGE / "model.json", "-o", tmp_path / "out.onnx", env=installed)
    assert result.returncode == 0, result.stderr
    assert "tiny-linear model (JSON)" in result.stdout + result.stderr
    document = json.loads((PACKAGE / "model.json").read_text())
    x = np.random.default_rng(0).standard_normal((7, 3)).astype(np.float32)
    expected = x @ np.array(document["weights"]) + np.array(document["bias"])
    found = OnnxRunner.open(tmp_path / "out.onnx").run({"x": x})["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_without_the_package_the_format_is_unknown(tmp_path: Path, onnxtool: Callable[..., Result]) -> None:
    result = onnxtool("convert", PACKAGE / "model.json", "-o", tmp_path / "out.onnx")
    assert result.returncode == 3
    assert "Traceback" not in result.stderr


def test_its_errors_are_one_line(installed: dict[str, str], tmp_path: Path, onnxtool: Callable[..., Result]) -> None:
    (tmp_path / "bad.json").write_text('{"format": "tiny-linear", "weights": [[1], [2]], "bias": [1, 2]}')
    result = onnxtool("convert", tmp_path / "bad.json", "-o", tmp_path / "out.onnx", env=installed)
    assert result.returncode == 3
    assert "do not fit" in result.stderr
    assert not (tmp_path / "out.onnx").exists()
