"""The bill of materials."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import onnx

from onnxtool.model import io
from onnxtool.model.provenance.metadata import add_history
from onnxtool.model.provenance.sbom import sbom

Tool = Callable[..., "CompletedProcess[str]"]


def test_tells_hashes_interface_and_packages(tmp_path: Path, digits_onnx: Path) -> None:
    model = io.load(digits_onnx)
    model.metadata_props["License"] = "Apache-2.0"
    add_history(model, "convert", {"versions": {"torch": "2.13.0"}})
    io.save(model, tmp_path / "m.onnx", external=True)
    document = sbom(tmp_path / "m.onnx")
    component = document["metadata"]["component"]
    assert component["type"] == "machine-learning-model"
    assert component["hashes"][0]["content"] == hashlib.sha256((tmp_path / "m.onnx").read_bytes()).hexdigest()
    assert component["licenses"] == [{"license": {"name": "Apache-2.0"}}]
    assert component["modelCard"]["modelParameters"]["inputs"] == [{"format": "image: float32[batch, 1, 8, 8]"}]
    (data,) = [c for c in document["components"] if c["type"] == "file"]
    assert data["hashes"][0]["content"] == hashlib.sha256((tmp_path / "m.onnx.data").read_bytes()).hexdigest()
    purls = [c["purl"] for c in document["components"] if c["type"] == "library"]
    assert "pkg:pypi/torch@2.13.0" in purls


def test_is_the_same_for_the_same_file(digits_onnx: Path, tmp_path: Path) -> None:
    assert sbom(digits_onnx) == sbom(digits_onnx)
    changed = onnx.load(digits_onnx)
    changed.doc_string = "other"
    onnx.save(changed, tmp_path / "m.onnx")
    assert sbom(digits_onnx)["serialNumber"] != sbom(tmp_path / "m.onnx")["serialNumber"]


def test_inspect_writes_it(onnxtool: Tool, digits_onnx: Path, tmp_path: Path) -> None:
    done = onnxtool("inspect", digits_onnx, "--sbom", tmp_path / "bom.json", "-q")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "bom.json").read_text()) == sbom(digits_onnx)
    assert onnxtool("inspect", digits_onnx, "--sbom", tmp_path).returncode == 2
