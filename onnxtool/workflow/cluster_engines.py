"""Steps on a cluster of Dask or of Ray, by their own clients."""

from __future__ import annotations

import os
from typing import Any

from onnxtool.errors import MissingExtraError, OnnxToolError, ResourceError
from onnxtool.workflow.cluster import (
    RETRIES,
    ClusterExecutor,
    ClusterWorker,
    ShippedPackage,
    Workers,
    describe_worker,
    run_package,
)

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
        try:
            import ray
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
        except ImportError as error:
            raise MissingExtraError(f"--executor {self.name}", "Ray", "ray") from error
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
            reason = " ".join(str(error).split())[:300]
            raise ResourceError(f"{self.name}: a node cannot run onnxtool ({reason}).") from error

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
