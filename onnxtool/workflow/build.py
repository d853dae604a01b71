"""`build`: every model of a file, only what is stale."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from onnxtool import progress
from onnxtool.errors import InputError, UsageError
from onnxtool.model.io.atomic import write_atomic
from onnxtool.report.build import BuildHistoryReport, BuildReport, PastBuild
from onnxtool.workflow.chain import BuildChain, Lookup
from onnxtool.workflow.digests import processor, text_digest
from onnxtool.workflow.executors import LazyExecutor
from onnxtool.workflow.file import FILE_NAME as BUILD_FILE
from onnxtool.workflow.file import WorkflowFile, read_file
from onnxtool.workflow.instances import Instance, choose, expand
from onnxtool.workflow.lock import Lock
from onnxtool.workflow.remote import RemoteCache, is_remote
from onnxtool.workflow.run_step import StepResult
from onnxtool.workflow.store import Store, default_folder


def build(
    file: str | os.PathLike[str] = BUILD_FILE,
    targets: Sequence[str] = (),
    *,
    dry_run: bool = False,
    frozen: bool = False,
    jobs: int | None = None,
    executor: str | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> BuildReport:
    """Build the models of a file: run the steps whose ingredients changed, take all others from the cache.

    Args:
        file: the build file (docs/build.md).
        targets: names of models, patterns, or "tag:WORD"; all unless given. What they need is built too.
        dry_run: run nothing; the report says what is stale, and its verdict is bad when anything is.
        frozen: fail where anything would differ from onnxtool.lock, and leave that file alone.
        jobs: how many steps run at a time; 1 unless the file says so.
        executor: "local" (in this process), "processes", "dask://HOST:PORT" or "ray://HOST:PORT"; as the file says,
            else processes.
        cache: folder or URL of the cache, in place of the file's.

    Returns:
        A report; `ok` is False when a model failed or misses its limits. One failing model does not stop the others.

    Raises:
        InputError: the file or a source is missing or cannot be read.
        UsageError: the file holds something unknown or contradictory, or a target is nothing.
    """
    began = time.perf_counter()
    described = read_file(file)
    instances = expand(described)
    chosen = choose(instances, targets)
    _check_sources(described, chosen)
    store = Store(_cache_folder(described, cache))
    shared = str(described.settings.get("cache", "")) if cache is None else str(cache)
    lock = Lock.read(described.root / described.settings.get("lock", described.path.with_suffix(".lock").name))
    jobs = jobs or int(described.settings.get("jobs", 1))
    if jobs < 1:
        raise UsageError(f"--jobs {jobs}: must be 1 or more.")
    name = executor or described.settings.get("executor", "processes")
    chains: dict[str, BuildChain] = {}
    lazy = LazyExecutor(name, jobs)
    shared_cache = RemoteCache(shared) if is_remote(shared) else None
    lookup = Lookup(described.root, store, lock, frozen, dry_run, chains, lazy.processor, shared_cache)
    for instance in chosen:
        chains[instance.name] = BuildChain(instance, lookup)
    try:
        if dry_run:
            for chain in chains.values():
                chain.advance()
        else:
            _run(list(chains.values()), lazy)
    finally:
        lazy.close()
    outcomes = tuple(chain.outcome() for chain in chains.values())
    state = "frozen" if frozen else ""
    if not dry_run and not frozen:
        made = {n: c.locked() for n, c in chains.items() if c.finished}
        # What was not built this time stays as it was, as long as the file still has it.
        kept = {n: m for n, m in lock.models.items() if n in instances and n not in made}
        state = "written" if lock.write({**kept, **made}) else "unchanged"
    report = BuildReport(
        file=described.path.name,
        models=outcomes,
        dry_run=dry_run,
        executor=name,
        jobs=jobs,
        seconds=time.perf_counter() - began,
        processor=processor(),
        cache=str(store.folder),
        lock=state,
    )
    if not dry_run:
        record(store, described.path, report)
    return report


def build_history(
    file: str | os.PathLike[str] = BUILD_FILE, *, cache: str | os.PathLike[str] | None = None
) -> BuildHistoryReport:
    """The builds of a file so far.

    Raises:
        InputError, UsageError: as `build`.
    """
    described = read_file(file)
    return read_history(Store(_cache_folder(described, cache)), described.path)


def _cache_folder(file: WorkflowFile, given: str | os.PathLike[str] | None) -> Path:
    """On this machine; a cache behind a URL has the user's own folder in front of it."""
    if given is not None and not is_remote(str(given)):
        return Path(given).absolute()
    named = None if given is not None else file.settings.get("cache")
    if named is not None and is_remote(named):
        named = None
    return (file.root / named) if named else default_folder().absolute()


