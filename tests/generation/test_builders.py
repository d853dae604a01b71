"""Graph builders in processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxtool.generation import builders
from onnxtool.generation.builders import MOBIUS, start
from onnxtool.runtime.worker.tasks import start_python


def test_a_builder_is_found_where_this_process_finds_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not in the folder that it works in."""
    for name, said in (("place", "the builder"), ("here", "a stranger's")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mobius.py").write_text(f'raise SystemExit("{said}")')
    monkeypatch.setattr(builders, "start_python", start_python)
    monkeypatch.syspath_prepend(tmp_path / "place")
    monkeypatch.chdir(tmp_path / "here")
    with start(MOBIUS, tmp_path, tmp_path / "out", tied=False) as build:
        assert build.wait() == "the builder"
