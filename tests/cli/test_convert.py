"""`onnxtool convert` through the real command: table, JSON, exit codes, files left behind."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch

from onnxtool.model.provenance.metadata import read_history
from tests.conftest import Result

Tool = Callable[..., Result]
SCHEMA = Path(__file__).parents[2] / "docs" / "schema" / "convert.json"
SHAPE = ("--input-shape", "image:batch,1,8,8")


@pytest.fixture(scope="module")
def digits(fixtures: Path) -> tuple[Any, ...]:
    """The arguments that convert the real model."""
    return (fixtures / "digits_cnn.pt", "--factory", f"{fixtures / 'digits_cnn.py'}:make", *SHAPE)


@pytest.fixture(scope="module")
def done(onnxtool: Tool, digits: tuple[Any, ...], tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    """The real model converted once, with JSON to a file."""
    folder = tmp_path_factory.mktemp("convert")
    return onnxtool(
        "convert", *digits, "-o", folder / "digits.onnx", "--output-names", "logits", "--json", folder / "r.json"
    ), folder


def test_shows_what_was_recognised_and_how_far_apart(done: tuple[Result, Path]) -> None:
    result, folder = done
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert "PyTorch state_dict, torch" in result.stdout
    assert "image: float32[batch, 1, 8, 8]" in result.stdout
    row = next(line for line in result.stdout.splitlines() if line.strip().startswith("logits"))
    assert "equal" in row
    assert f"OK  {folder / 'digits.onnx'} written" in result.stdout


def test_no_exporter_chatter(done: tuple[Result, Path]) -> None:
    text = done[0].stdout + done[0].stderr
    for noise in ("torch.onnx]", "Warning", "W11", "torchvision", "Deprecat"):
        assert noise not in text


def test_json_keeps_its_schema(done: tuple[Result, Path]) -> None:
    report = json.loads((done[1] / "r.json").read_text())
    jsonschema.validate(report, json.loads(SCHEMA.read_text()))
    assert report["ok"] and report["written"] and report["size_bytes"] == (done[1] / "digits.onnx").stat().st_size
    assert [run["image"][0] for run in report["comparison"]["runs"]] == [2, 1, 5]


def test_the_file_is_as_accurate_as_the_model(done: tuple[Result, Path], fixtures: Path) -> None:
    with np.load(fixtures / "eval.npz") as data:
        session = ort.InferenceSession(str(done[1] / "digits.onnx"), providers=["CPUExecutionProvider"])
        logits = session.run(["logits"], {"image": data["image"]})[0]
        assert int((logits.argmax(1) == data["label"]).sum()) == 716  # fixtures/README.md


def test_the_file_says_where_it_came_from(done: tuple[Result, Path], fixtures: Path, onnxtool: Tool) -> None:
    import hashlib

    model = onnx.load(done[1] / "digits.onnx")
    (step,) = read_history({p.key: p.value for p in model.metadata_props})
    assert step["source_sha256"] == hashlib.sha256((fixtures / "digits_cnn.pt").read_bytes()).hexdigest()
    assert step["form"] == "PyTorch state_dict" and step["framework"].startswith("torch ")
    assert step["options"]["factory"] == "digits_cnn.py:make"
    assert step["verification"]["equal"] is True and set(step["versions"]) >= {"onnx", "onnxruntime"}
    assert str(fixtures.parent) not in str(model.metadata_props)
    shown = onnxtool("inspect", done[1] / "digits.onnx").stdout
    assert "of digits_cnn.pt" in shown and step["source_sha256"] in shown
    assert "PyTorch state_dict, torch " in shown and "verification: equal in 3 runs (random, seed 0)" in shown


def test_check_finds_the_file_sound(done: tuple[Result, Path], onnxtool: Tool) -> None:
    assert onnxtool("check", done[1] / "digits.onnx").returncode == 0


def test_compare_takes_the_framework_file(done: tuple[Result, Path], fixtures: Path, onnxtool: Tool) -> None:
    factory = ("--factory", f"{fixtures / 'digits_cnn.py'}:make")
    result = onnxtool("compare", fixtures / "digits_cnn.pt", done[1] / "digits.onnx", *factory)
    assert result.returncode == 0, result.stderr
    assert "equal within" in result.stdout


def test_compare_sees_other_weights(done: tuple[Result, Path], fixtures: Path, tmp_path: Path, onnxtool: Tool) -> None:
    weights = torch.load(fixtures / "digits_cnn.pt", weights_only=True)
    torch.save({k: v * 1.5 if v.is_floating_point() else v for k, v in weights.items()}, tmp_path / "other.pt")
    factory = ("--factory", f"{fixtures / 'digits_cnn.py'}:make")
    result = onnxtool("compare", tmp_path / "other.pt", done[1] / "digits.onnx", *factory)
    assert result.returncode == 1
    assert "differs" in result.stdout


def test_a_difference_is_exit_1_and_leaves_nothing(tmp_path: Path, onnxtool: Tool) -> None:
    # Tracing freezes one side of the branch, so that the file differs from the module.
    models = Path(__file__).parents[1] / "conversion" / "pytorch" / "torch_models.py"
    arguments = ("--factory", f"{models}:Branching", "--input-shape", "b,3", "--exporter", "torchscript")
    kept = tmp_path / "kept.onnx"
    result = onnxtool("convert", *arguments, "-o", tmp_path / "x.onnx", "--keep-failed", kept)
    assert result.returncode == 1, result.stderr
    assert "FAILED" in result.stdout and "worst output output" in result.stdout
    assert not (tmp_path / "x.onnx").exists() and kept.exists()
    unverified = onnxtool("convert", *arguments, "-o", tmp_path / "x.onnx", "--no-verify")
    assert unverified.returncode == 0 and "unverified" in unverified.stdout
    (step,) = read_history({p.key: p.value for p in onnx.load(tmp_path / "x.onnx").metadata_props})
    assert "--no-verify" in step["verification"]
    assert "verification: none: switched off with --no-verify" in onnxtool("inspect", tmp_path / "x.onnx").stdout


def test_replaces_the_old_file_only_when_equal(tmp_path: Path, onnxtool: Tool) -> None:
    models = Path(__file__).parents[1] / "conversion" / "pytorch" / "torch_models.py"
    output = tmp_path / "x.onnx"
    output.write_bytes(b"old")
    arguments = ("--factory", f"{models}:Branching", "--input-shape", "b,3", "--exporter", "torchscript")
    assert onnxtool("convert", *arguments, "-o", output).returncode == 1
    assert output.read_bytes() == b"old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.onnx"]


def test_factory_alone_with_arguments(tmp_path: Path, onnxtool: Tool) -> None:
    models = Path(__file__).parents[1] / "conversion" / "pytorch" / "torch_models.py"
    arguments = ("--factory-arg", "width=5", "--factory-arg", "factor=0.5", "--factory-arg", "bias=false")
    result = onnxtool(
        "convert", "--factory", f"{models}:Scaled", *arguments, "--input-shape", "x:n,5", "-o", tmp_path / "x.onnx"
    )
    assert result.returncode == 0, result.stderr
    assert "no weights were loaded" in result.stdout
    assert not any("bias" in i.name for i in onnx.load(tmp_path / "x.onnx").graph.initializer)


def test_pickled_module_needs_trust_and_its_code(
    tmp_path: Path, fixtures: Path, onnxtool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as here:
        here.syspath_prepend(fixtures)
        made = importlib.import_module("digits_cnn")
        torch.save(made.make(), tmp_path / "m.pt")
        here.delitem(sys.modules, "digits_cnn")
    arguments = ("convert", tmp_path / "m.pt", *SHAPE, "-o", tmp_path / "x.onnx")
    refused = onnxtool(*arguments)
    assert refused.returncode == 5
    assert refused.stderr == (
        f"error: {tmp_path / 'm.pt'}: this is a pickled module (digits_cnn.DigitsCNN), which can run code when loaded. "
        "Pass --trust if you trust it, or export a state_dict and name its class with --factory package.module:Class.\n"
    )
    lost = onnxtool(*arguments, "--trust", cwd=tmp_path)
    assert lost.returncode == 3 and "--pythonpath" in lost.stderr
    assert not (tmp_path / "x.onnx").exists()
    found = onnxtool(*arguments, "--trust", "--pythonpath", fixtures, cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert "trusted" in found.stdout


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--input-dtype", "image:float99"), 2, "is not a dtype"),
        (("--input-dtype", "picture:int64"), 2, "no input 'picture'"),
        (("--factory-arg", "oops"), 2, "NAME=VALUE"),
        (("--exporter", "magic"), 2, "--exporter magic"),
        (("--opset", "99"), 2, "--opset 99"),
        (("--input-names", "a,b"), 2, "gives 2 names"),
        (("--sample", "nowhere.npz"), 3, "no such file"),
        (("--input-shape", "image:batch,1,8,8"), 2, "twice"),
    ],
)
def test_bad_options(
    options: tuple[str, ...], code: int, message: str, digits: tuple[Any, ...], tmp_path: Path, onnxtool: Tool
) -> None:
    result = onnxtool("convert", *digits, *options, "-o", tmp_path / "x.onnx")
    assert result.returncode == code
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    assert message in result.stderr
    assert not (tmp_path / "x.onnx").exists()


def test_a_missing_framework_is_one_line_and_exit_4(digits: tuple[Any, ...], tmp_path: Path, onnxtool: Tool) -> None:
    # A folder in front of the path, in which importing torch fails as if it were not installed.
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, package=None: None if name == 'torch' else find(name, package)\n",
        encoding="utf-8",
    )
    result = onnxtool("convert", *digits, "-o", tmp_path / "x.onnx", env={"PYTHONPATH": str(tmp_path)})
    assert result.returncode == 4
    assert result.stderr.endswith(
        'this needs PyTorch, which is not installed. Run, in a clone of onnxtool: pip install ".[pytorch]"\n'
    )


def test_fits_eighty_columns(digits: tuple[Any, ...], tmp_path: Path, onnxtool: Tool) -> None:
    result = onnxtool("convert", *digits, "-o", tmp_path / "x.onnx", "--opset", "17", env={"COLUMNS": "80"})
    assert result.returncode == 0
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_reproducible_files_are_the_same_in_every_process(
    digits: tuple[Any, ...], tmp_path: Path, onnxtool: Tool
) -> None:
    """Two processes with other hashes, each of which converts with both exporters."""
    exporters, quick = ("dynamo", "torchscript"), ("--reproducible", "--effort", "quick")
    commands = [
        ["convert", *map(str, digits), "-o", f"{exporter}.onnx", "--exporter", exporter, *quick]
        for exporter in exporters
    ]
    code = f"from onnxtool.cli.app import main\nfor words in {commands!r}:\n    try:\n        main(words)\n"
    code += "    except SystemExit as ending:\n        assert not ending.code, (words, ending.code)\n"
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, capture_output=True)
    other = tmp_path / "other"  # of a process whose hashes are drawn
    other.mkdir()
    for exporter, command in zip(exporters, commands, strict=True):
        assert onnxtool(*command, cwd=other).returncode == 0
        first, second = (folder / f"{exporter}.onnx" for folder in (tmp_path, other))
        assert first.read_bytes() == second.read_bytes(), exporter


def test_exporter_is_heard_with_vv(digits: tuple[Any, ...], tmp_path: Path, onnxtool: Tool) -> None:
    result = onnxtool("convert", *digits, "-o", tmp_path / "x.onnx", "-vv")
    assert result.returncode == 0
    assert "[torch.onnx]" in result.stdout + result.stderr
