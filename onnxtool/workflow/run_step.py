"""One step where it runs: in the process, in a worker process, on another machine. Its result goes into a cache."""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, chdir, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from onnxtool.errors import InputError, OnnxToolError, ResourceError, writing
from onnxtool.model.io.atomic import locked
from onnxtool.report.base import Report
from onnxtool.report.build import CandidatePoint
from onnxtool.workflow.constraints import Constraints, excess, pareto_front
from onnxtool.workflow.digests import path_digest, text_digest
from onnxtool.workflow.steps import STEPS, Plain, Step, expected_drop, number
from onnxtool.workflow.steps import Files as StepFiles
from onnxtool.workflow.store import Entry, Store, StoredFile
from onnxtool.workflow.user_files import recorded, users_files

MODEL = "model.onnx"  # what the model of an entry is called
Files = Mapping[str, StoredFile]


@dataclass(frozen=True)
class StepTask:
    """All that a step needs, wherever it runs.

    Attributes:
        key: digest of everything that is known before it runs.
        uses: what the key is made of, by name.
        command, options, limits: what to do; files in the options are relative to `root`.
        source: the user's file, likewise; None where `model` or a factory is the source.
        model: files of the step before; None for the first step.
        reference: files of the model that the build began with, for compare and bench.
        inputs: user's files with the digests that the key was made with.
        root: folder that the user's names are relative to.
        store: folder of the cache.
        watched: it runs the user's code or a framework, so that what it reads is watched.
        measured: it needs the machine for itself.
        tags: what a worker has to declare to run it.
    """

    key: str
    uses: Mapping[str, str]
    command: str
    options: Mapping[str, Any]
    limits: Constraints
    source: str | None
    model: Files | None
    reference: Files | None
    reference_path: str | None
    inputs: tuple[tuple[str, str], ...]
    root: str
    store: str
    watched: bool
    measured: bool
    tags: tuple[str, ...] = ()

    @property
    def step(self) -> Step:
        """What is done."""
        return STEPS[self.command](self.options)


@dataclass(frozen=True)
class StepResult:
    """What came of a step: an entry that is in the cache now, or one line and the exit code of the command."""

    entry: Entry | None
    error: str = ""
    exit_code: int = 0
    report: Mapping[str, Any] = field(default_factory=dict)


def run_step(task: StepTask) -> StepResult:
    """Run a step and keep its result in the cache; whatever goes wrong is in the result and ends no other step."""
    store = Store(Path(task.store))
    try:
        with store.lease(task.key):  # of all builds that want it one makes it
            if (entry := find_entry(task, store.find, store)) is not None:
                return StepResult(entry, report=entry.report)
            with _exclusive(task.measured):
                return _run(task, store)
    except OnnxToolError as error:
        return StepResult(None, " ".join(str(error).split()), error.exit_code)
    except MemoryError:
        return StepResult(None, "out of memory.", ResourceError.exit_code)
    except OSError as error:
        return StepResult(None, f"{error.filename or task.command}: {error.strerror or error}.", InputError.exit_code)
    except Exception as error:
        reason = " ".join(str(error).split())
        return StepResult(None, f"this is a bug in onnxtool: {type(error).__name__}: {reason}", 70)


def find_entry(task: StepTask, find: Callable[[str], Entry | None], store: Store) -> Entry | None:
    """What a step gave before, from the same ingredients.

    Args:
        task: the step.
        find: gives the entry of a key.
        store: knows what the code of a step was seen to read.
    """
    if not task.watched:
        return find(task.key)
    root = Path(task.root)
    keys = (key_with_reads(task.key, root, names) for names in store.reads(task.key))
    return next((entry for key in keys if (entry := find(key)) is not None), None)


def _run(task: StepTask, store: Store) -> StepResult:
    with _scratch(store.folder) as work:
        source = task.source if task.model is None else str(_laid_out(store, task.model, work / "source.onnx"))
        reference = task.reference_path
        if task.reference is not None:
            reference = str(_laid_out(store, task.reference, work / "reference.onnx"))
        stem = task.key[:12]  # external data is called after it: no two results share a name
        output = work / f"{stem}.onnx"
        began = time.perf_counter()
        with chdir(task.root), recorded() if task.watched else nullcontext() as recorder:
            report = run_in_place(task, source, reference, output)
        seconds = time.perf_counter() - began
        plain = _named_plainly(report, work, Path(task.root), output)
        if not report.ok and not (task.step.searches and float_suffices(plain, task.limits)):
            return StepResult(None, task.step.summary(plain), 1, plain)
        for name, digest in task.inputs:
            if path_digest(Path(name)) != digest:
                raise InputError(f"{Path(name).name}: changed while it was read; build once more.")
        key = task.key
        if recorder is not None:
            besides = [work, store.folder, *(Path(name) for name, _ in task.inputs)]
            names = [relative(p, Path(task.root)) for p in users_files(recorder, besides)]
            key = key_with_reads(task.key, Path(task.root), names)
            store.add_reads(task.key, names)
        if task.step.folder:
            place = output.with_suffix("")
            made = sorted(f for f in place.rglob("*") if f.is_file())
            files = {f.relative_to(place).as_posix(): store.add_file(f, move=True) for f in made}
        else:
            made = sorted(f for f in work.iterdir() if f.name.startswith(stem) and f.is_file())
            files = {MODEL if f == output else f.name: store.add_file(f, move=True) for f in made}
        entry = Entry(key, task.command, files, plain, seconds, task.uses)
        store.put(entry)
        return StepResult(entry, report=plain)


