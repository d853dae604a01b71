"""Steps on a Dask cluster, by dask.distributed's own client."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from onnxtool.errors import MissingExtraError, OnnxToolError, ResourceError
from onnxtool.workflow.cluster import RETRIES, Delivery, Worker, Workers, accept, describe_worker, pack, run_package
from onnxtool.workflow.run_step import StepResult, StepTask

_CONNECT = 20.0  # seconds


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
        self.jobs = 2 * sum(w["nthreads"] for w in workers.values())  # one at work, one on its way
        try:
            self._workers = Workers(
                self.name,
                [
                    Worker(address, frozenset(workers[address].get("resources", {})), versions, processor)
                    for address, (versions, processor) in self._client.run(describe_worker).items()
                    if address in workers
                ],
            )
        except OnnxToolError:
            self._client.close()
            raise

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
        sent = self._client.submit(
            run_package, package, key=f"onnxtool-{task.command}-{task.key}", retries=RETRIES, resources=needed or None
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
