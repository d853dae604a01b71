"""Every hostile file: the right exit code, one line, in time and memory, nothing run, nothing left."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from tests.hostile.cases import Case
from tests.hostile.corpus import corpus, some_commands, try_case


def test_the_corpus_is_large() -> None:
    assert len(corpus()) >= 200


@pytest.mark.parametrize("case", corpus(), ids=lambda case: case.name)
def test_keeps_every_promise(case: Case, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # see tests/command_server.py
        assert not try_case(case, tmp_path, some_commands(case, 1))
