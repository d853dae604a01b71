"""Files of old operator sets compute what they did, in every command that takes a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxtool
from onnxtool.errors import InputError, UnsupportedError
from onnxtool.model.file import ModelFile
from onnxtool.model.io import old_opset
from onnxtool.runtime.runner import OnnxRunner
from tests.model.old_files import FILES, OldFile, named


@pytest.fixture(params=FILES)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[OldFile, Path]:
    file = FILES[request.param]
    onnx.save(file.model(), tmp_path / "old.onnx")
    return file, tmp_path / "old.onnx"


def right(file: OldFile, path: Path) -> None:
    runner = OnnxRunner.open(path)
    for seed in (1, 2):
        x = file.x(seed)
        (found,) = runner.run({"x": x}).values()
        np.testing.assert_allclose(found, file.expected(x), rtol=1e-4, atol=1e-5)


def test_runs_and_is_valid(old: tuple[OldFile, Path]) -> None:
    file, path = old
    right(file, path)
    report = onnxtool.check(path)
    assert report.ok, report.findings
    assert [s.state for s in report.stages] == ["passed"] * len(report.stages)


@pytest.mark.parametrize("opset", [12, 17])
def test_is_written_in_a_later_operator_set(old: tuple[OldFile, Path], opset: int) -> None:
    file, path = old
    onnxtool.edit(path, path.with_name("new.onnx"), [f"opset={opset}"])
    right(file, path.with_name("new.onnx"))
    new = onnx.load(path.with_name("new.onnx"))
    assert [o.version for o in new.opset_import if not o.domain] == [opset]
    assert [i.name for i in new.graph.input] == ["x"]  # weights are constants, no inputs that may be overridden


def test_is_optimized(old: tuple[OldFile, Path]) -> None:
    file, path = old
    assert onnxtool.optimize(path, path.with_name("new.onnx"), bench=False).ok
    right(file, path.with_name("new.onnx"))
    assert not old_opset(path.with_name("new.onnx"))


def test_says_what_it_was(tmp_path: Path) -> None:
    onnx.save(named("Chainer"), tmp_path / "old.onnx")
    said = "is of opset 6, which ONNX Runtime does not run: it is read as opset 7."
    assert said in onnxtool.inspect(tmp_path / "old.onnx").warnings[0]
    assert said in onnxtool.optimize(tmp_path / "old.onnx", tmp_path / "new.onnx", bench=False).warnings[0]
    assert said in onnxtool.edit(tmp_path / "old.onnx", tmp_path / "new.onnx", ["doc=x"]).warnings[0]
    assert (
        "the model uses opset 6"
        in next(f for f in onnxtool.check(tmp_path / "old.onnx").findings if f.id == "OT012").message
    )
    onnx.save(named("MATLAB"), tmp_path / "later.onnx")
    assert ModelFile(tmp_path / "later.onnx").old_opset == 0
    assert ModelFile(tmp_path / "none.onnx").old_opset == 0
    unsaid = named("MATLAB")  # of a format that says it
    del unsaid.opset_import[:]
    onnx.save(unsaid, tmp_path / "unsaid.onnx")
    assert ModelFile(tmp_path / "unsaid.onnx").old_opset == 0


@pytest.mark.parametrize(
    ("name", "instead", "error", "said"),
    [
        ("Chainer", {"is_test = 1": "is_test = 0"}, UnsupportedError, "BatchNormalization 'n' is in training mode"),
        ("Caffe2, no operator set", {"is_test = 1, ": ""}, UnsupportedError, "Dropout 'd' is in training mode"),
        (
            "names of types, borders by their old name",
            {"DOUBLE": "DUBLE"},
            InputError,
            "attributes that operator set 1",
        ),
        ("Caffe's own operators", {"[1, 2, 1, 1]": "[1, 2]"}, InputError, "attributes that operator set 1"),
        ("Chainer", {"(x, s, b, m, v)": "(nowhere, s, b, m, v)"}, UnsupportedError, "how many dims"),
    ],
)
def test_what_it_cannot_be_is_said(
    name: str, instead: dict[str, str], error: type[Exception], said: str, tmp_path: Path
) -> None:
    onnx.save(named(name, instead=instead), tmp_path / "old.onnx")
    with pytest.raises(error, match=said):
        onnxtool.check(tmp_path / "old.onnx")


@pytest.mark.parametrize("kind", ["PRelu", "Add", "Tile", "Upsample", "Cast", "Crop", "BatchNormalization", "Split"])
def test_nodes_without_inputs_and_outputs_are_refused(kind: str, tmp_path: Path) -> None:
    model = named("Chainer")
    del model.graph.node[0].input[:], model.graph.node[0].output[:], model.graph.node[0].attribute[:]
    model.graph.node[0].op_type = kind
    onnx.save(model, tmp_path / "old.onnx")
    with pytest.raises((InputError, UnsupportedError)):
        OnnxRunner.open(tmp_path / "old.onnx")
