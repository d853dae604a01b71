"""Ctrl-C and termination in the middle of the work: the exit code, no child, no temporary file, the old output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")

COMMAND = [sys.executable, "-m", "onnxtool"]
PATIENCE = 180.0  # for a machine with other things to do; nothing here takes so long
TRIES = 3
WITHIN = 1.5  # seconds: the promise is one, and the process has to go
SLOWNESS = 20.0  # times what an empty process takes
SIGNALS = [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
Ready = Callable[[int], bool]


def maps(library: str) -> Ready:
    """The child has loaded a library."""

    def ready(child: int) -> bool:
        return library in Path(f"/proc/{child}/maps").read_text()

    return ready


def children(pid: int) -> list[int]:
    """The children of a process."""
    return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def left(mark: str) -> list[int]:
    """Processes that have inherited an environment with `mark` in it, whoever their parent is now."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with suppress(OSError):  # a zombie has no environment any more
                if mark.encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
    return found


def pace() -> float:
    """Seconds that starting and ending an empty process takes here and now: some 10 ms on a machine at rest."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True)
    return time.monotonic() - began


def stopped(arguments: list[object], ready: Ready, number: int, folder: Path) -> tuple[int, str]:
    """Start a command, send it a signal once it is at work, and give its exit code and errors.

    It must end within a second and leave no process. Other work on the machine may make that later: it has three tries,
    and the more time the slower the machine is at that moment.
    """
    for attempt in range(TRIES):
        scratch = folder / f"scratch{attempt}"
        scratch.mkdir()
        code, errors, taken = once(arguments, ready, number, scratch)
        allowed = WITHIN + SLOWNESS * pace()
        if taken < allowed:
            return code, errors
    pytest.fail(f"the command took {taken:.1f} s to end; {allowed:.1f} s would be right")


def once(arguments: list[object], ready: Ready, number: int, scratch: Path) -> tuple[int, str, float]:
    """One try: exit code, errors, and the seconds until the command and all its children had ended."""
    command = subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(scratch)},
    )
    deadline = time.monotonic() + PATIENCE
    while (looked := time.monotonic()) < deadline and command.poll() is None:
        with suppress(OSError, IndexError):
            if ready(children(command.pid)[0]):
                break
        time.sleep(max(0.002, 5 * (time.monotonic() - looked)))  # the memory of a large process takes long to read
    assert command.poll() is None, f"ended by itself: {command.communicate()}"
    began = time.monotonic()
    command.send_signal(number)
    command.wait(PATIENCE)
    while left(str(scratch)) and time.monotonic() < began + PATIENCE:
        time.sleep(0.01)
    taken = time.monotonic() - began
    assert command.stderr is not None
    errors = command.stderr.read()
    command.stderr.close()
    assert not list(scratch.iterdir())
    return command.returncode, errors, taken


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A model with 64 MB of weights, which takes a moment to write."""
    weights = [onnx.numpy_helper.from_array(np.full((2048, 2048), 1 + i, np.float32) / 4096, f"w{i}") for i in range(4)]
    nodes = [onnx.helper.make_node("MatMul", ["x" if i == 0 else f"h{i}", f"w{i}"], [f"h{i + 1}"]) for i in range(4)]
    values = [onnx.helper.make_tensor_value_info(name, 1, ["n", 2048]) for name in ("x", "h4")]
    graph = onnx.helper.make_graph(nodes, "g", values[:1], values[1:], weights)
    path = tmp_path / "large.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10), path)
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """An output that exists already."""
    folder = tmp_path / "out"
    folder.mkdir()
    path = folder / "out.onnx"
    path.write_bytes(b"the old file")
    return path


def verdict(out: Path, outcome: tuple[int, str], code: int, word: str) -> None:
    """The promise, held against what is there."""
    assert outcome[0] == code, outcome[1]
    assert outcome[1].splitlines()[-1] == f"error: {word}; nothing was left half-written."
    assert "Traceback" not in outcome[1]
    assert out.read_bytes() == b"the old file"
    assert [p.name for p in out.parent.iterdir()] == [out.name]


@pytest.mark.parametrize(("number", "code", "word"), SIGNALS)
def test_during_calibration(tmp_path: Path, digits_onnx: Path, out: Path, number: int, code: int, word: str) -> None:
    data = tmp_path / "calibration.npz"
    np.savez(data, image=np.random.default_rng(0).random((60_000, 1, 8, 8), dtype=np.float32))
    line = ["quantize", digits_onnx, "-o", out, "--mode", "static", "--data", data]
    verdict(out, stopped(line, maps("onnxruntime_pybind11_state"), number, tmp_path), code, word)


@pytest.mark.parametrize(("number", "code", "word"), SIGNALS)
def test_during_optimization(tmp_path: Path, large: Path, out: Path, number: int, code: int, word: str) -> None:
    outcome = stopped(["optimize", large, "-o", out], maps("onnxruntime_pybind11_state"), number, tmp_path)
    verdict(out, outcome, code, word)


