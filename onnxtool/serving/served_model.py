"""What runs a served model: processes of its own, or the process that speaks HTTP."""

from __future__ import annotations

import asyncio
import hashlib
import queue
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnxruntime as ort

from onnxtool.errors import InputError, OnnxToolError
from onnxtool.model.spec import TensorSpec
from onnxtool.options.session import SessionOptions
from onnxtool.runtime.empty_inputs import empty_sizes
from onnxtool.runtime.feeds import Feeds, check_feeds, random_feeds
from onnxtool.runtime.probes import find_probes
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import classify, first_line
from onnxtool.runtime.worker.errors import WorkerDiedError, WorkerTimeoutError
from onnxtool.runtime.worker.worker import Worker
from onnxtool.serving.faults import HttpError
from onnxtool.serving.threads import started_threads

# Inputs that have ended a process so often, without an answer in between, are refused; so many are remembered.
_MOST_DEATHS, _MOST_INPUTS = 2, 1024
# Memory that runs may leave taken beyond the model's own, and seconds from one new process for that to the next.
_KEPT_BYTES, _BETWEEN = 512 << 20, 30.0
_LOOK = 0.2  # seconds between two looks at it
_INLINE = 1 << 20  # larger inputs are handed over by a thread
_RETRY_SECONDS = 1.0
_WORTH = 1.2  # times the requests of one process, from which on several are worth their memory

OnDeath = Callable[[str], None]
EmptyDims = frozenset[tuple[str, int]]  # the dims of 0, as input and axis
Show = Callable[[str], None]


def _ignore(_: str) -> None:
    """Texts that nobody waits for."""


class Cancellation:
    """Ends one run from another thread.

    Attributes:
        asked: whether nobody waits for the run any more.
        blamed: whether its inputs are why: it has taken too long.
    """

    def __init__(self) -> None:
        self.asked = self.blamed = False
        self._end: Callable[[], None] | None = None

    def ask(self, *, blamed: bool) -> None:
        """End the run, if it has begun."""
        self.asked, self.blamed = True, blamed
        if self._end is not None:
            self._end()

    def begin(self, end: Callable[[], None]) -> None:
        """The run begins; `end` ends it."""
        self._end = end


class ServingRunner(Protocol):
    """A model that many threads may run."""

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """What it takes."""

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """What it gives."""

    def check(self, feeds: Feeds) -> None:
        """Hold feeds against what it takes.

        Raises:
            InputError: they do not fit.
        """

    def run(self, feeds: Feeds, cancellation: Cancellation | None = None, show: Show = _ignore) -> dict[str, Any]:
        """One run, which may show texts before its end.

        Raises:
            InputError, ResourceError, UnsupportedError: it fails on these inputs.
            WorkerDiedError, WorkerTimeoutError: its process has ended.
        """

    def begin(self, feeds: Feeds, cancellation: Cancellation) -> asyncio.Future[dict[str, Any]] | None:
        """Begin a run that needs no thread; None where it does. Errors of the future as of `run`."""

    def close(self) -> None:
        """End what it holds."""


class LocalModel:
    """A model in this process: what crashes it, crashes the server."""

    def __init__(self, runner: OnnxRunner, taken_empty: Collection[EmptyDims] = ()) -> None:
        """Take a runner, and the ways to be empty that its model is known to take."""
        self._runner, self._taken_empty = runner, taken_empty
        self.inputs, self.outputs = runner.inputs, runner.outputs

    def check(self, feeds: Feeds) -> None:
        """As of the protocol; inputs without elements must be known to be taken."""
        check_feeds(self.inputs, feeds)
        if (empty := _empty_dims(self.inputs, feeds)) and empty not in self._taken_empty:
            raise _is_empty(empty)

    def run(self, feeds: Feeds, cancellation: Cancellation | None = None, show: Show = _ignore) -> dict[str, Any]:
        """One run, without the watch and the checks of `OnnxRunner.run`."""
        options = ort.RunOptions()
        options.log_severity_level = 4  # what a client sends wrong is an answer, not a line of the runtime's
        if cancellation is not None:
            cancellation.begin(lambda: setattr(options, "terminate", True))
        try:
            return self._call(feeds, options, show)
        except Exception as error:
            failure = classify(error)
            if type(failure) is InputError:
                raise InputError(f"the model fails on these inputs: {first_line(error)}") from error
            raise failure from error

    def begin(self, _: Feeds, __: Cancellation) -> None:
        """Runs in this process need a thread."""

    def close(self) -> None:
        """The session ends with its last run."""

    def _call(self, feeds: Feeds, options: ort.RunOptions, _: Show) -> dict[str, Any]:
        # Tensors may lie anywhere in the body of a request.
        return self._runner.run_unchecked({n: np.require(a, requirements="A") for n, a in feeds.items()}, options)


