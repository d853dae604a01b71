"""`check` of several models: files, folders and patterns, one at a time or in worker processes."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxtool import progress
from onnxtool.errors import InputError, UsageError
from onnxtool.lint.check import check_one
from onnxtool.report.check import (
    CheckReport,
    ChecksReport,
    Unreadable,
)
from onnxtool.runtime.worker.tasks import TaskPool, TaskProcessEndedError, run_tasks


def check_all(paths: Sequence[str | os.PathLike[str]], *, jobs: int = 1, **options: Any) -> ChecksReport:
    """Check several models.

    Args:
        paths: files, folders (every .onnx file below) and patterns ("models/*.onnx").
        jobs: how many to check at a time, each in a process of its own; the order of the report stays.
        options: as for `check`.

    Returns:
        One report; a file that cannot be read is told in it and does not end the others.

    Raises:
        InputError: there is no model at all.
        UsageError: as `check`.
    """
    found = find_models(paths)
    with progress.task("checking", len(found)) as task:
        if jobs > 1 and len(found) > 1:
            from onnxtool.lint.check_many import check_in_workers

            outcomes = check_in_workers(found, options, min(jobs, len(found)), task.advance)
        else:
            outcomes = []
            for path in found:
                task.describe(f"checking {path.name}")
                outcomes.append(check_one(path, options))
                task.advance()
    return ChecksReport(
        tuple(o for o in outcomes if isinstance(o, CheckReport)),
        tuple(o for o in outcomes if isinstance(o, Unreadable)),
    )


def find_models(paths: Sequence[str | os.PathLike[str]]) -> list[Path]:
    """Files as they are; all .onnx files below a folder; what a pattern fits. Each once, in order.

    Raises:
        InputError: a folder or pattern holds none.
    """
    found: dict[Path, None] = {}
    for given in paths:
        if not os.fspath(given):
            raise InputError("'': a model without a name; a variable may be empty.")
        path = Path(given)
        if path.is_dir():
            hits = sorted(p for p in path.rglob("*.onnx") if p.is_file())
        elif not path.exists() and any(c in str(given) for c in "*?["):
            hits = sorted(Path(p) for p in glob.glob(str(given), recursive=True))
        else:
            hits = [path]
        if not hits:
            raise InputError(f"{given}: there is no .onnx file.")
        found.update(dict.fromkeys(hits))
    return list(found)


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
    workers = TaskPool("onnxtool.lint.check_many", dict(options), jobs)

    def one(path: Path) -> Outcome:
        try:
            outcome: Outcome | UsageError = workers.run(path)
        except TaskProcessEndedError as error:
            outcome = Unreadable(str(path), str(error), abs(error.code))
        done()
        if isinstance(outcome, UsageError):
            raise outcome
        return outcome

    try:
        return list(workers.threads.map(one, paths))
    finally:
        workers.close()


def _checker(options: Mapping[str, Any]) -> Callable[[Path], Outcome | UsageError]:
    """In a worker: what checks one model."""
    from onnxtool.lint.check import check_one

    def run(path: Path) -> Outcome | UsageError:
        try:
            return check_one(path, options)
        except UsageError as error:
            return error

    return run


if __name__ == "__main__":
    run_tasks(_checker)
