"""The doctor command."""

from __future__ import annotations

import json
from collections.abc import Callable
from subprocess import CompletedProcess

Command = Callable[..., CompletedProcess[str]]


def test_shows_versions_and_features(onnxtool: Command) -> None:
    done = onnxtool("doctor", env={"COLUMNS": "80"})
    assert done.returncode == 0, done.stderr
    for text in ("onnxruntime", "pytorch", "CPU feature", "OK"):
        assert text in done.stdout


def test_json(onnxtool: Command) -> None:
    report = json.loads(onnxtool("doctor", "--json").stdout)
    assert report["schema"] == "onnxtool/doctor/1"
    assert report["packages"]["onnxruntime"]
