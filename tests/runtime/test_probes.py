"""Random inputs for models that take only some sizes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from onnxtool.errors import InputError, ResourceError
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.feeds import Feeds
from onnxtool.runtime.probes import find_probes, runnable_feeds
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.worker.errors import WorkerTimeoutError

# A window of 400 samples, as a front end for speech has it; and halves that fit only where the width divides by 32.
_SPEECH = """
g (float[N, samples] x) => (float[N, F] y) <int64[4] pads = {0, 200, 0, 200}> { y = Pad <mode = "reflect"> (x, pads) }
"""
_IMAGE = """
g (float[N, 3, H, W] x) => (float[N, 3, P, Q] y)
<int64[4] target = {0, 0, 4, -1}, int64[4] rest = {0, 3, 32, -1}>
{
    rows = Reshape(x, rest)
    y = Reshape(rows, target)
}
"""
_NEVER = "g (float[N, M] x) => (float[N, K] y) <int64[1] wrong = {7919}> { y = Reshape(x, wrong) }"
# Divides by zero, which ends the process, where fewer than 1000 samples go in.
_CRASH = """
g (float[N, samples] x) => (int64[1] y)
<int64[1] window = {1000}, int64[1] one = {1}>
{
    length = Shape <start = 1> (x)
    windows = Div(length, window)
    y = Div(one, windows)
}
"""


def _model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]>\n{text}')


@pytest.mark.parametrize("text", [_SPEECH, _IMAGE], ids=["speech", "image"])
def test_finds_sizes_that_the_model_takes(text: str) -> None:
    runner = OnnxRunner.open(_model(text))
    probes = find_probes(runner, runner.inputs, 0)
    assert len(probes) >= 3
    assert len({p.feeds["x"].shape for p in probes}) == len(probes)
    feeds = runnable_feeds(runner, runner.inputs, 0, batch=3)[0]
    assert feeds["x"].shape[0] == 3
    runner.run(feeds)


def test_dims_that_may_differ_do_so_once() -> None:
    for names in (("n", "h", "w"), ("n", "?", "?"), ("n", "", "")):
        model = _model("g (float[n, h, w] x) => (float[n, h, w] y) { y = Abs (x) }")
        for dim, name in zip(model.graph.input[0].type.tensor_type.shape.dim, names, strict=True):
            dim.dim_param = name
        runner = OnnxRunner.open(model)
        shapes = [p.feeds["x"].shape for p in find_probes(runner, runner.inputs, 0)]
        assert any(len({*shape[1:]}) == 2 for shape in shapes), names


def test_says_that_no_size_works() -> None:
    runner = OnnxRunner.open(_model(_NEVER))
    with pytest.raises(InputError, match=r"does not run on random inputs of any usual size .* Give --data"):
        find_probes(runner, runner.inputs, 0)


def test_commands_find_a_size_too(tmp_path: Path) -> None:
    path = tmp_path / "speech.onnx"
    onnx.save(_model(_SPEECH), path)
    commands = (
        ["run", path],
        ["compare", path, path],
        ["compare", path, path, "--batch-sizes", "1,4"],
        ["bench", path, "--budget", "0.05"],
        ["optimize", path, "-o", tmp_path / "o.onnx"],
        ["quantize", path, "-o", tmp_path / "h.onnx", "--mode", "float16"],
    )
    for command in commands:
        done = _onnxtool(*command)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_crash_on_small_inputs_is_not_held_against_the_model(tmp_path: Path) -> None:
    path = tmp_path / "crash.onnx"
    onnx.save(_model(_CRASH), path)
    for command in (["run", path], ["check", path], ["compare", path, path], ["optimize", path, "-o", tmp_path / "o"]):
        done = _onnxtool(*command)
        assert done.returncode == 0, done.stdout + done.stderr


def _onnxtool(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "onnxtool", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


# A recurrent cell with its state beside the sound, as a real voice detector has it, and no names for its dims.
_STATE = """
g (float[L, samples] x, float[2, B, 1] state) => (float[2, B, S] y)
<int64[1] axis = {0}, int64[4] pads = {0, 300, 0, 300}>
{
    longer = Pad <mode = "reflect"> (x, pads)
    rows = Unsqueeze(longer, axis)
    both = Concat <axis = 0> (rows, rows)
    y = Concat <axis = 2> (both, state)
}
"""


def test_finds_the_batch_of_a_state() -> None:
    runner = OnnxRunner.open(_model(_STATE))
    probes = find_probes(runner, runner.inputs, 0)
    assert len({p.feeds["x"].shape for p in probes}) == 3
    assert all(p.feeds["state"].shape[1] == len(p.feeds["x"]) for p in probes)


def test_a_source_that_never_ends_is_no_wrong_input_and_is_not_tried_at_every_size() -> None:
    runs = []

    class Endless:
        inputs = outputs = (TensorSpec("x", np.dtype(np.float32), ("n",)),)

        def run(self, feeds: Feeds) -> dict[str, Any]:
            runs.append(feeds)
            raise WorkerTimeoutError("it took longer than 10 s")

    with pytest.raises(ResourceError, match="took longer than 10 s"):
        find_probes(Endless(), Endless.inputs, 0)
    assert len(runs) == 3
