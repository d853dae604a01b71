"""Golden files: recorded once, held against later models."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onnxtool.equality.golden import golden, record
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.errors import InputError, UsageError


@pytest.fixture
def model(relu_proto: onnx.ModelProto, tmp_path: Path) -> Path:
    onnx.save(relu_proto, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def changed(model: Path, by: float) -> Path:
    proto = onnx.load(model)
    values = numpy_helper.to_array(proto.graph.initializer[0]) + np.float32(by)
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(values, "w"))
    onnx.save(proto, model.with_name("changed.onnx"))
    return model.with_name("changed.onnx")


def test_the_recorded_model_passes_and_a_changed_one_fails(model: Path, tmp_path: Path) -> None:
    made = record(model, tmp_path / "gold", batches=(1, 4))
    assert made.ok
    assert len(made.runs) == 2
    assert golden(model, tmp_path / "gold").ok
    report = golden(changed(model, 0.01), tmp_path / "gold")
    assert not report.ok
    assert golden(changed(model, 0.01), tmp_path / "gold", tolerances={"y": Tolerance(1.0, 1.0)}).ok


def test_the_tolerance_is_a_thousandth_unless_another_is_given(model: Path, tmp_path: Path) -> None:
    record(model, tmp_path / "gold", batches=(4,))
    nearly = changed(model, 0.004)
    assert not golden(nearly, tmp_path / "gold").ok
    assert golden(nearly, tmp_path / "gold", rtol=0.1, atol=0.1).ok
    assert "very model" not in " ".join(golden(nearly, tmp_path / "gold").warnings)
    assert "very model" in " ".join(golden(model, tmp_path / "gold").warnings)


def test_recording_holds_inputs_outputs_and_hashes(model: Path, tmp_path: Path) -> None:
    x = np.array([[1, 2, 3]], np.float32)
    record(model, tmp_path / "gold", data={"x": x})
    case = np.load(tmp_path / "gold" / "case0.npz")
    np.testing.assert_array_equal(case["input/x"], x)
    weight = np.array([[1, -1], [0.5, 0.25], [-2, 3]], np.float32)
    np.testing.assert_allclose(case["output/y"], np.maximum(x @ weight, 0))
    manifest = json.loads((tmp_path / "gold" / "golden.json").read_text())
    assert manifest["format"] == "onnxtool/golden/1"
    assert len(manifest["cases"][0]["sha256"]) == 64


def test_changed_or_missing_files_are_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no golden\.json"):
        golden(model, tmp_path)
    record(model, tmp_path / "gold")
    np.savez(tmp_path / "gold" / "case0.npz", **{"input/x": np.zeros((1, 3), np.float32)})
    with pytest.raises(InputError, match="was changed"):
        golden(model, tmp_path / "gold")
    manifest = tmp_path / "gold" / "golden.json"
    manifest.write_text(json.dumps({"format": "onnxtool/golden/1", "cases": [{"file": "../x.npz", "sha256": ""}]}))
    with pytest.raises(InputError, match="not in the folder"):
        golden(model, tmp_path / "gold")
    with pytest.raises(UsageError, match="is a file"):
        record(model, model)


@pytest.mark.parametrize(
    "manifest",
    [
        [],
        {},
        {"format": "onnxtool/golden/2", "cases": [{"file": "case0.npz", "sha256": ""}]},
        {"format": "onnxtool/golden/1", "cases": []},
        {"format": "onnxtool/golden/1", "cases": ["case0.npz"]},
        {"format": "onnxtool/golden/1", "cases": [{"file": "case0.npz", "sha256": ""}, {"file": "case1.npz"}]},
    ],
)
def test_another_manifest_is_refused(model: Path, tmp_path: Path, manifest: object) -> None:
    (tmp_path / "golden.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="not a manifest"):
        golden(model, tmp_path)


def test_a_recording_says_what_it_was_made_of_and_may_be_made_again(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "made" / "with" / "its" / "parents"
    record(model, folder)
    assert "seed 0" in json.loads((folder / "golden.json").read_text())["data"]
    record(model, folder, data={"x": np.ones((1, 3), np.float32)})
    assert json.loads((folder / "golden.json").read_text())["data"] == "given data"


def test_what_is_near_zero_may_be_off_by_a_hundred_thousandth_of_its_column(model: Path, tmp_path: Path) -> None:
    x = np.array([[1, -1, 0], [1e-4, 0, 0]], np.float32)  # what is added to all weights cancels in the first row
    record(model, tmp_path, data={"x": x})
    assert golden(changed(model, 0.02), tmp_path).ok
    assert not golden(changed(model, 0.2), tmp_path).ok
