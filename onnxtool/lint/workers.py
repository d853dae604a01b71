"""Check several models at a time: worker processes that take one model after the other.

Run as `python -m onnxtool.lint.workers`: reads what to do, pickled, from its parent, and answers likewise.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from threading import local
from typing import Any

from onnxtool.errors import InputError, OnnxToolError, UnsupportedError, UsageError
from onnxtool.model.safety import limits
from onnxtool.report.check import CheckReport, Unreadable
from onnxtool.runtime.worker import isolation

_PATIENCE = 2.0  # seconds
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
    workers: list[_Worker] = []
    own = local()

    def one(path: Path) -> Outcome:
        if getattr(own, "worker", None) is None or own.worker.ended:
            own.worker = _Worker(options)
            workers.append(own.worker)
        outcome: Outcome | UsageError = own.worker.check(path)
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


class _Worker:
    """The parent's side of one process."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "onnxtool.lint.workers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )
        self.ended = False
        self._send((dict(options), asdict(limits.DEFAULT), isolation.is_supervised()))

    def check(self, path: Path) -> Outcome | UsageError:
        """Check one model; afterwards `ended` tells whether the process is still there."""
        assert self._process.stdout is not None
        try:
            self._send(path)
            outcome: Outcome | UsageError = pickle.load(self._process.stdout)
            return outcome
        except (OSError, EOFError, pickle.UnpicklingError):
            _, told = self._process.communicate()
            self.ended = True
            lines = told.decode(errors="replace").strip().splitlines()
            code = self._process.returncode
            return Unreadable(str(path), lines[-1] if lines else f"its process ended with code {code}", abs(code))

    def end(self) -> None:
        """Let the process go: it ends when there is nothing more to read."""
        if self.ended:
            return
        self.ended = True
        assert self._process.stdin is not None
        with suppress(OSError):
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


def _work() -> None:
    """The worker's side: until the parent closes the pipe."""
    source = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # native code may print
    options, bounds, supervised = pickle.load(source)
    for name, value in bounds.items():
        setattr(limits.DEFAULT, name, value)
    if supervised:
        isolation.supervise(_fail)
        if isolation.crashed_before():
            sys.stderr.write("native code crashed on random inputs; give real ones with --data.\n")
            sys.exit(InputError.exit_code)
        if said := isolation.unsettled_crash():
            sys.stderr.write(said + "\n")
            sys.exit(UnsupportedError.exit_code)
    from onnxtool.lint.check import check

    while True:
        try:
            path = pickle.load(source)
        except EOFError:
            return
        try:
            outcome: Outcome | UsageError = check(path, **options)
        except UsageError as error:
            outcome = error
        except OnnxToolError as error:
            outcome = Unreadable(str(path), str(error), error.exit_code)
        pickle.dump(outcome, answers)
        answers.flush()


def _fail(line: str, _: int) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    _work()