class LocalTexts(LocalModel):
    """A bundle in this process, one text at a time."""

    def __init__(self, folder: Path, options: SessionOptions) -> None:
        """Load it; errors as of `open_texts`."""
        from onnxtool.generation.text_process import open_texts

        self.inputs, self.outputs, self._run = open_texts(folder, options)

    def check(self, feeds: Feeds) -> None:
        """As of the protocol."""
        check_feeds(self.inputs, feeds)

    def _call(self, feeds: Feeds, options: ort.RunOptions, show: Show) -> dict[str, Any]:
        return self._run(feeds, options, show)


class WorkerPool:
    """A model in processes of its own, one run at a time in each.

    Attributes:
        inputs, outputs: of the model.
        count: of the processes.
    """

    def __init__(
        self, path: Path, options: SessionOptions, count: int, seconds: float, died: OnDeath, **kind: Any
    ) -> None:
        """Start the processes.

        Args:
            path: of the model; the file must stay as it is.
            options: how to run it.
            count: processes.
            seconds: for one run.
            died: told how a process has ended.
            kind: what else a `Worker` takes.

        Raises:
            OnnxToolError: the model cannot be loaded.
        """
        self._seconds, self._died, self._closed, self.count = seconds, died, False, count
        self._workers = [Worker(path, options, **kind) for _ in range(count)]
        self.inputs, self.outputs = self._workers[0].inputs, self._workers[0].outputs
        self._free = queue.SimpleQueue[Worker]()
        for worker in self._workers:
            self._free.put(worker)
        self._deaths = OrderedDict[bytes, int]()
        self._look_next = 0.0
        self._keepers = started_threads(count, "keeper")  # each has to do with another process
        self._deadly = empty_inputs_tried(self._workers[0])[1]

    def check(self, feeds: Feeds) -> None:
        """As of the protocol.

        Raises:
            InputError: they do not fit, are empty in a way that ended the process of the model when it was loaded, or
                have ended processes.
        """
        self._workers[0].check(feeds)
        if self._deadly and (empty := _empty_dims(self.inputs, feeds)) in self._deadly:
            raise _is_empty(empty)
        if self._deaths and self._deaths.get(_digest(feeds), 0) >= _MOST_DEATHS:
            raise InputError("these inputs have ended the process of the model twice; they are refused.")

    def run(self, feeds: Feeds, cancellation: Cancellation | None = None, show: Show = _ignore) -> dict[str, Any]:
        """One run in the next free process, which is waited for."""
        try:
            worker = self._take(self._seconds)
        except queue.Empty:
            raise HttpError(503, "no_process", "the process of the model does not start; its log says why.") from None
        with self._held(worker, feeds, cancellation):
            if cancellation is not None and cancellation.asked:
                raise HttpError(499, "client_gone", "nobody waits for this run.")
            worker.begin(feeds, self._seconds)
            found = worker.finish(show)
        self._forgive(feeds)
        return found

    def begin(self, feeds: Feeds, cancellation: Cancellation) -> asyncio.Future[dict[str, Any]] | None:
        """One run, without a thread that waits for it; None where no process is free, or the inputs are large."""
        if sum(array.nbytes for array in feeds.values()) > _INLINE:
            return None
        try:
            worker = self._take(0.0)
        except queue.Empty:
            return None
        loop = asyncio.get_running_loop()
        outputs: asyncio.Future[dict[str, Any]] = loop.create_future()

        def finish() -> dict[str, Any]:
            with self._held(worker, feeds, cancellation):
                found = worker.finish()
            self._forgive(feeds)
            return found

        def settle(result: Callable[[], dict[str, Any]]) -> None:
            try:
                outputs.set_result(result())
            except Exception as error:
                outputs.set_exception(error)

        def ended() -> None:  # on a thread: others do not wait until it is known how
            loop.run_in_executor(self._keepers, finish).add_done_callback(lambda done: settle(done.result))

        def ready(place: int) -> None:
            loop.remove_reader(place)
            if worker.has_answered():
                settle(finish)
            else:
                ended()

        cancellation.begin(worker.interrupt)
        try:
            worker.begin(feeds, self._seconds)
        except OnnxToolError:
            ended()  # says why
        else:
            loop.add_reader(worker.fileno(), ready, worker.fileno())
        return outputs

    def _take(self, seconds: float) -> Worker:
        """A free process. One that has ended while nothing ran in it is renewed: no request pays for that.

        Raises:
            queue.Empty: none is free within so many seconds.
        """
        until = time.monotonic() + seconds
        while True:
            left = until - time.monotonic()
            worker = self._free.get(timeout=left) if left > 0 else self._free.get_nowait()
            if self._closed:
                self._free.put(worker)  # for the next one that waits
                raise queue.Empty
            if worker.alive:
                return worker
            self._died("its process has ended while nothing ran in it")
            self._begin_renewal(worker)

    @contextmanager
    def _held(self, worker: Worker, feeds: Feeds, cancellation: Cancellation | None) -> Iterator[None]:
        """A run in a process, which is free afterwards, or renewed."""
        try:
            if cancellation is not None:
                cancellation.begin(worker.interrupt)
            yield
        except (WorkerDiedError, WorkerTimeoutError) as error:
            left = cancellation is not None and cancellation.asked
            self._died("its run did not end when it was asked to" if left else str(error))
            if cancellation is None or not left or cancellation.blamed:
                self._count(feeds)
            raise
        finally:
            if worker.alive and not self._is_bloated(worker):
                self._free.put(worker)
            else:
                self._begin_renewal(worker)

    def close(self) -> None:
        """End the processes."""
        self._closed = True
        self._keepers.shutdown(wait=False)
        for worker in self._workers:
            worker.close()
            self._free.put(worker)  # whoever waits for one waits no longer

    def _count(self, feeds: Feeds) -> None:
        digest = _digest(feeds)
        self._deaths[digest] = self._deaths.pop(digest, 0) + 1
        while len(self._deaths) > _MOST_INPUTS:
            self._deaths.popitem(last=False)

    def _forgive(self, feeds: Feeds) -> None:
        """Inputs that are answered were not why a process has ended: somebody else has killed it."""
        if self._deaths:
            self._deaths.pop(_digest(feeds), None)

    def _is_bloated(self, worker: Worker) -> bool:
        """Whether runs have left so much memory taken that a new process is worth its start."""
        now = time.monotonic()
        if now < self._look_next:
            return False
        self._look_next = now + _LOOK
        if worker.growth < _KEPT_BYTES:
            return False
        self._look_next = now + _BETWEEN
        return True

    def _begin_renewal(self, worker: Worker) -> None:
        with suppress(RuntimeError):  # the pool is closed
            self._keepers.submit(self._renew, worker)

    def _renew(self, worker: Worker) -> None:
        wait = _RETRY_SECONDS / 16
        while not self._closed:
            try:
                worker.restart()
            except Exception as error:  # of memory, too
                self._died(f"its process does not start again: {error}")
                time.sleep(wait)
                wait = min(2 * wait, _RETRY_SECONDS)
            else:
                self._free.put(worker)
                break
        if self._closed:  # while it was started
            worker.close()