@pytest.mark.parametrize(("number", "code", "word"), SIGNALS)
def test_during_measurements(tmp_path: Path, digits_onnx: Path, out: Path, number: int, code: int, word: str) -> None:
    line = ["bench", digits_onnx, "--budget", "60", "--batch", "1,2,3,4,5,6,7", "--json", out]
    verdict(out, stopped(line, maps("onnxruntime_pybind11_state"), number, tmp_path), code, word)


@pytest.mark.parametrize(("number", "code", "word"), SIGNALS[:1])
def test_with_workers(tmp_path: Path, large: Path, out: Path, number: int, code: int, word: str) -> None:
    for i in range(6):
        os.link(large, tmp_path / f"model{i}.onnx")

    def at_work(child: int) -> bool:  # a worker is a process that is watched by another one
        return any(maps("onnxruntime_pybind11_state")(c) for worker in children(child) for c in children(worker))

    line = ["check", *sorted(tmp_path.glob("model*.onnx")), "--jobs", "2"]
    verdict(out, stopped(line, at_work, number, tmp_path), code, word)


@pytest.mark.parametrize(("number", "code", "word"), SIGNALS)
def test_in_the_middle_of_native_code(tmp_path: Path, out: Path, number: int, code: int, word: str) -> None:
    # One run of this model takes minutes, in which no handler of Python's gets its turn.
    body = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["keep"], ["go"]), onnx.helper.make_node("Sin", ["state"], ["next"])],
        "body",
        [
            onnx.helper.make_tensor_value_info("i", onnx.TensorProto.INT64, []),
            onnx.helper.make_tensor_value_info("keep", onnx.TensorProto.BOOL, []),
            onnx.helper.make_tensor_value_info("state", 1, [64]),
        ],
        [
            onnx.helper.make_tensor_value_info("go", onnx.TensorProto.BOOL, []),
            onnx.helper.make_tensor_value_info("next", 1, [64]),
        ],
    )
    loop = onnx.helper.make_node("Loop", ["turns", "", "x"], ["y"], body=body)
    values = [onnx.helper.make_tensor_value_info(name, 1, [64]) for name in ("x", "y")]
    turns = [onnx.numpy_helper.from_array(np.array(10**10), "turns")]
    graph = onnx.helper.make_graph([loop], "g", values[:1], values[1:], turns)
    path = tmp_path / "endless.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10), path)

    loaded: dict[int, int] = {}  # child -> its ticks when the runtime was there

    def deep_in(child: int) -> bool:
        ticks = int(Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[11])
        if maps("onnxruntime_pybind11_state")(child):
            loaded.setdefault(child, ticks)
        return ticks > loaded.get(child, ticks) + 1.5 * os.sysconf("SC_CLK_TCK")

    line = ["--limit", "seconds=600", "run", path]
    verdict(out, stopped(line, deep_in, number, tmp_path), code, word)


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.parametrize(("number", "code", "word"), SIGNALS)
def test_during_conversion_from_pytorch(
    tmp_path: Path, fixtures: Path, out: Path, number: int, code: int, word: str
) -> None:
    line = ["convert", fixtures / "digits_cnn.pt", "--factory", f"{fixtures / 'digits_cnn.py'}:DigitsCNN", "-o", out]
    line += ["--input-shape", "image:batch,1,8,8"]
    verdict(out, stopped(line, maps("libtorch_cpu"), number, tmp_path), code, word)


@pytest.mark.skipif(find_spec("keras") is None, reason="keras is not installed")
@pytest.mark.parametrize(("number", "code", "word"), SIGNALS[:1])
def test_during_conversion_from_keras(
    tmp_path: Path, fixtures: Path, out: Path, number: int, code: int, word: str
) -> None:
    line = ["convert", fixtures / "digits_keras.keras", "-o", out]
    verdict(out, stopped(line, maps("tensorflow_framework"), number, tmp_path), code, word)


@pytest.mark.parametrize(("number", "code", "word"), SIGNALS)
@pytest.mark.parametrize("external", [False, True])
def test_during_the_writing(
    tmp_path: Path, large: Path, out: Path, number: int, code: int, word: str, external: bool
) -> None:
    from onnxtool.model import io

    if external:
        model = io.load(large)
        io.save(model, out, external=True)
        before = {p.name: p.read_bytes() for p in out.parent.iterdir()}
    else:
        before = {out.name: out.read_bytes()}

    def writing(child: int) -> bool:
        return any(p.name.startswith(".") for p in out.parent.iterdir())

    found = stopped(["optimize", large, "-o", out, "--level", "basic"], writing, number, tmp_path)
    after = {p.name: p.read_bytes() for p in out.parent.iterdir()}
    if found[0] == 0:  # it was quicker: all is there, and nothing else
        io.read_proto(out)
        assert not any(name.startswith(".") for name in after)
    else:
        assert found[0] == code, found[1]
        assert after == before
