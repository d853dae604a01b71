"""compare --layers of PyTorch and Keras models and their conversions: modules and layers are found in the file."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onnxtool.conversion.convert import convert, open_source
from onnxtool.equality.compare import compare
from onnxtool.errors import UnsupportedError
from onnxtool.runtime.feeds import random_feeds

FIXTURES = Path(__file__).parents[2] / "fixtures"
FACTORY = f"{FIXTURES / 'digits_cnn.py'}:DigitsCNN"


def damage(source: Path, target: Path, weight: str) -> Path:
    model = onnx.load(source)
    tensor = next(t for t in model.graph.initializer if t.name == weight)
    values = numpy_helper.to_array(tensor).copy()
    values.reshape(-1)[5] += 1
    tensor.CopyFrom(numpy_helper.from_array(values, weight))
    onnx.save(model, target)
    return target


def layers(source: Any, model: Path) -> Any:
    return compare(source, model, layers=True).layers


def test_names_the_pytorch_module(digits_onnx: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    shapes = {"": ("batch", 1, 8, 8)}
    source = open_source(FIXTURES / "digits_cnn.pt", factory=FACTORY, input_shapes=shapes)
    found = layers(source, digits_onnx)
    assert found.culprit is None
    assert {"features.0.1", "features.3", "head.1", "head.4"} <= {t.name for t in found.tensors}
    culprit = layers(source, damage(digits_onnx, tmp_path / "bad.onnx", "features.1.0.weight")).culprit
    assert "features.1.0.weight" in culprit.suspects[0].inputs
    assert [s.node for s in culprit.suspects if s.model == "A"] == ["features.1.0"]


def test_the_command_names_the_module_too(digits_onnx: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    bad = damage(digits_onnx, tmp_path / "bad.onnx", "head.4.weight")
    command = [sys.executable, "-m", "onnxtool", "compare", FIXTURES / "digits_cnn.pt", bad, "--factory", FACTORY]
    done = subprocess.run([*map(str, command), "--layers"], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "first wrong tensor: head.4" in done.stdout + done.stderr
    assert "A: Linear head.4\n" in done.stdout + done.stderr


def test_looks_into_an_exported_program(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)).eval()
    torch.export.save(torch.export.export(module, (torch.zeros(2, 4),)), tmp_path / "m.pt2")
    convert(tmp_path / "m.pt2", tmp_path / "m.onnx")
    found = layers(open_source(tmp_path / "m.pt2"), tmp_path / "m.onnx")
    assert found.culprit is None
    assert {"relu", "linear"} <= {t.name for t in found.tensors}


def test_a_scripted_module_shows_nothing(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(
            torch.jit.trace(torch.nn.Sequential(torch.nn.Linear(4, 2)), torch.zeros(1, 4)), tmp_path / "s.pt"
        )
    convert(tmp_path / "s.pt", tmp_path / "s.onnx", input_shapes={"": ("batch", 4)})
    source = open_source(tmp_path / "s.pt", input_shapes={"": ("batch", 4)})
    with pytest.raises(UnsupportedError, match="no layers inside"):
        layers(source, tmp_path / "s.onnx")


def test_names_the_keras_layer(tmp_path: Path) -> None:
    pytest.importorskip("keras")
    pytest.importorskip("tensorflow")
    good = tmp_path / "good.onnx"
    convert(FIXTURES / "digits_keras.keras", good)
    source = open_source(FIXTURES / "digits_keras.keras")
    found = layers(source, good)
    assert found.culprit is None
    assert {"conv1", "pool", "hidden", "probabilities"} <= {t.name for t in found.tensors}
    reader = next(n for n in onnx.load(good).graph.node if n.op_type == "Conv" and "conv2" in n.input[1])
    culprit = layers(source, damage(good, tmp_path / "bad.onnx", reader.input[1])).culprit
    assert culprit.tensor == "conv2"
    assert [s.node for s in culprit.suspects] == [reader.name, "conv2"]


def test_a_large_batch_runs_as_a_graph_and_its_layers_are_seen_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("keras")
    watched: Any = open_source(FIXTURES / "digits_keras.keras")
    model = watched._model
    ran: list[str] = []
    call, concrete = model.call, model.trace()
    monkeypatch.setattr(model, "call", lambda *flat: ran.append("eager") or call(*flat))
    monkeypatch.setattr(model, "concrete", lambda *flat: ran.append("graph") or concrete(*flat))
    feeds = random_feeds(model.inputs, batch=3)
    (eager,) = model.run(feeds).values()
    monkeypatch.setattr("onnxtool.conversion.keras.model._LARGE_INPUTS", 0)
    (graph,) = model.run(feeds).values()
    np.testing.assert_allclose(graph, eager, rtol=1e-5, atol=1e-6)
    model.run(random_feeds(model.inputs, batch=1))
    seen: list[str] = []
    model.layers(feeds, lambda name, *_: seen.append(name))
    assert ran == ["eager", "graph", "eager", "eager"]
    assert seen
