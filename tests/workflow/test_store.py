"""The cache: what is damaged counts as not there, nothing is a link, what is pruned is not needed."""

from __future__ import annotations

import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxtool.errors import UsageError
from onnxtool.workflow import run_step
from onnxtool.workflow.cache import cache
from onnxtool.workflow.chain import BuildChain, Lookup
from onnxtool.workflow.file import read_file
from onnxtool.workflow.instances import expand
from onnxtool.workflow.lock import Lock
from onnxtool.workflow.store import Entry, Store, StoredFile


def stored(folder: Path, content: bytes = b"weights", key: str = "k" * 64) -> tuple[Store, Entry]:
    store = Store(folder / "cache")
    source = folder / "made.onnx"
    source.write_bytes(content)
    entry = Entry(key, "edit", {"model.onnx": store.add_file(source)}, {"steps": []}, 1.5, {"source": "abc"})
    store.put(entry)
    return store, entry


def test_gives_back_what_was_put_there_as_a_copy(tmp_path: Path) -> None:
    store, entry = stored(tmp_path)
    assert store.find(entry.key) == entry
    out = tmp_path / "out.onnx"
    assert store.take_out(entry.files["model.onnx"], out)
    assert out.read_bytes() == b"weights"
    assert out.stat().st_nlink == 1
    out.write_bytes(b"changed")  # a copy: the cache keeps what it has
    assert store.blob(entry.files["model.onnx"].sha256).read_bytes() == b"weights"


@settings(max_examples=40, deadline=None)
@given(at=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_one_bit_of_an_entry_makes_it_not_there(tmp_path_factory: pytest.TempPathFactory, at: int, bit: int) -> None:
    store, entry = stored(tmp_path_factory.mktemp("store"))
    path = next(store.entries())
    content = bytearray(path.read_bytes())
    content[at % len(content)] ^= 1 << bit
    path.write_bytes(bytes(content))
    assert store.find(entry.key) is None


def test_an_entry_under_another_key_is_not_taken(tmp_path: Path) -> None:
    store, entry = stored(tmp_path)
    other = store.folder / "entries" / "zz" / ("z" * 64 + ".json")
    other.parent.mkdir()
    other.write_bytes(next(store.entries()).read_bytes())
    assert store.find("z" * 64) is None
    assert store.find(entry.key) is not None


def test_a_damaged_file_is_not_taken_out_and_goes(tmp_path: Path) -> None:
    store, entry = stored(tmp_path)
    file = entry.files["model.onnx"]
    store.blob(file.sha256).write_bytes(b"weighty")
    assert not store.take_out(file, tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()
    assert store.find(entry.key) is None


def test_a_file_that_was_cut_off_makes_its_entry_not_there(tmp_path: Path) -> None:
    store, entry = stored(tmp_path)
    store.blob(entry.files["model.onnx"].sha256).write_bytes(b"wei")
    assert store.find(entry.key) is None
    assert store.add_file(tmp_path / "made.onnx") == StoredFile(entry.files["model.onnx"].sha256, 7)
    assert store.find(entry.key) == entry


def test_verify_removes_what_is_damaged(tmp_path: Path) -> None:
    store, entry = stored(tmp_path)
    stored(tmp_path, b"others", "m" * 64)
    assert cache("verify", folder=store.folder).ok
    store.blob(entry.files["model.onnx"].sha256).write_bytes(b"weighty")
    report = cache("verify", folder=store.folder)
    assert (report.ok, report.entries, report.files, report.removed_entries) == (False, 1, 1, 1)
    assert cache("verify", folder=store.folder).ok


def test_prune_removes_the_oldest_and_keeps_what_is_still_used(tmp_path: Path) -> None:
    store, entry = stored(tmp_path)
    stored(tmp_path, b"others", "m" * 64)
    stored(tmp_path, b"weights", "n" * 64)  # the same content under another key
    import os

    os.utime(store.folder / "entries" / "kk" / f"{entry.key}.json", (1, 1))
    report = cache("prune", folder=store.folder, older_than="30d")
    assert (report.entries, report.files, report.removed_entries) == (2, 2, 1)
    assert cache("prune", folder=store.folder, max_size=6).files == 0 or store.find("n" * 64) is not None
    assert cache("prune", folder=store.folder).entries == 0
    with pytest.raises(UsageError, match="--older-than"):
        cache("prune", folder=store.folder, older_than="soon")


def test_one_of_two_builds_makes_a_step_and_the_other_takes_it(project: Path, tmp_path: Path) -> None:
    """Both begin before the step is there; a lease lets one of them run it."""
    text = "[models.a]\nsource = 'a.onnx'\nsteps = ['optimize']\n"
    (project / "onnxtool.toml").write_text(text)
    ran, both = list[str](), threading.Barrier(2)
    run, lease = run_step.run_in_place, Store.lease

    def counted(task: run_step.StepTask, *rest: Any) -> Any:
        ran.append(task.command)
        return run(task, *rest)

    def together(store: Store, key: str) -> Any:
        both.wait(60)
        return lease(store, key)

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(2) as threads:
        patch.setattr(run_step, "run_in_place", counted)
        patch.setattr(Store, "lease", together)
        patch.setattr(run_step, "chdir", lambda _: nullcontext())
        tasks = [build_task(project, tmp_path / "cache") for _ in range(2)]
        results = list(threads.map(run_step.run_step, tasks))
    assert ran == ["optimize"]
    assert results[0].entry == results[1].entry is not None
    assert not list((tmp_path / "cache" / "work").glob("*.lease"))


def build_task(project: Path, cache: Path) -> run_step.StepTask:
    """The stale step of a build."""
    described = read_file(project / "onnxtool.toml")
    (instance,) = expand(described).values()
    lookup = Lookup(project, Store(cache), Lock.read(project / "onnxtool.lock"), False, False, {})
    task = BuildChain(instance, lookup).advance()
    assert task is not None
    return dataclasses.replace(task, source=str(project / "a.onnx"))
