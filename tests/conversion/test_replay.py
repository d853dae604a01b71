"""`verify --replay`: the recorded proof is run again, on the source and the file as they are now."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnxtool
from onnxtool.conversion.replay import recorded_options, replay
from onnxtool.errors import UsageError
from onnxtool.options.convert import ConvertOptions
from tests.conftest import Result

torch = pytest.importorskip("torch")


@pytest.fixture(name="onnxtool_command")
def _command(onnxtool: Callable[..., Result]) -> Callable[..., Result]:
    """The real command, under a name beside the package's."""
    return onnxtool


NET = """
import torch
def make():
    torch.manual_seed({seed})
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
"""


def converted(folder: Path) -> Path:
    (folder / "net.py").write_text(NET.format(seed=0))
    report = onnxtool.convert(
        None,
        folder / "net.onnx",
        factory=f"{folder / 'net.py'}:make",
        input_shapes={"input": ("batch", 4)},
        seed=7,
        effort="quick",
        rtol=2e-3,
    )
    assert report.ok
    return folder / "net.onnx"


def test_the_recorded_proof_holds_again(tmp_path: Path) -> None:
    model = converted(tmp_path)
    report = replay(model, None, ConvertOptions(factory=f"{tmp_path / 'net.py'}:make"))
    assert report.ok
    assert report.rtol == 2e-3
    assert report.coverage is not None
    assert (report.coverage.seed, report.coverage.effort) == (7, "quick")
    assert not [w for w in report.warnings if "other sizes" in w]


def test_another_source_fails(tmp_path: Path) -> None:
    model = converted(tmp_path)
    (tmp_path / "other.py").write_text(NET.format(seed=1))
    assert not replay(model, None, ConvertOptions(factory=f"{tmp_path / 'other.py'}:make")).ok


def test_a_changed_file_fails(tmp_path: Path) -> None:
    model = converted(tmp_path)
    proto = onnx.load(model)
    weight = proto.graph.initializer[0]
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(1.1), weight.name))
    onnx.save(proto, model)
    assert not replay(model, None, ConvertOptions(factory=f"{tmp_path / 'net.py'}:make")).ok


def test_a_factory_is_asked_for(tmp_path: Path) -> None:
    model = converted(tmp_path)
    with pytest.raises(UsageError, match=r"net.py:make.*--factory"):
        replay(model, tmp_path / "net.py")


def test_a_file_without_a_proof_is_refused(tmp_path: Path) -> None:
    graph = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 18]> g (float[4] x) => (float[4] y) { y = Neg(x) }'
    )
    onnx.save(graph, tmp_path / "plain.onnx")
    with pytest.raises(UsageError, match="no proof"):
        replay(tmp_path / "plain.onnx", None)


def test_a_sample_is_asked_for() -> None:
    record = {"verification": {"rtol": 1e-3, "atol": 1e-5}, "options": {"input_dtypes": {"x": "int64"}, "seed": 3}}
    options = recorded_options(record, ConvertOptions())
    assert options.seed == 3
    assert options.input_dtypes == {"x": np.dtype("int64")}


def test_the_command(onnxtool_command: Callable[..., Result], tmp_path: Path) -> None:
    model = converted(tmp_path)
    result = onnxtool_command("verify", model, "--replay", "--factory", f"{tmp_path / 'net.py'}:make", "--json", "-")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["replay"]["coverage"]["seed"] == 7
    assert onnxtool_command("verify", model, "--replay").returncode == 2
