"""Weights alone are told without importing torch: in a process of its own, that would show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from onnxtool.conversion.pytorch.bare_weights import refuse_bare_weights
from onnxtool.conversion.source import Source
from onnxtool.errors import UsageError

SCRIPT = """
import sys
from onnxtool.conversion.convert import convert
from onnxtool.errors import UsageError
try:
    convert(sys.argv[1], sys.argv[2])
except UsageError as error:
    print("torch" in sys.modules, error)
"""


def test_a_state_dict_without_a_factory_is_answered_without_torch(tmp_path: Path) -> None:
    torch.save({"epoch": 3, "state_dict": torch.nn.Linear(3, 4).state_dict()}, tmp_path / "w.pt")
    line = [sys.executable, "-c", SCRIPT, str(tmp_path / "w.pt"), str(tmp_path / "m.onnx")]
    said = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    assert said.startswith("False")
    assert "this is a state_dict" in said and "--factory" in said


def test_what_may_be_more_than_weights_is_left_to_torch(tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(3, 4), tmp_path / "module.pt")
    refuse_bare_weights(Source(tmp_path / "module.pt"))
    (tmp_path / "damaged.pt").write_bytes(b"PK\x03\x04 nothing")
    refuse_bare_weights(Source(tmp_path / "damaged.pt"))
    torch.save(torch.nn.Linear(3, 4).state_dict(), tmp_path / "w.pt")
    with pytest.raises(UsageError, match="state_dict"):
        refuse_bare_weights(Source(tmp_path / "w.pt"))
