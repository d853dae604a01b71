"""Steps on a Dask cluster, by dask.distributed's own client."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock as ThreadLock
from typing import Any

from onnxtool.errors import MissingExtraError, ResourceError, UnsupportedError
from onnxtool.workflow import digests
from onnxtool.workflow.run_step import StepResult, StepTask, relative, run_step
from onnxtool.workflow.store import Entry, Store, StoredFile

_RETRIES = 3  # of a step whose worker was lost
_CONNECT = 20.0  # seconds


@dataclass(frozen=True)
class Package:
    """A step with all files that it reads, so that a worker needs no file system of the driver's.

    Attributes:
        task: the step; its `root` and `store` are the worker's own.
        contents: digest -> bytes of the results of steps before, and of the user's files.
        files: name below the root -> digest of its content.
    """

    task: StepTask
    contents: Mapping[str, bytes]
    files: Mapping[str, str]


@dataclass(frozen=True)
class Delivery:
    """What a worker sends back: the result, and the contents that its entry names."""

    result: StepResult
    contents: Mapping[str, bytes]
    reads: tuple[str, ...] = ()


class DaskExecutor:
    """Runs steps on the workers of a cluster that is there already."""

    def __init__(self, address: str) -> None:
        """Connect, and hold the workers' versions against the driver's.

        Raises:
            MissingExtraError: dask.distributed is not installed.
            ResourceError: nobody answers, or there is no worker.
            UnsupportedError: a worker has other versions.
        """
        try:
            from distributed import Client
        except ImportError as error:
            raise MissingExtraError(f"--executor dask://{address}", "dask.distributed", "dask") from error
        self.name = f"dask://{address}"
        try:
            self._client = Client(f"tcp://{address}", timeout=_CONNECT, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise ResourceError(f"{self.name}: no scheduler answers there ({type(error).__name__}).") from error
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        if not workers:
            self._client.close()
            raise ResourceError(f"{self.name}: the cluster has no worker.")
        self.jobs = 2 * sum(w["nthreads"] for w in workers.values())  # one at work, one on its way
        self._measure = any("measure" in w.get("resources", {}) for w in workers.values())
        self._check_versions()

    def _check_versions(self) -> None:
        own = worker_versions()
        for address, found in self._client.run(worker_versions).items():
            differing = [
                f"{name} {found.get(name, 'none')}, not {own[name]}" for name in own if found.get(name) != own[name]
            ]
            if differing:
                self._client.close()
                raise UnsupportedError(f"{self.name}: the worker {address} has {'; '.join(differing[:3])}.")

    def submit(self, task: StepTask) -> Future[StepResult]:
        """Send a step with its files; the result is held against its digests when it arrives."""
        done: Future[StepResult] = Future()
        try:
            package = pack(task)
        except OSError as error:
            done.set_result(StepResult(None, f"{error.filename}: {error.strerror}.", 3))
            return done
        resources = {"measure": 1} if task.measured and self._measure else None
        sent = self._client.submit(
            run_package, package, key=f"onnxtool-{task.command}-{task.key}", retries=_RETRIES, resources=resources
        )
        sent.add_done_callback(lambda future: done.set_result(self._received(task, future)))
        return done

    def _received(self, task: StepTask, future: Any) -> StepResult:
        try:
            delivery: Delivery = future.result()
        except Exception as error:
            return StepResult(None, f"lost on the cluster: {type(error).__name__}: {error}", ResourceError.exit_code)
        finally:
            future.release()
        return accept(task, delivery)

    def close(self) -> None:
        """Leave the cluster; it stays."""
        self._client.close()


def worker_versions() -> dict[str, str]:
    """What has to be equal on the driver and on a worker, so that a key means the same on both."""
    return {
        "onnxtool": digests.tool_digest()[:16],
        "platform": digests.platform_name(),
        **digests.versions(everything=True),
        "python": platform.python_version(),
    }


def pack(task: StepTask) -> Package:
    """A step with the contents of everything that it reads."""
    store, root = Store(Path(task.store)), Path(task.root)
    contents: dict[str, bytes] = {}
    for files in (task.model, task.reference):
        for file in (files or {}).values():
            contents[file.sha256] = store.blob(file.sha256).read_bytes()
    named: dict[str, str] = {}
    for name, _ in task.inputs:
        path = Path(name)
        below = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        for part in [*below, *digests.external_data(path)] if path.is_file() else below:
            digest = digests.file_digest(part)
            contents[digest] = part.read_bytes()
            named[relative(part.resolve(), root)] = digest
    return Package(task, contents, named)


_one_at_a_time = ThreadLock()


def run_package(package: Package) -> Delivery:
    """On the worker: lay the files out, run the step, and send back what it gave."""
    # A step changes the working folder of the process, so that threads of one worker take turns.
    with _one_at_a_time, tempfile.TemporaryDirectory(prefix="onnxtool-worker-") as folder:
        root, store = Path(folder) / "root", Store(Path(folder) / "store")
        root.mkdir()
        arrived = Path(folder) / "arrived"
        arrived.mkdir()
        for digest, content in package.contents.items():
            (arrived / digest).write_bytes(content)
            store.add_file(arrived / digest)
        for name, digest in package.files.items():
            target = root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(package.contents[digest])
        before = Path(package.task.root)
        inputs = tuple((str(root / relative(Path(n), before)), d) for n, d in package.task.inputs)
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
