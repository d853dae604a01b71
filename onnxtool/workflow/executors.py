"""Where steps run: in the process, in worker processes that are watched, or on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol

from onnxtool.errors import UnsupportedError, UsageError
from onnxtool.runtime.worker.tasks import TaskPool, TaskProcessEndedError
from onnxtool.workflow import digests
from onnxtool.workflow.cluster import ClusterExecutor
from onnxtool.workflow.run_step import StepResult, StepTask, run_step


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
        from onnxtool.workflow.cluster_engines import DaskExecutor

        return DaskExecutor(name.removeprefix("dask://"))
    if name.startswith("ray://"):
        from onnxtool.workflow.cluster_engines import RayExecutor

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
        self._workers = TaskPool("onnxtool.workflow.worker", None, jobs)

    def submit(self, task: StepTask) -> Future[StepResult]:
        """Hand a step to the next free process."""
        return self._workers.threads.submit(self._run, task)

    def _run(self, task: StepTask) -> StepResult:
        try:
            result: StepResult = self._workers.run(task)
        except TaskProcessEndedError as error:
            return StepResult(None, str(error), error.code if 0 < error.code < 128 else 3)
        return result

    def close(self) -> None:
        """End the processes."""
        self._workers.close()
