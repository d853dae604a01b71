"""Check several models at a time: worker processes that take one model after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import local
from typing import Any

from onnxtool.errors import OnnxToolError, UsageError
from onnxtool.report.check import CheckReport, Unreadable
from onnxtool.runtime.worker.tasks import TaskProcess, TaskProcessEndedError, run_tasks

Outcome = CheckReport | Unreadable


def check_in_workers(
    paths: Sequence[Path], options: Mapping[str, Any], jobs: int, done: Callable[[], None]
) -> list[Outcome]:
    """Check models in `jobs` processes.

    Args:
        paths: the models.
        options: as for `check`.
        jobs: how many at a time.
        done: called after each model, in no order.

    Returns:
        One outcome for each model, in the order of `paths`. A model that crashes its worker, or takes it over the
        limits, is unreadable, and ends no other.

    Raises:
        UsageError: as `check`.
    """
    workers: list[TaskProcess] = []
    own = local()

    def one(path: Path) -> Outcome:
        if getattr(own, "worker", None) is None or own.worker.ended:
            own.worker = TaskProcess("onnxtool.lint.workers", dict(options))
            workers.append(own.worker)
        try:
            outcome: Outcome | UsageError = own.worker.run(path)
        except TaskProcessEndedError as error:
            outcome = Unreadable(str(path), str(error), abs(error.code))
        done()
        if isinstance(outcome, UsageError):
            raise outcome
        return outcome

    pool = ThreadPoolExecutor(jobs)
    try:
        return list(pool.map(one, paths))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.end()


def _checker(options: Mapping[str, Any]) -> Callable[[Path], Outcome | UsageError]:
    """In a worker: what checks one model."""
    from onnxtool.lint.check import check

    def run(path: Path) -> Outcome | UsageError:
        try:
            return check(path, **options)
        except UsageError as error:
            return error
        except OnnxToolError as error:
            return Unreadable(str(path), str(error), error.exit_code)

    return run


if __name__ == "__main__":
    run_tasks(_checker)
