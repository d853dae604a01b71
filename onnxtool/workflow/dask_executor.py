"""Steps on a Dask cluster, by dask.distributed's own client."""

from __future__ import annotations

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
