"""Where steps run: in the process, in worker processes that are watched, or on a cluster, started here if need be."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from onnxtool.errors import OnnxToolError, ResourceError, UnsupportedError, UsageError, needs_extra, one_line
from onnxtool.runtime.worker.tasks import TaskPool, TaskProcessEndedError
from onnxtool.workflow import digests
from onnxtool.workflow.cluster import (
    RETRIES,
    ClusterExecutor,
    ClusterWorker,
    ShippedPackage,
    Workers,
    describe_worker,
    run_package,
)
from onnxtool.workflow.run_step import StepResult, StepTask, run_step

_CONNECT = 20.0  # seconds


class DaskExecutor(ClusterExecutor):
    """Runs steps on the workers of a cluster that is there already."""

    def __init__(self, address: str) -> None:
        """Connect, and hold the workers' versions against the driver's.

        Raises:
            MissingExtraError: dask.distributed is not installed.
            ResourceError: nobody answers, or there is no worker.
            UnsupportedError: a worker has other versions.
        """
        with needs_extra(f"--executor dask://{address}", "dask.distributed", "dask"):
            from distributed import Client
        self.name = f"dask://{address}"
        try:
            self._client = Client(f"tcp://{address}", timeout=_CONNECT, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise ResourceError(f"{self.name}: no scheduler answers there ({type(error).__name__}).") from error
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        self.jobs = 2 * sum(w["nthreads"] for w in workers.values())  # one at work, one on its way
        try:
            self._workers = Workers(
                self.name,
                [
                    ClusterWorker(address, frozenset(workers[address].get("resources", {})), versions, processor)
                    for address, (versions, processor) in self._client.run(describe_worker).items()
                    if address in workers
                ],
            )
        except OnnxToolError:
            self._client.close()
            raise

    def _send(self, package: ShippedPackage, needed: dict[str, float]) -> Any:
        task = package.task
        return self._client.submit(
            run_package, package, key=f"onnxtool-{task.command}-{task.key}", retries=RETRIES, resources=needed or None
        )

    def _release(self, future: Any) -> None:
        future.release()

    def close(self) -> None:
        """Leave the cluster; it stays."""
        self._client.close()


_OWN = ("CPU", "GPU", "memory", "object_store_memory")  # resources that Ray counts by itself


class RayExecutor(ClusterExecutor):
    """Runs steps on the nodes of a Ray cluster that is there already."""

    def __init__(self, address: str) -> None:
        """Connect to a head node's client server, and hold the nodes' versions against the driver's.

        Raises:
            MissingExtraError: Ray is not installed.
            ResourceError: nobody answers, or there is no node.
            UnsupportedError: a node has other versions.
        """
        self.name = f"ray://{address}"
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would report what it is used for
        with needs_extra(f"--executor {self.name}", "Ray", "ray"):
            import ray
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
        self._ray = ray
        try:
            ray.init(self.name, log_to_driver=False, logging_level="ERROR")
        except Exception as error:  # Ray's own, grpc's, and the system's
            raise ResourceError(f"{self.name}: no Ray head answers there ({type(error).__name__}).") from error
        try:
            nodes = {n["NodeID"]: n for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU")}
            self.jobs = 2 * sum(int(n["Resources"]["CPU"]) for n in nodes.values())  # one at work, one on its way
            asked = {
                node: ray.remote(describe_worker)
                .options(num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False))
                .remote()
                for node in nodes
            }
            described = {node: ray.get(answer) for node, answer in asked.items()}
            self._workers = Workers(
                self.name,
                [ClusterWorker(n["NodeManagerAddress"], _tags(n), *described[node]) for node, n in nodes.items()],
            )
        except OnnxToolError:
            self.close()
            raise
        except Exception as error:
            self.close()
            raise ResourceError(f"{self.name}: a node cannot run onnxtool ({one_line(error)}).") from error

    def _send(self, package: ShippedPackage, needed: dict[str, float]) -> Any:
        graphics = needed.pop("gpu", 0)  # Ray's own name for it, so that it also chooses the device
        remote = self._ray.remote(run_package).options(
            num_cpus=1, num_gpus=graphics, resources=needed, max_retries=RETRIES
        )
        # By `put`, for the client warns of large arguments.
        return remote.remote(self._ray.put(package)).future()

    def _release(self, future: Any) -> None:
        """Ray counts who holds a result."""

    def close(self) -> None:
        """Leave the cluster; it stays."""
        self._ray.shutdown()


def _tags(node: Any) -> frozenset[str]:
    resources = node["Resources"]
    declared = {n for n in resources if n not in _OWN and not n.startswith(("node:", "accelerator_type:"))}
    return frozenset(declared | ({"gpu"} if resources.get("GPU") else set()))


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
        return DaskExecutor(name.removeprefix("dask://"))
    if name.startswith("ray://"):
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