def run_in_place(task: StepTask, source: str | None, reference: str | None, output: Path) -> Report:
    """The command itself. Apart, so that a measurement of the driver alone can replace it."""
    return task.step.run(StepFiles(source, output, reference), task.limits)


def key_with_reads(key: str, root: Path, names: Sequence[str]) -> str:
    """The key of an entry: that of the step, and the contents of what its code was seen to read."""
    contents = []
    for name in names:
        path = root / name
        digest = path_digest(path) if path.exists() else "not there"
        contents.append(("" if os.path.isabs(name) else name, digest))
    return text_digest([key, contents])


def relative(path: Path, root: Path) -> str:
    """A path as it is called from `root`; absolute when it does not lie below it."""
    return path.relative_to(root.resolve()).as_posix() if path.is_relative_to(root.resolve()) else str(path)


def _laid_out(store: Store, files: Files, model: Path) -> Path:
    """The files of an entry, each held against its digest; external data beside the model keeps its name."""
    for name, file in files.items():
        if not store.take_out(file, model if name == MODEL else model.parent / name):
            raise ResourceError(f"{store.folder}: a result in the cache is damaged; the next build makes it again.")
    return model


def _named_plainly(report: Report, work: Path, root: Path, output: Path) -> dict[str, Any]:
    """The report as JSON, without the folders of this machine."""
    names = ((str(output), MODEL), (f"{work}/", ""), (f"{work.parents[1]}/", ""), (f"{root}/", ""))
    found: dict[str, Any] = renamed(report.to_dict(), names)
    return found


def renamed(value: Any, places: Sequence[tuple[str, str]]) -> Any:
    """A JSON value whose texts, names of entries too, have the second of each pair where they had the first."""
    if isinstance(value, str):
        for old, new in places:
            value = value.replace(old, new)
        return value
    if isinstance(value, Mapping):
        return {renamed(k, places): renamed(v, places) for k, v in value.items()}
    return [renamed(v, places) for v in value] if isinstance(value, (list, tuple)) else value


_scratches: dict[Path, Path] = {}


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """A folder in the cache, on its file system, so that copies may share blocks; one for each process and cache,
    because making and removing folders takes longer than all else that a small step does.
    """
    work = _scratches.get(folder)
    if work is None or not work.is_dir():
        if not _scratches:
            atexit.register(_remove_scratches)
        work = _scratches[folder] = folder / "work" / f"{os.getpid()}-{secrets.token_hex(6)}"
        with writing(folder):
            work.mkdir(parents=True)
    try:
        yield work
    finally:
        for entry in list(os.scandir(work)):
            with suppress(OSError):
                shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)


def _remove_scratches() -> None:
    for work in _scratches.values():
        shutil.rmtree(work, ignore_errors=True)


def _exclusive(measured: bool) -> AbstractContextManager[None]:
    """A measured step has the machine for itself: no other step of any build of this user runs beside it."""
    name = f"onnxtool-{os.getuid() if hasattr(os, 'getuid') else 0}.lock"
    return locked(Path(tempfile.gettempdir()) / name, os.O_RDWR | os.O_CREAT, shared=not measured)


def candidates(report: Plain, limits: Constraints) -> tuple[CandidatePoint, ...]:
    """What a search tried, the Pareto front marked, the nearest to the limits first."""
    before = next((c["latency"]["before"] for c in report.get("frontier", ()) if c.get("latency")), None)
    points = [CandidatePoint("float", int(report["bytes_before"]), number(before), 1.0, 0.0, within_budget=True)]
    for tried in report.get("frontier", ()):
        latency = tried.get("latency") or {}
        points.append(
            CandidatePoint(
                name=str(tried["name"]),
                bytes=int(tried["bytes"]),
                seconds=number(latency.get("after")),
                ratio=number(latency.get("value")),
                drop=expected_drop(tried),
                within_budget=bool(tried["within_budget"]),
            )
        )
    points = [p for p in points if p.bytes > 0]
    front = set(pareto_front(points))
    marked = [replace(p, pareto=i in front, excess=excess(limits, p)) for i, p in enumerate(points)]
    return tuple(sorted(marked, key=lambda p: p.excess))


def float_suffices(report: Plain, limits: Constraints) -> bool:
    """True when a search wrote nothing, and the float model is within all limits that there are."""
    if not limits.any_limit or not report.get("frontier"):
        return False
    return any(p.name == "float" and p.excess == 0 for p in candidates(report, limits))
