"""Steps on other machines: what travels to a worker and back, and which workers may run a step.

The engine that brings it there is in an executor of its own (executors.py).
"""

from __future__ import annotations

import os
import platform
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock as ThreadLock
from typing import Any

from onnxtool.errors import OnnxToolError, ResourceError, UnsupportedError, one_line
from onnxtool.model.io import sha256
from onnxtool.workflow import digests
from onnxtool.workflow.digests import MEASURE
from onnxtool.workflow.run_step import StepResult, StepTask, renamed, run_step
from onnxtool.workflow.store import Entry, Store, StoredFile

RETRIES = 3  # of a step whose worker was lost


@dataclass(frozen=True)
class ClusterWorker:
    """One worker of a cluster.

    Attributes:
        address: how the engine calls it.
        tags: the resources that it declares (`measure`, `gpu`, `arm64`, ...).
        versions: of everything that a key is made of.
        processor: what times that it measures hold for.
    """

    address: str
    tags: frozenset[str]
    versions: Mapping[str, str]
    processor: str


class Workers:
    """The workers of a cluster: their versions are the driver's, and a step goes to those that have its tags."""

    def __init__(self, cluster: str, found: Iterable[ClusterWorker]) -> None:
        """Hold the workers' versions against the driver's.

        Raises:
            ResourceError: there is no worker.
            UnsupportedError: a worker has other versions.
        """
        self._cluster, self._all = cluster, tuple(found)
        if not self._all:
            raise ResourceError(f"{cluster}: the cluster has no worker.")
        own = worker_versions()
        for worker in self._all:
            differing = [
                f"{name} {worker.versions.get(name, 'none')}, not {own[name]}"
                for name in own
                if worker.versions.get(name) != own[name]
            ]
            if differing:
                raise UnsupportedError(f"{cluster}: the worker {worker.address} has {'; '.join(differing[:3])}.")
        self._measure = any(MEASURE in w.tags for w in self._all)

    def needed(self, tags: Sequence[str]) -> dict[str, float]:
        """The resources that a step asks the engine for: one of each tag.

        Raises:
            UnsupportedError: no worker has all of these tags, so that the step would wait for ever.
        """
        self._with(tags)
        return dict.fromkeys(self._counted(tags), 1.0)

    def processor(self, tags: Sequence[str]) -> str:
        """The processor that a measured step with these tags runs on.

        Raises:
            UnsupportedError: no worker has all of these tags, or those that have them are of several kinds.
        """
        kinds = sorted({w.processor for w in self._with(tags)})
        if len(kinds) > 1:
            named = " / ".join(k.partition(";")[0] for k in kinds)
            raise UnsupportedError(
                f"{self._cluster}: a latency would depend on which worker is free, for their processors differ "
                f"({named}). Give each kind a tag of its own, and the model runs-on = that tag."
            )
        return kinds[0]

    def _counted(self, tags: Sequence[str]) -> list[str]:
        return [t for t in tags if t != MEASURE or self._measure]

    def _with(self, tags: Sequence[str]) -> list[ClusterWorker]:
        wanted = self._counted(tags)
        found = [w for w in self._all if w.tags.issuperset(wanted)]
        if not found:
            known = ", ".join(sorted(set().union(*(w.tags for w in self._all)))) or "no tag"
            raise UnsupportedError(
                f"{self._cluster}: no worker declares {' and '.join(wanted)}; the workers declare {known}."
            )
        return found


def describe_worker() -> tuple[dict[str, str], str]:
    """On a worker: its versions and its processor."""
    return worker_versions(), digests.processor()


@dataclass(frozen=True)
class ShippedPackage:
    """A step with all files that it reads, so that a worker needs no file system of the driver's.

    Attributes:
        task: the step; its `root` and `store` are the worker's own, and files in it are called from `root`.
        contents: digest -> bytes of the results of steps before, and of the user's files.
        files: name -> digest of its content, below the folder that holds the root and whatever lies beside it.
        inputs: the names in `files` (or folders of them) that the step's own inputs have, in their order.
        root: the root's name below that folder.
    """

    task: StepTask
    contents: Mapping[str, bytes]
    files: Mapping[str, str]
    inputs: tuple[str, ...]
    root: str


@dataclass(frozen=True)
class Delivery:
    """What a worker sends back: the result, and the contents that its entry names."""

    result: StepResult
    contents: Mapping[str, bytes]
    reads: tuple[str, ...] = ()


def worker_versions() -> dict[str, str]:
    """What has to be equal on the driver and on a worker, so that a key means the same on both."""
    return {
        "onnxtool": digests.tool_digest()[:16],
        "platform": digests.platform_name(),
        **digests.versions(everything=True),
        "python": platform.python_version(),
    }


