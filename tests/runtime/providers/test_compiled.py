"""Forms that a provider has compiled. The real provider is OpenVINO, where it is installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxtool
from onnxtool.errors import UnsupportedError, UsageError
from onnxtool.model import io
from onnxtool.model.provenance import verify as verify_module
from onnxtool.model.provenance.metadata import COMPILE_STEP, add_history
from onnxtool.runtime.providers import compiled as module
from onnxtool.runtime.providers.compiled import write_compiled
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import SessionOptions

F32 = SessionOptions("openvino:INFERENCE_PRECISION_HINT=f32")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    graph = helper.make_graph(
        [helper.make_node("Exp", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
    )
    path = tmp_path / "exp.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def stamped(model: Path, target: Path, **details: Any) -> Path:
    """The model with a step of compiling in its history."""
    loaded = io.load(model)
    known = {"source": model.name, "source_sha256": io.sha256(model), "versions": {"onnx": onnx.__version__}}
    add_history(loaded, COMPILE_STEP, known | details)
    io.save(loaded, target)
    return target


def test_the_cpu_compiles_nothing(model: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="no compiled form"):
        write_compiled(model, tmp_path / "c.onnx", SessionOptions())
    assert not (tmp_path / "c.onnx").exists()
    with pytest.raises(UsageError, match="--compile needs a --provider"):
        onnxtool.optimize(model, tmp_path / "o.onnx", compiled=tmp_path / "c.onnx")


def test_a_model_too_large_for_one_file_is_refused(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LARGEST", 10)
    with pytest.raises(UnsupportedError, match="too large"):
        write_compiled(model, tmp_path / "c.onnx", SessionOptions())


def test_verify_knows_what_fits(model: Path, tmp_path: Path) -> None:
    assert onnxtool.verify(stamped(model, tmp_path / "c.onnx")).ok


def test_verify_knows_another_version(model: Path, tmp_path: Path) -> None:
    for version, now in (("0.1", onnx.__version__), ("1.0", "none")):
        package = "onnx" if now != "none" else "no-such-package"
        report = onnxtool.verify(stamped(model, tmp_path / "c.onnx", versions={package: version}))
        assert not report.ok
        assert report.unchanged
        assert report.stale == (f"compiled with {package} {version}; {now} is installed",)


def test_verify_knows_another_source(model: Path, tmp_path: Path) -> None:
    target = stamped(model, tmp_path / "c.onnx")
    assert onnxtool.verify(target).ok
    onnx.save(onnx.ModelProto(ir_version=9), model)
    assert onnxtool.verify(target).stale == ("exp.onnx beside it is not what it was compiled from",)
    model.unlink()
    assert onnxtool.verify(target).ok, "the source need not be there"


def test_a_history_of_a_stranger_is_no_reason_to_look_elsewhere(model: Path, tmp_path: Path) -> None:
    assert verify_module._stale(model, [{"command": COMPILE_STEP, "source": "../../etc/passwd"}]) == []
    assert verify_module._stale(model, [{"command": COMPILE_STEP, "source": 3, "versions": []}]) == []
    assert verify_module._stale(model, [{"command": "optimize", "versions": {"onnx": "0"}}]) == []


@pytest.mark.usefixtures("openvino")
def test_openvino_compiles_and_the_form_gives_the_same(model: Path, tmp_path: Path) -> None:
    target = tmp_path / "c.onnx"
    report = onnxtool.optimize(model, tmp_path / "o.onnx", options=F32, compiled=target, bench=False)
    assert report.compiled is not None
    assert report.compiled.nodes == 1
    assert len(report.providers) == 2
    assert report.ok
    feeds = {"x": np.ones((2, 4), np.float32)}
    np.testing.assert_allclose(OnnxRunner.open(target, F32).run(feeds)["y"], np.full((2, 4), np.e), rtol=1e-5)
    history = json.loads(io.load(target).metadata_props["onnxtool.history"])
    assert history[-1]["source_sha256"] == io.sha256(tmp_path / "o.onnx")
    assert "onnxruntime-ep-openvino" in history[-1]["versions"]
    assert onnxtool.verify(target).ok
