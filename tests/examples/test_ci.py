"""The CI examples: every onnxtool command in them is run in a repository like the one they are for."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

ROOT = Path(__file__).parents[2]
CI = ROOT / "examples" / "ci"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def run(tool_path: str) -> Run:
    """Run a command in a folder: the folder, and the words."""
    apart = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    environment = {**os.environ, "PATH": tool_path, **apart}
    return lambda folder, *command: subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env=environment, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def repository(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with models/digits.onnx and its golden files."""
    folder = tmp_path_factory.mktemp("repository")
    (folder / "models").mkdir()
    shutil.copy(ROOT / "fixtures" / "digits_cnn.onnx", folder / "models" / "digits.onnx")
    done = run(folder, "onnxtool", "compare", "models/digits.onnx", "--record", "models/golden")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize(("name", "written"), [("github-actions.yml", "onnx.sarif"), ("gitlab-ci.yml", "compare.xml")])
def test_commands_of_the_workflows(name: str, written: str, run: Run, repository: Path) -> None:
    text = (CI / name).read_text(encoding="utf-8")
    commands = [shlex.split(c) for c in re.findall(r"^\s*- (?:run: )?(onnxtool .+)$", text, re.MULTILINE)]
    assert len(commands) == 2
    for command in commands:
        done = run(repository, *command)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (repository / written).stat().st_size > 0


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_targets_of_the_makefile(run: Run, repository: Path) -> None:
    shutil.copy(CI / "models.mk", repository / "Makefile")
    # Speed is not asserted: the bench target is only shown.
    for target in ("models-check", "models-record", "models-test"):
        done = run(repository, "make", target)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "--max-regression 20%" in run(repository, "make", "-n", "models-bench").stdout


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_hook_refuses_an_unsound_model_that_is_staged(run: Run, tmp_path: Path) -> None:
    identity = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "-m", "models")
    assert run(tmp_path, "git", "init", "-q").returncode == 0
    hook = tmp_path / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    shutil.copy(CI / "pre-commit", hook)
    model = tmp_path / "the model.onnx"
    good = (ROOT / "fixtures" / "digits_cnn.onnx").read_bytes()
    model.write_bytes(good)
    run(tmp_path, "git", "add", ".")
    assert run(tmp_path, *identity).returncode == 0
    bad = onnx.load_from_string(good)
    bad.graph.node[0].op_type = "Nonsense"
    model.write_bytes(bad.SerializeToString())
    run(tmp_path, "git", "add", ".")
    model.write_bytes(good)  # what is staged counts
    done = run(tmp_path, *identity)
    assert done.returncode != 0
    assert "OT001" in done.stdout + done.stderr
