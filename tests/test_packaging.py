"""What goes into the wheel, and what the project promises about its files."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_package_is_in_the_wheel() -> None:
    folders = {p.parent.relative_to(ROOT).as_posix().replace("/", ".") for p in ROOT.glob("onnxtool/**/__init__.py")}
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == folders | {"onnxtool.bundled"}


def test_the_quickstart_data_is_in_the_wheel() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["onnxtool.bundled"]
    packed = {p.name for pattern in patterns for p in (ROOT / "fixtures").glob(pattern)}
    assert packed >= {"digits_cnn.onnx", "digits_cnn.pt", "digits_cnn.py", "calib.npz", "eval.npz"}


def test_templates_of_packages_are_in_the_wheel() -> None:
    folder = ROOT / "onnxtool" / "packaging"
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["onnxtool.packaging"]
    packed = {p for pattern in patterns for p in folder.glob(pattern)}
    assert {p for p in folder.glob("templates/**/*") if p.is_file() and "__pycache__" not in p.parts} <= packed


def test_the_base_install_is_light() -> None:
    names = {re.split(r"[<>=~!\[; ]", d)[0] for d in PROJECT["project"]["dependencies"]}
    assert names == {"onnx", "onnx-ir", "onnxscript", "numpy", "onnxruntime", "typer", "rich"}


def test_every_direct_dependency_is_pinned() -> None:
    pinned = {
        re.split(r"==", line)[0].strip().lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line
    }
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = [*PROJECT["project"]["dependencies"], *(d for group in extras.values() for d in group)]
    names = {
        re.split(r"[<>=~!\[; ]", d)[0].lower()
        for d in wanted
        if "sys_platform == 'darwin'" not in d and "sys_platform != 'linux'" not in d
    }
    assert names - {"onnxtool-cli"} <= pinned


def test_fixtures_stay_small() -> None:
    assert sum(p.stat().st_size for p in (ROOT / "fixtures").iterdir() if p.is_file()) < 4_000_000
