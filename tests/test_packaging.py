"""What goes into the wheel, and what the project promises about its files."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from shutil import which

import pytest

ROOT = Path(__file__).parent.parent
TOP = {
    *("pyproject.toml", "README.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "constraints.txt", ".gitignore"),
    *("onnxtool", "tests", "examples", "fixtures", "benchmarks", "docs", ".ci"),
}
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


def test_nothing_stray_lies_at_the_top() -> None:
    """Of what git keeps; where it cannot be asked, nothing is known of that."""
    listed = ["git", "ls-files", "--full-name"]
    found = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=False) if which("git") else None
    if found is None or found.returncode or "pyproject.toml" not in found.stdout.split():
        pytest.skip("this is no clone, or git does not answer")
    assert {name.split("/")[0] for name in found.stdout.splitlines()} <= TOP


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


# Where the distribution's name stands and nobody is told to install it: its own metadata and what reads that.
_NAMED = {
    *("pyproject.toml", "onnxtool/runtime/doctor.py", "benchmarks/build.py", "docs/changes.md"),
    "tests/test_packaging.py",
}
# What stands before it may be options and other packages, but no comment and no "in a clone of".
_INSTALLED = re.compile(
    r"""pip3? install(?: +(?!#|in )[^\s`]+)*? +["']?onnxtool(-cli)?(?=["'\[\s=<>~`]|$)""", re.MULTILINE
)


def test_nobody_is_told_to_install_a_package_that_is_in_no_index() -> None:
    """Anybody could register the name, and have their code run by those who follow the hint."""
    folders = ("docs", "onnxtool", "examples", "fixtures", "benchmarks", "tests", ".ci")
    files = [*ROOT.iterdir(), *(path for folder in folders for path in (ROOT / folder).rglob("*"))]
    told = []
    for path in files:
        name = path.relative_to(ROOT).as_posix()
        if not path.is_file() or "__pycache__" in path.parts or name in _NAMED or path.stat().st_size > 1 << 22:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        if "onnxtool-cli" in text or _INSTALLED.search(text):
            told.append(name)
    assert told == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('pip install "onnxtool[serve]"', True),
        ("- run: pip install onnxtool", True),
        ("pip install onnxtool-cli==1.0", True),
        ("pip install --quiet numpy onnxtool", True),
        ("pip install ./third_party/onnxtool", False),
        ('pip install ".[serve]"    # in a clone of onnxtool.', False),
    ],
)
def test_the_look_for_such_hints_finds_them(line: str, found: bool) -> None:
    assert bool(_INSTALLED.search(line)) is found


def test_fixtures_stay_small() -> None:
    assert sum(p.stat().st_size for p in (ROOT / "fixtures").iterdir() if p.is_file()) < 4_000_000