def pack(task: StepTask) -> ShippedPackage:
    """A step with the contents of everything that it reads."""
    store, root = Store(Path(task.store)), Path(os.path.abspath(task.root))
    contents: dict[str, bytes] = {}
    for files in (task.model, task.reference):
        for file in (files or {}).values():
            contents[file.sha256] = store.blob(file.sha256).read_bytes()
    given = [Path(os.path.abspath(name)) for name, _ in task.inputs]
    base = Path(os.path.commonpath([root, *given]))
    named: dict[str, str] = {}
    for path in given:
        below = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        for part in [*below, *digests.external_data(path)] if path.is_file() else below:
            digest = sha256(part)
            contents[digest] = part.read_bytes()
            named[part.relative_to(base).as_posix()] = digest
    # What the user called by its whole path is called from the root, which has another place on the worker.
    places = sorted({str(p): os.path.relpath(p, root) for p in given}.items(), key=lambda item: -len(item[0]))
    moved = replace(
        task,
        source=renamed(task.source, places),
        reference_path=renamed(task.reference_path, places),
        options=renamed(task.options, places),
    )
    inputs = tuple(p.relative_to(base).as_posix() for p in given)
    return ShippedPackage(moved, contents, named, inputs, root.relative_to(base).as_posix())


_one_at_a_time = ThreadLock()


def run_package(package: ShippedPackage) -> Delivery:
    """On the worker: lay the files out, run the step, and send back what it gave."""
    # A step changes the working folder of the process, so that threads of one worker take turns.
    with _one_at_a_time, tempfile.TemporaryDirectory(prefix="onnxtool-worker-") as folder:
        base, store = Path(folder) / "files", Store(Path(folder) / "store")
        root = base / package.root
        root.mkdir(parents=True)
        arrived = Path(folder) / "arrived"
        arrived.mkdir()
        for digest, content in package.contents.items():
            (arrived / digest).write_bytes(content)
            store.add_file(arrived / digest)
        for name, digest in package.files.items():
            target = base / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(package.contents[digest])
        digests_of = (digest for _, digest in package.task.inputs)
        inputs = tuple((str(base / n), d) for n, d in zip(package.inputs, digests_of, strict=True))
        task = replace(package.task, root=str(root), store=str(store.folder), inputs=inputs)
        result = run_step(task)
        files = result.entry.files.values() if result.entry is not None else ()
        contents = {f.sha256: store.blob(f.sha256).read_bytes() for f in files}
        reads = tuple(store.reads(task.key)[0]) if store.reads(task.key) else ()
        return Delivery(result, contents, reads)


def accept(task: StepTask, delivery: Delivery) -> StepResult:
    """On the driver: put what a worker sent into the cache, if it is what its digests say."""
    entry = delivery.result.entry
    if entry is None:
        return delivery.result
    store = Store(Path(task.store))
    with tempfile.TemporaryDirectory(prefix="onnxtool-") as folder:
        for file in entry.files.values():
            path = Path(folder) / file.sha256
            path.write_bytes(delivery.contents.get(file.sha256, b""))
            if store.add_file(path) != StoredFile(file.sha256, file.bytes):
                return StepResult(None, "what a worker sent is not what its digest says.", ResourceError.exit_code)
    if task.watched:
        store.add_reads(task.key, list(delivery.reads))
    kept = Entry(entry.key, entry.command, entry.files, entry.report, entry.seconds, entry.uses)
    store.put(kept)
    return replace(delivery.result, entry=kept)


class ClusterExecutor(ABC):
    """Runs steps on the workers of a cluster that is there already; an engine brings them there and back.

    Attributes:
        name: the cluster's address, as on the command line.
        jobs: how many steps may be under way.
    """

    name: str
    jobs: int
    _workers: Workers

    def processor(self, tags: Sequence[str]) -> str:
        """The processor that a measured step with these tags runs on.

        Raises:
            UnsupportedError: no worker has these tags, or those that have them are of several kinds.
        """
        return self._workers.processor(tags)

    def submit(self, task: StepTask) -> Future[StepResult]:
        """Send a step with its files; the result is held against its digests when it arrives."""
        done: Future[StepResult] = Future()
        try:
            package, needed = pack(task), self._workers.needed(task.tags)
        except OSError as error:
            done.set_result(StepResult(None, f"{error.filename}: {error.strerror}.", 3))
            return done
        except OnnxToolError as error:
            done.set_result(StepResult(None, str(error), error.exit_code))
            return done
        self._send(package, needed).add_done_callback(lambda future: done.set_result(self._received(task, future)))
        return done

    def _received(self, task: StepTask, future: Any) -> StepResult:
        try:
            delivery: Delivery = future.result()
        except Exception as error:  # the engine's own, and whatever it raises again from the worker
            reason = one_line(error)
            return StepResult(None, f"lost on the cluster: {type(error).__name__}: {reason}", ResourceError.exit_code)
        finally:
            self._release(future)
        return accept(task, delivery)

    @abstractmethod
    def _send(self, package: ShippedPackage, needed: dict[str, float]) -> Any:
        """Hand `run_package(package)` to the engine, to a worker with these resources.

        Returns:
            The engine's future of a Delivery, with `result` and `add_done_callback`.
        """

    @abstractmethod
    def _release(self, future: Any) -> None:
        """Let the engine forget a result that has been read."""

    @abstractmethod
    def close(self) -> None:
        """Leave the cluster; it stays."""
