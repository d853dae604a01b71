"""Where steps run: in the process, in worker processes that are watched, or on a cluster."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from threading import local
from typing import Protocol

from onnxtool.errors import UnsupportedError, UsageError
from onnxtool.model.safety import limits
from onnxtool.runtime.worker import isolation
from onnxtool.workflow import digests
from onnxtool.workflow.cluster import ClusterExecutor
from onnxtool.workflow.run_step import StepResult, StepTask, run_step

_PATIENCE = 2.0  # seconds


class Executor(Protocol):
    """What runs steps; a future's result is a StepResult and never an exception of the step."""

    name: str
    jobs: int

    def submit(self, task: StepTask) -> Future[StepResult]:
        """Begin a step."""

    def close(self) -> None:
        """End everything that is under way."""


class LazyExecutor:
    """The executor of a build, opened when it is first needed: where nothing is stale it is not."""

    def __init__(self, name: str, jobs: int) -> None:
        """Take a name as `open_executor` does."""
        self._name, self._jobs = name, jobs
        self.opened: Executor | None = None

    def get(self) -> Executor:
        """The executor.

        Raises:
            UsageError, MissingExtraError, ResourceError, UnsupportedError: it cannot be had.
        """
        self.opened = self.opened or open_executor(self._name, self._jobs)
        return self.opened

    def processor(self, tags: Sequence[str]) -> str:
        """The processor that a measured step with these tags runs on.

        Raises:
            UnsupportedError: no machine has these tags, or those that have them are of several kinds.
            MissingExtraError, ResourceError: the cluster cannot be reached.
        """
        if "://" not in self._name:
            return own_processor(tags)
        cluster = self.get()
        assert isinstance(cluster, ClusterExecutor)
        return cluster.processor(tags)

    def close(self) -> None:
        """End everything that is under way."""
        if self.opened is not None:
            self.opened.close()


def own_processor(tags: Sequence[str]) -> str:
    """This machine's processor.

    Raises:
        UnsupportedError: it does not have these tags.
    """
    missing = sorted(set(tags) - digests.own_tags())
    if missing:
        raise UnsupportedError(
            f"runs-on {', '.join(missing)}: this machine has only {', '.join(sorted(digests.own_tags()))}; "
            "a cluster's workers declare others (--executor dask://HOST:PORT or ray://HOST:PORT)."
        )
    return digests.processor()


def open_executor(name: str, jobs: int) -> Executor:
    """An executor by its name on the command line.

    Raises:
        UsageError: no such executor.
        MissingExtraError: its library is not installed.
    """
    if name == "local":
        return LocalExecutor()
    if name == "processes":
        return ProcessExecutor(jobs)
    if name.startswith("dask://"):
        from onnxtool.workflow.dask_executor import DaskExecutor

        return DaskExecutor(name.removeprefix("dask://"))
    if name.startswith("ray://"):
        from onnxtool.workflow.ray_executor import RayExecutor

        return RayExecutor(name.removeprefix("ray://"))
    raise UsageError(f"--executor {name}: must be local, processes, dask://HOST:PORT or ray://HOST:PORT.")


class LocalExecutor:
    """Runs each step at once, in this process."""

    name = "local"
    jobs = 1

    def submit(self, task: StepTask) -> Future[StepResult]:
        """Run a step."""
        done: Future[StepResult] = Future()
        done.set_result(run_step(task))
        return done

    def close(self) -> None:
        """There is nothing to end."""


class ProcessExecutor:
    """Runs steps in processes of this machine; one that crashes or leaves its limits fails its step alone."""

    name = "processes"

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self._threads = ThreadPoolExecutor(jobs, thread_name_prefix="onnxtool-build")
        self._workers: list[_WorkerProcess] = []
        self._own = local()

    def submit(self, task: StepTask) -> Future[StepResult]:
        """Hand a step to the next free process; processes are started when they are needed."""
        return self._threads.submit(self._run, task)

    def _run(self, task: StepTask) -> StepResult:
        worker = getattr(self._own, "worker", None)
        if worker is None or worker.ended:
            worker = self._own.worker = _WorkerProcess()
            self._workers.append(worker)
        return worker.run(task)

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.end()
        self._threads.shutdown(wait=False, cancel_futures=True)


class _WorkerProcess:
    """The driver's side of one process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "onnxtool.workflow.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONWARNINGS": "ignore", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self.ended = False
        self._send((asdict(limits.DEFAULT), isolation.is_supervised()))

    def run(self, task: StepTask) -> StepResult:
        """Run one step; afterwards `ended` tells whether the process is still there."""
        assert self._process.stdout is not None
        try:
            self._send(task)
            result: StepResult = pickle.load(self._process.stdout)
            return result
        except (OSError, EOFError, ValueError, pickle.UnpicklingError):
            self.ended = True
            told = b""
            with suppress(OSError, ValueError, subprocess.TimeoutExpired):
                _, told = self._process.communicate(timeout=_PATIENCE)
            lines = told.decode(errors="replace").strip().splitlines()
            code = self._process.returncode or 0
            said = lines[-1] if lines else f"its process ended with code {code}"
            return StepResult(None, said, code if 0 < code < 128 else 3)

    def end(self) -> None:
        """Let the process go: it ends when there is nothing more to read."""
        if self.ended:
            return
        self.ended = True
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            self._process.stdin.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.terminate()  # it passes this on to the process that it watches
            self._process.wait()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def _send(self, what: object) -> None:
        assert self._process.stdin is not None
        pickle.dump(what, self._process.stdin)
        self._process.stdin.flush()
