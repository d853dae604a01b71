"""One served model: its session, the requests that wait for it, and the batches they are joined to."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxtool.errors import InputError
from onnxtool.runtime.feeds import Feeds
from onnxtool.serving.body import ClientGoneError
from onnxtool.serving.faults import HttpError
from onnxtool.serving.served_model import Cancellation, ServingRunner, Show
from onnxtool.serving.telemetry import Metrics
from onnxtool.serving.threads import started_threads

# Takes what is called when a client closes its connection before its answer.
WhenGone = Callable[[Callable[[], object]], None]


@dataclass(eq=False)
class _EngineJob:
    """A request that waits for its run, or is in it; equal to itself alone.

    Attributes:
        feeds: its inputs.
        rows: size of the first dim of all of them; 0 when they differ, so that it cannot be joined to others.
        shapes: of the other dims.
        answer: what its client waits for.
        seconds: that any request may take.
        show: takes the texts that its run shows before its end; None where it waits for the end alone.
        arrived: when.
    """

    feeds: Feeds
    rows: int
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    answer: asyncio.Future[dict[str, Any]]
    seconds: float
    show: Show | None = None
    arrived: float = field(default_factory=time.perf_counter)


class Engine:
    """Runs a model for requests: at most `concurrency` runs at a time, the others wait in order.

    When a run can begin, the requests that wait and fit together go into it; they wait for a batch to fill as long as
    `max_delay` says, which is not at all by default.
    """

    def __init__(
        self,
        model: ServingRunner,
        *,
        labels: tuple[str, str],
        metrics: Metrics,
        concurrency: int,
        queue: int,
        max_batch: int = 1,
        max_delay: float = 0.0,
    ) -> None:
        """Take a loaded model.

        Args:
            model: what is run.
            labels: its name and version, for the metrics.
            metrics: of the server.
            concurrency: runs at a time.
            queue: requests that may wait.
            max_batch: rows of requests that may be joined into one run; 1 for never.
            max_delay: seconds that a request may wait for others to be joined to.
        """
        self.model, self.max_batch, self._max_delay = model, max_batch, max_delay
        self.concurrency, self._queue = concurrency, queue
        self._threads = started_threads(concurrency, "run")
        self._waiting: deque[_EngineJob] = deque()
        self._running = 0
        self._tasks = set[asyncio.Task[None]]()  # the loop itself holds them weakly
        self._requests = {result: metrics.model_request.labels(*labels, result) for result in ("success", "fail")}
        self._inference = metrics.inference.labels(*labels)
        self._compute, self._executions = metrics.compute.labels(*labels), metrics.executions.labels(*labels)
        self._rows, self._last = metrics.inferences.labels(*labels), metrics.last_inference.labels(*labels)
        specs = (*model.inputs, *model.outputs)
        self._batched = all(s.shape and not isinstance(s.shape[0], int) for s in specs)  # as Triton tells it of a file
        self._queued = metrics.queue.labels(*labels)
        self._batch = metrics.batch.labels(*labels)
        self._length = metrics.waiting.labels(*labels)

    @property
    def idle(self) -> bool:
        """True when nothing runs and nothing waits."""
        return self._running == 0 and not self._waiting

    async def infer(
        self,
        feeds: Feeds,
        seconds: float,
        when_gone: WhenGone | None = None,
        show: Show | None = None,
        within: float | None = None,
    ) -> dict[str, Any]:
        """One request.

        Args:
            feeds: as decoded.
            seconds: that any request may wait and run.
            when_gone: takes what to call when the client leaves.
            show: takes the texts that the run shows before its end, on a thread.
            within: seconds that the client itself waits.

        Raises:
            InputError: the feeds do not fit the model, or it fails on them.
            HttpError: 429 when too many wait, 504 when it takes too long.
            ClientGoneError: the client has left.
        """
        self.model.check(feeds)
        if len(self._waiting) >= self._queue:
            raise HttpError(
                429, "queue_full", f"{self._queue} requests wait already; try again.", ((b"retry-after", b"1"),)
            )
        sizes = {a.shape[0] if a.ndim else -1 for a in feeds.values()}
        rows = max(sizes.pop(), 0) if len(sizes) == 1 else 0
        shapes = tuple((name, a.shape[1:]) for name, a in feeds.items()) if self.max_batch > 1 else ()
        job = _EngineJob(feeds, rows, shapes, asyncio.get_running_loop().create_future(), seconds, show)
        self._waiting.append(job)
        self._last.set_to_current_time()
        if when_gone is not None:
            when_gone(job.answer.cancel)
        self._next()
        result, waited = "fail", seconds if within is None else min(seconds, within)
        try:
            found = await asyncio.wait_for(job.answer, waited)
            result = "success"
            self._rows.inc(max(1, rows) if self._batched else 1)
            return found
        except TimeoutError:
            raise HttpError(504, "timeout", f"no answer within {waited:g} s.") from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise ClientGoneError from None
        finally:
            if job in self._waiting:  # too late, or its client has gone
                self._waiting.remove(job)
            self._length.set(len(self._waiting))
            self._requests[result].observe(time.perf_counter() - job.arrived)

    def close(self) -> None:
        """End the model; to be called when nothing runs."""
        self._threads.shutdown(wait=False)
        self.model.close()

    def _next(self) -> None:
        """Begin runs while there is room for one and something waits.

        Where that fails, all who wait are told: none of them waits for an answer that does not come.
        """
        try:
            while self._running < self.concurrency and (jobs := self._joined()):
                task = asyncio.get_running_loop().create_task(self._run(jobs))
                self._running += 1
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        except Exception as error:
            lost = list(self._waiting)
            self._waiting.clear()
            _fail(lost, error)
        self._length.set(len(self._waiting))

    def _joined(self) -> list[_EngineJob]:
        """The first that waits, and those behind it that can share its run; whose client has gone is left out. None as
        long as more may come that can.
        """
        jobs, others, rows = list[_EngineJob](), deque[_EngineJob](), 0
        self._waiting = deque(job for job in self._waiting if not job.answer.done())
        for job in self._waiting:
            if not jobs or (rows and job.rows and job.shapes == jobs[0].shapes and rows + job.rows <= self.max_batch):
                jobs.append(job)
                rows += job.rows
            else:
                others.append(job)
        if self._max_delay and 0 < rows < self.max_batch:
            left = jobs[0].arrived + self._max_delay - time.perf_counter()
            if left > 0:
                asyncio.get_running_loop().call_later(left, self._next)
                return []
        self._waiting = others
        return jobs

    async def _run(self, jobs: list[_EngineJob]) -> None:
        """One run; whatever happens in it, each of the jobs gets an answer and the next run begins."""
        began = time.perf_counter()
        try:
            await self._answer(jobs, began)
        except asyncio.CancelledError:  # the server ends
            raise
        except BaseException as error:  # what native code raises on a thread may be no Exception
            _fail(jobs, error)
        finally:
            self._running -= 1
            self._inference.observe(time.perf_counter() - began)
            self._batch.observe(len(jobs))
            self._next()

    async def _answer(self, jobs: list[_EngineJob], began: float) -> None:
        cancellation = Cancellation()
        loop = asyncio.get_running_loop()
        single = len(jobs) == 1 and jobs[0].show is None
        alone = self.model.begin(jobs[0].feeds, cancellation) if single else None
        run: asyncio.Future[Any] = (
            loop.run_in_executor(self._threads, self._call, jobs, cancellation) if alone is None else alone
        )
        for job in jobs:
            self._queued.observe(began - job.arrived)
            job.answer.add_done_callback(lambda _: _end_when_all_gone(jobs, cancellation, run, began))
        try:
            results = await run if alone is None else [await run]
        except Exception as error:
            error.__traceback__ = None  # this frame, which holds the inputs, and here would be held by its future
            if len(jobs) > 1:  # each runs again, alone: the fault of one is not that of the others
                for job in reversed(jobs):
                    job.rows = 0
                    self._waiting.appendleft(job)
            elif not jobs[0].answer.done():
                jobs[0].answer.set_exception(error)
        else:
            self._executions.inc()
            seconds = time.perf_counter() - began
            for job, result in zip(jobs, results, strict=True):
                if not job.answer.done():
                    self._compute.observe(seconds)
                    job.answer.set_result(result)

    def _call(self, jobs: list[_EngineJob], cancellation: Cancellation) -> list[dict[str, Any]]:
        """Run on a thread: one request, or several joined along the first dim and taken apart again."""
        feeds = [j.feeds for j in jobs]
        if len(feeds) == 1:
            shown = () if jobs[0].show is None else (jobs[0].show,)
            return [self.model.run(feeds[0], cancellation, *shown)]
        sizes = [next(iter(f.values())).shape[0] for f in feeds]
        joined = {name: np.concatenate([f[name] for f in feeds]) for name in feeds[0]}
        outputs = self.model.run(joined, cancellation)
        if any(np.shape(o)[:1] != (sum(sizes),) for o in outputs.values()):
            raise InputError("the outputs of joined requests cannot be told apart.")  # each then runs alone
        cuts = np.cumsum(sizes)[:-1]
        split = {name: np.split(np.asarray(o), cuts) for name, o in outputs.items()}
        return [{name: parts[i] for name, parts in split.items()} for i in range(len(feeds))]


def _fail(jobs: Sequence[_EngineJob], error: BaseException) -> None:
    """Answer jobs that a fault of ours has left without one: status 500, and a line of the log for each."""
    for job in jobs:
        if not job.answer.done():
            fault = RuntimeError(f"the run of this request failed: {type(error).__name__}: {error}")
            fault.__cause__ = error
            job.answer.set_exception(fault)


def _end_when_all_gone(
    jobs: list[_EngineJob], cancellation: Cancellation, run: asyncio.Future[Any], began: float
) -> None:
    """End a run that nobody waits for any more; its inputs are why where it has taken most of the time itself."""
    if not run.done() and all(j.answer.done() for j in jobs):
        now = time.perf_counter()
        cancellation.ask(blamed=all(now - began > j.seconds / 2 for j in jobs))
