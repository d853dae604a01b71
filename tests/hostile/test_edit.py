"""`edit` on every hostile model file, one operation each: the right kind of exit code, one line, nothing left.

benchmarks/edit_hostile.py gives every operation to every file.
"""

from __future__ import annotations

import warnings
import zlib
from pathlib import Path

import pytest

from tests.command_server import run
from tests.hostile.cases import Case
from tests.hostile.corpus import corpus
from tests.hostile.edits import faults, lines

MODELS = [case for case in corpus() if not case.data and "optimize" in case.commands]


@pytest.mark.parametrize("case", MODELS, ids=lambda case: case.name)
def test_keeps_every_promise(case: Case, tmp_path: Path) -> None:
    source, work = tmp_path / "source", tmp_path / "work"
    source.mkdir()
    work.mkdir()
    path = case.write(source)
    fitting = list(lines(path))
    line = fitting[zlib.crc32(case.name.encode()) % len(fitting)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # see tests/command_server.py
        assert not faults(run(["edit", str(path), "-o", "out.onnx", *line], work), work)
