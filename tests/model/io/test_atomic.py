"""Faults while saving: kills, full disks, rivals. The old file or the new one, never a part, and nothing left over."""

from __future__ import annotations

import fcntl
import hashlib
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onnxtool.model import io
from onnxtool.model.io import atomic, write
from onnxtool.model.io.atomic import _short, fill, locked, staged, sweep, write_atomic

# Saves two different models over one output again and again, as fast as it can.
SAVER = """
import sys
from pathlib import Path
from onnxtool.model import io
models = [io.load(p) for p in sys.argv[2:4]]
print("ready", flush=True)
for turn in range(int(sys.argv[5])):
    io.save(models[turn % 2], sys.argv[1], external=sys.argv[4] == "external")
"""


def weights_model(path: Path, value: float) -> Path:
    """A model with 4 MB of one value."""
    weight = numpy_helper.from_array(np.full((1000, 1000), value, np.float32), "w")
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [onnx.helper.make_tensor_value_info("x", 1, [1, 1000])],
        [onnx.helper.make_tensor_value_info("y", 1, [1, 1000])],
        [weight],
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10), path)
    return path


def held(path: Path) -> float:
    """The one value that all weights of a whole file have."""
    io.read_proto(path)  # verifies sizes
    values = np.unique(numpy_helper.to_array(onnx.load(path).graph.initializer[0]))
    assert len(values) == 1, "parts of two models"
    return float(values[0])


@pytest.fixture
def models(tmp_path: Path) -> tuple[Path, Path]:
    return weights_model(tmp_path / "one.onnx", 1.0), weights_model(tmp_path / "two.onnx", 2.0)


def saver(output: Path, models: tuple[Path, Path], kind: str, turns: int) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", SAVER, output, *models, kind, str(turns)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    with child.stdout as words:
        assert words.readline() == "ready\n"
    return child


@pytest.mark.parametrize("kind", ["inline", "external"])
def test_a_kill_at_any_moment_leaves_a_whole_file(tmp_path: Path, models: tuple[Path, Path], kind: str) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    output = folder / "m.onnx"
    io.save(io.load(models[0]), output, external=kind == "external")
    generator = random.Random(7)
    for _ in range(6):
        child = saver(output, models, kind, 10_000)
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(generator.uniform(0.0, 0.12))
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert held(output) in (1.0, 2.0)
    io.save(io.load(models[0]), output)  # the next run clears what the killed ones left
    assert [p.name for p in folder.iterdir()] == ["m.onnx"]


@pytest.mark.parametrize("kind", ["inline", "external"])
def test_two_writers_leave_one_whole_winner(tmp_path: Path, models: tuple[Path, Path], kind: str) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    output = folder / "m.onnx"
    children = [saver(output, models, kind, 15) for _ in range(2)]
    assert [child.wait(120) for child in children] == [0, 0]
    assert held(output) in (1.0, 2.0)
    assert len(list(folder.iterdir())) == (2 if kind == "external" else 1)


@pytest.mark.parametrize("kind", ["inline", "external"])
def test_a_file_size_limit_leaves_the_old_file(tmp_path: Path, models: tuple[Path, Path], kind: str) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    output = folder / "m.onnx"
    output.write_bytes(models[0].read_bytes())
    before = hashlib.sha256(output.read_bytes()).digest()
    script = (
        "import resource, signal, sys\n"
        "from onnxtool.errors import ResourceError\n"
        "from onnxtool.model import io\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))\n"
        "try:\n"
        f"    io.save(io.load(sys.argv[1]), sys.argv[2], external={kind == 'external'})\n"
        "except ResourceError as error:\n"
        "    print(error)\n"
        "    sys.exit(6)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, models[1], output], capture_output=True, text=True, check=False
    )
    assert done.returncode == 6, done.stderr
    assert "cannot be written (File too large)" in done.stdout
    assert hashlib.sha256(output.read_bytes()).digest() == before
    assert [p.name for p in folder.iterdir()] == ["m.onnx"]