def _check_sources(file: WorkflowFile, instances: Iterable[Instance]) -> None:
    """A source that is not there is a mistake in the file: it is said before anything runs."""
    for instance in instances:
        source = instance.source
        if source is not None and not is_remote(source) and not (file.root / source).exists():
            raise InputError(f"{file.path.name}: models.{instance.model}.source: no such file {source}.")


def _run(chains: Sequence[BuildChain], lazy: LazyExecutor) -> None:
    """Run what is stale. Measured steps run alone, when nothing else is under way: others would disturb the times."""
    running: dict[Future[StepResult], BuildChain] = {}
    waiting = list(chains)
    measured: list[BuildChain] = []
    with progress.task("building", len(chains)) as task:
        while waiting or measured or running:
            blocked = []
            for index, chain in enumerate(waiting):
                if lazy.opened is not None and len(running) >= lazy.opened.jobs:
                    blocked += waiting[index:]
                    break
                if chain.blocked:
                    blocked.append(chain)
                    continue
                step = chain.advance()
                if step is None:
                    task.advance()
                elif step.measured:
                    measured.append(chain)
                else:
                    task.describe(f"{chain.instance.name}: {step.command}")
                    running[lazy.get().submit(step)] = chain
            waiting = blocked
            if measured and not running:
                chain = measured.pop(0)
                step = chain.pending
                assert step is not None
                task.describe(f"{chain.instance.name}: {step.command} (measuring)")
                running[lazy.get().submit(step)] = chain
            for future in wait(running, return_when=FIRST_COMPLETED).done if running else ():
                chain = running.pop(future)
                chain.take(future.result())
                waiting.append(chain)


_MOST = 1000  # builds that are kept


def record(store: Store, file: Path, report: BuildReport) -> None:
    """Add a build; a history that cannot be written ends no build."""
    line = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "ok": report.ok,
        "built": report.count("built"),
        "cached": report.count("cached"),
        "failed": sum(m.state == "failed" for m in report.models),
        "seconds": round(report.seconds, 3),
        "outputs": {m.name: [m.sha256, m.bytes, m.seconds] for m in report.models if m.sha256},
    }
    path = _path(store, file)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a", encoding="utf-8") as lines:
            lines.write(json.dumps(line, sort_keys=True) + "\n")
        _shorten(path)


def read_history(store: Store, file: Path) -> BuildHistoryReport:
    """All builds of a file that are remembered, the latest last."""
    return BuildHistoryReport(file.name, tuple(_builds(_path(store, file))))


def _builds(path: Path) -> Iterator[PastBuild]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        with suppress(ValueError, TypeError, KeyError):  # a line that was cut off
            entry = json.loads(line)
            outputs = {name: (str(v[0]), int(v[1]), v[2]) for name, v in entry.pop("outputs").items()}
            yield PastBuild(outputs=outputs, **entry)


def _shorten(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    if len(lines) > 2 * _MOST:
        write_atomic(path, "".join(lines[-_MOST:]).encode())


def _path(store: Store, file: Path) -> Path:
    return store.folder / "history" / f"{text_digest(str(file.resolve()))[:24]}.jsonl"
