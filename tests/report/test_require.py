"""--require certified: what was only tested ends with exit 1, in every command that has the option."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from onnxtool.editing.edit import edit
from onnxtool.equality.compare import compare
from onnxtool.optimization.optimize import optimize
from onnxtool.options.compare import CompareOptions
from onnxtool.options.convert import ConvertOptions
from onnxtool.options.edit import EditOptions
from onnxtool.options.optimize import OptimizeOptions
from onnxtool.options.option import options_of
from onnxtool.report.convert import ConvertReport
from tests.editing.conftest import write

# Positions of what is not zero: their number depends on values, of which there is no certificate.
UNDECIDED = "g (float[N, 3] x) => (int64[2, M] y) { a = Identity(x) y = NonZero(a) }"
LINEAR = "g (float[N, 3] x) => (float[N, 3] y) { a = Identity(x) y = MatMul(a, w) }"
WEIGHTS = {"w": np.float32([[1, 2, 3], [4, 5, 6], [7, 8, 10]])}


@pytest.fixture(params=[UNDECIDED, LINEAR], ids=["tested", "certified"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write(tmp_path / "m.onnx", request.param, WEIGHTS if request.param == LINEAR else {})


@pytest.mark.parametrize("kind", [CompareOptions, ConvertOptions, EditOptions, OptimizeOptions])
def test_the_option_is_the_same_in_all_commands(kind: type) -> None:
    assert options_of(kind)["require"].help == options_of(CompareOptions)["require"].help


@pytest.mark.usefixtures("normal_effort")
def test_optimize(source: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    certified = "certified" in request.node.name
    output = tmp_path / "o.onnx"
    asked = optimize(source, output, passes=("eliminate-identity",), bench=False, require="certified")
    assert asked.ok == certified
    assert output.exists()
    assert replace(asked, require="tested").ok


def test_edit(source: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    certified = "certified" in request.node.name
    output = tmp_path / "o.onnx"
    asked = edit(source, output, ["opset=19", "doc=a text"], require="certified")
    assert (asked.ok, asked.verdict) == (certified, "certified" if certified else "tested")
    assert output.exists()
    assert replace(asked, require="tested").ok


def test_a_change_on_purpose_is_tested(tmp_path: Path) -> None:
    source = write(tmp_path / "m.onnx", LINEAR, WEIGHTS)
    assert edit(source, tmp_path / "o.onnx", ["doc=a text", "post=softmax"]).verdict == "tested"
    assert edit(source, tmp_path / "o.onnx", ["doc=a text"], verify=False).verdict == "not tested"


def test_convert(source: Path, request: pytest.FixtureRequest) -> None:
    certified = "certified" in request.node.name
    report = ConvertReport("m", "o", "", "", "", (), (), 20, 1, 1, compare(source, source), written=True)
    assert report.ok
    assert replace(report, require="certified").ok == certified
    assert not replace(report, comparison=None, require="certified").ok