def test_sweep_spares_what_is_being_written(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    dead = tmp_path / f".m.onnx.{gone.pid}-0123456789ab.tmp"
    inner = tmp_path / f"..m.onnx.{gone.pid}-0123456789ab.tmp.x7_abcde"
    other = tmp_path / f".n.onnx.{gone.pid}-0123456789ab.tmp"
    inner.mkdir()
    for path in (dead, inner / "part", other):
        path.write_bytes(b"half")
    with staged(tmp_path / "m.onnx") as alive:
        alive.write_bytes(b"half")
        sweep(tmp_path / "m.onnx")
        assert alive.exists()
    assert (dead.exists(), inner.exists(), other.exists(), alive.exists()) == (False, False, True, False)


def test_writes_odd_names_as_a_whole(tmp_path: Path) -> None:
    for name in ("with space.onnx", "quo'te\".onnx", "new\nline.onnx", "größe-模型.onnx", "a" * 240 + ".onnx"):
        write_atomic(tmp_path / name, [b"ab", b"c"])
        assert (tmp_path / name).read_bytes() == b"abc"
    assert len(list(tmp_path.iterdir())) == 5


def test_a_lock_on_a_folder_leaves_nothing(tmp_path: Path) -> None:
    with locked(tmp_path), locked(tmp_path / "missing"):
        pass
    assert not list(tmp_path.iterdir())


def test_clears_data_of_killed_runs_but_not_what_a_renamed_model_reads(tmp_path: Path) -> None:
    output = tmp_path / "m.onnx"
    model = io.load(weights_model(tmp_path / "source.onnx", 1.0))
    io.save(model, output, external=True)
    output.rename(tmp_path / "renamed.onnx")  # goes on reading m.onnx.data
    (tmp_path / "m.onnx.0123abcd.data").write_bytes(b"of a killed run")
    io.save(io.load(tmp_path / "source.onnx"), output, external=True)
    assert held(tmp_path / "renamed.onnx") == held(output) == 1.0
    assert not (tmp_path / "m.onnx.0123abcd.data").exists()
    assert len(list(tmp_path.glob("m.onnx*.data"))) == 2


def test_keeps_the_data_of_a_backup_whatever_its_suffix(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    output = tmp_path / "out" / "m.onnx"
    io.save(io.load(weights_model(tmp_path / "s.onnx", 1.0)), output, external=True)
    backup = output.rename(output.with_name("m.onnx.old"))  # goes on reading m.onnx.data
    io.save(io.load(weights_model(tmp_path / "s.onnx", 2.0)), output, external=True)
    io.save(io.load(weights_model(tmp_path / "s.onnx", 3.0)), output)
    assert sorted(p.name for p in output.parent.iterdir()) == ["m.onnx", "m.onnx.data", "m.onnx.old"]
    assert held(backup) == 1.0


def test_keeps_data_where_too_much_would_have_to_be_read_to_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    output = tmp_path / "out" / "m.onnx"
    io.save(io.load(weights_model(tmp_path / "s.onnx", 1.0)), output, external=True)
    monkeypatch.setattr("onnxtool.model.io.write._LOOKED_THROUGH", 10)
    io.save(io.load(weights_model(tmp_path / "s.onnx", 2.0)), output)
    assert output.with_name("m.onnx.data").exists()
    monkeypatch.undo()
    io.save(io.load(weights_model(tmp_path / "s.onnx", 3.0)), output)
    assert not output.with_name("m.onnx.data").exists()


@pytest.mark.parametrize("name", ["a" * 250, "模" * 80], ids=["latin", "chinese"])
def test_names_as_long_as_the_file_system_allows(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    left = path.with_name(f".{_short(name)}.{2**22 + 1}-0123456789ab.tmp")  # of a process that has ended
    left.write_bytes(b"part")
    write_atomic(path, b"whole")
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_a_link_that_leads_back_to_itself_is_an_error_of_the_file_system(tmp_path: Path) -> None:
    loop = tmp_path / "loop.onnx"
    loop.symlink_to(loop)
    with pytest.raises(OSError, match="symbolic links"):
        write_atomic(loop, b"x")
    assert loop.is_symlink() and [p.name for p in tmp_path.iterdir()] == ["loop.onnx"]


def test_nothing_that_is_there_is_written_over_in_place(tmp_path: Path) -> None:
    """A link that somebody put there in the meantime would lead elsewhere."""
    (tmp_path / "there").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        fill(tmp_path / "there", b"new")
    assert (tmp_path / "there").read_bytes() == b"old"


@pytest.mark.parametrize("shared", [False, True])
def test_a_folder_is_locked_for_others_or_shared_with_them(tmp_path: Path, shared: bool) -> None:
    with locked(tmp_path, shared=shared):
        descriptor = os.open(tmp_path, os.O_RDONLY)
        try:
            with pytest.raises(BlockingIOError):
                fcntl.flock(descriptor, (fcntl.LOCK_EX if shared else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        finally:
            os.close(descriptor)


def test_a_rename_is_brought_to_the_disk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(atomic, "sync", synced.append)
    write_atomic(tmp_path / "a", b"1")
    assert synced == [tmp_path]


def test_data_files_go_where_the_model_cannot_be_put_in_place(
    tmp_path: Path, models: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(5, "no")

    monkeypatch.setattr(write, "replace", fails)
    before = {*tmp_path.iterdir()}
    with pytest.raises(Exception, match="no"):
        io.save_chunked(io.load(models[0]), tmp_path / "out.onnx", 1 << 16)
    assert {*tmp_path.iterdir()} == before


def test_a_copy_of_a_file_over_itself_leaves_it_alone(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"1")
    before = path.stat()
    io.copy_model(path, path)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