def measured_pool(make: Callable[[int], WorkerPool], most: int) -> tuple[WorkerPool, float | None]:
    """One process, or `most` of them: that which answers more requests a second on this machine.

    Args:
        make: starts so many processes.
        most: of them.

    Returns:
        The processes, and how many times the requests of one `most` of them answer; None where that was not measured.
    """
    from onnxtool.runtime.timing.timing import measure

    one = make(1)
    if most == 1:
        return one, None
    try:
        feeds = find_probes(one, one.inputs, 0, wanted=1, batch=1)[0].feeds
    except OnnxToolError:
        return one, None
    several = make(most)
    with ThreadPoolExecutor(2 * most) as threads:

        def answer(pool: WorkerPool) -> object:
            return list(threads.map(pool.run, [feeds] * (4 * most)))

        calls = [partial(answer, one), partial(answer, several)]
        single, shared = measure(calls, budget=1.0, minimum=3, maximum=100, warmup=1)
    gain = single.median / shared.median
    kept, other = (several, one) if gain >= _WORTH else (one, several)
    other.close()
    return kept, round(gain, 2)


def _digest(feeds: Feeds) -> bytes:
    found = hashlib.sha256()
    for name in sorted(feeds):
        array = feeds[name]
        found.update(f"{name}\0{array.dtype}\0{array.shape}\0".encode())
        found.update(repr(array.tolist()).encode() if array.dtype.hasobject else np.ascontiguousarray(array).tobytes())
    return found.digest()


def _empty_dims(specs: Sequence[TensorSpec], feeds: Feeds) -> EmptyDims:
    """The dims of 0, as input and axis, where the model does not declare them so."""
    return frozenset(
        (spec.name, axis)
        for spec in specs
        if not feeds[spec.name].size
        for axis, size in enumerate(feeds[spec.name].shape)
        if not size and (spec.shape is None or spec.shape[axis] != 0)
    )


def _is_empty(empty: EmptyDims) -> InputError:
    name, axis = min(empty)
    return InputError(f"input {name!r} is empty (dim {axis} is 0), which this model does not take.")


def empty_inputs_tried(worker: Worker) -> tuple[set[EmptyDims], set[EmptyDims]]:
    """The ways to be empty that a model takes, and those that end its process: tried with each dynamic dim, and with
    all of one place, at 0.
    """
    taken, deadly = set[EmptyDims](), set[EmptyDims]()
    for sizes in empty_sizes(worker.inputs):
        try:
            empty = _empty_dims(worker.inputs, feeds := random_feeds(worker.inputs, **sizes))
            worker.run(feeds)
        except (WorkerDiedError, WorkerTimeoutError):
            deadly.add(empty)
        except OnnxToolError:
            continue
        else:
            taken.add(empty)
    if not worker.alive:
        worker.restart()
    return taken, deadly
