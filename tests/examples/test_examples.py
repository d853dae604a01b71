"""The examples do what they say: each is run as it stands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def run(tool_path: str) -> Run:
    """Run an example: its script, and the arguments."""
    return lambda script, *arguments, path=tool_path: subprocess.run(
        [EXAMPLES / script, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path, "COLUMNS": "100"},
        timeout=300,
        check=False,
    )


def accuracy(model: Path, data: Path, name: str) -> float:
    """Share of right labels, by the runtime alone."""
    arrays = np.load(data)
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    outputs = session.run(None, {session.get_inputs()[0].name: arrays[name]})
    return float(np.mean(outputs[0].argmax(1) == arrays["label"]))


@pytest.fixture(scope="module")
def pytorch_results(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pytorch results")
    done = run("pytorch_to_int8.sh", out)
    assert done.returncode == 0, done.stderr + done.stdout
    return out


def test_pytorch_to_int8_keeps_accuracy_and_shrinks(pytorch_results: Path) -> None:
    original, small = pytorch_results / "digits.onnx", pytorch_results / "digits.int8.onnx"
    data = ROOT / "fixtures" / "eval.npz"
    assert accuracy(original, data, "image") - accuracy(small, data, "image") <= 0.01
    assert small.stat().st_size < 0.4 * original.stat().st_size


def test_keras_keeps_accuracy_and_names(run: Run, tmp_path: Path) -> None:
    done = run("keras.sh", tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    assert accuracy(tmp_path / "digits.opt.onnx", ROOT / "fixtures" / "eval_keras.npz", "image") > 0.98
    graph = onnx.load(tmp_path / "digits.opt.onnx").graph
    assert [i.name for i in graph.input] == ["image"]
    assert [o.name for o in graph.output] == ["probabilities"]


def test_sklearn_predicts_the_labels(run: Run, tmp_path: Path) -> None:
    done = run("sklearn.sh", tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    predictions = np.load(tmp_path / "predictions.npz")
    labels = np.load(ROOT / "fixtures" / "eval_forest.npz")["label"]
    first = next(predictions[n] for n in predictions.files if predictions[n].ndim == 1)
    assert np.mean(first == labels) > 0.93


def test_ci_step_passes_an_equal_model(run: Run, tmp_path: Path, digits_onnx: Path) -> None:
    as_installed = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = run("ci_step.sh", digits_onnx, digits_onnx, tmp_path, path=as_installed)
    assert (done.returncode, done.stdout) == (0, "check: sound\ncompare: equal\n"), done.stderr
    assert json.loads((tmp_path / "check.json").read_text())["ok"] is True


def test_ci_step_stops_at_a_changed_model(run: Run, tmp_path: Path, digits_onnx: Path) -> None:
    model = onnx.load(digits_onnx)
    weight = max(model.graph.initializer, key=lambda t: len(t.raw_data))
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(1.1), weight.name))
    onnx.save(model, tmp_path / "changed.onnx")
    done = run("ci_step.sh", digits_onnx, tmp_path / "changed.onnx", tmp_path / "reports")
    assert done.returncode == 1
    assert "compare: logits differs by" in done.stderr


def test_ci_step_stops_at_a_broken_file(run: Run, tmp_path: Path, digits_onnx: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(digits_onnx.read_bytes()[:1000])
    done = run("ci_step.sh", digits_onnx, tmp_path / "broken.onnx", tmp_path / "reports")
    assert done.returncode == 1
    assert "not a readable ONNX file" in done.stderr


def test_the_notebook_runs_as_a_script_and_shows_what_it_gave(tmp_path: Path) -> None:
    cells = json.loads((EXAMPLES / "python_api.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] for cell in cells[2:] if cell["cell_type"] == "code"), "execute it before committing"
    last_lines = [f"print(repr({block.splitlines()[-1]}))" if i in (3, 4, 6) else "" for i, block in enumerate(code)]
    script = "\n".join(line for pair in zip(code, last_lines, strict=True) for line in pair)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("True") == 3 and "InputError 3 no-such-file.onnx" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(find_spec("sklearn") is None, reason="scikit-learn is not installed")
def test_the_notebook_of_data_frames_gives_the_pipelines_predictions(tmp_path: Path) -> None:
    text = (EXAMPLES / "data_frames.ipynb").read_text(encoding="utf-8")
    code = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] for cell in code), "execute it before committing"
    assert not any(place in text for place in ("/home/", "/tmp/", "/work/", "site-packages", "Warning"))
    script = "\n".join("".join(cell["source"]) for cell in code).replace("=train)", '=train, effort="quick")')
    script = script.replace("data=test)\nassert compared", 'data=test, effort="quick")\nassert compared')
    assert script.count('effort="quick"') == 2
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert "no column 'income'" in done.stdout and "column 'age': 'forty' is not a number" in done.stdout
