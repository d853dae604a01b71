"""`bench URL`: an endpoint under load, in closed and open loops, beside the file in this process."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from onnxtool import progress
from onnxtool.equality.compare_runners import compare_runners
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.errors import InputError, UsageError
from onnxtool.report.measurement.bench import EndpointBenchReport, LoadResult
from onnxtool.runtime import cpu
from onnxtool.runtime.data.read_feeds import read_feeds
from onnxtool.runtime.feeds import Feeds
from onnxtool.runtime.probes import runnable_feeds
from onnxtool.runtime.protocol_v2.client import TOKEN_VARIABLE, RemoteRunner, http_connection
from onnxtool.runtime.protocol_v2.tensors import HEADER_LENGTH, encode_request
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import DEFAULT, SessionOptions

_SECONDS = 120.0


class Exchange:
    """A request whose bytes are made once."""

    def __init__(self, url: str, feeds: Mapping[str, np.ndarray], environment: Mapping[str, str]) -> None:
        """Make the request.

        Args:
            url: of the model: http://HOST:PORT/v2/models/NAME.
            feeds: its inputs.
            environment: where a token may stand, see `V2Client`.
        """
        self._parts = urlsplit(url)
        parts, length = encode_request(feeds)
        body = b"".join(parts)
        token = environment.get(TOKEN_VARIABLE)
        lines = [
            f"POST {self._parts.path}/infer HTTP/1.1",
            f"Host: {self._parts.netloc}",
            "Content-Type: application/octet-stream",
            f"Content-Length: {len(body)}",
            f"{HEADER_LENGTH}: {length}",
            *([f"Authorization: Bearer {token}"] if token else []),
        ]
        self._bytes = "\r\n".join(lines).encode() + b"\r\n\r\n" + body
        self.body_bytes = len(body)

    @contextmanager
    def connect(self) -> Iterator[Callable[[], int]]:
        """A connection: each call sends the request and reads the answer; gives its status.

        Raises:
            OSError: no connection, or it breaks.
            InputError: what comes back is no answer.
        """
        connection = http_connection(self._parts, _SECONDS)

        def once() -> int:
            if connection.sock is None:
                connection.connect()
            connection.sock.sendall(self._bytes)
            response = HTTPResponse(connection.sock, method="POST")
            try:
                response.begin()
                response.read()
            except HTTPException as error:
                raise InputError(f"the server gave no whole answer ({type(error).__name__}).") from error
            if response.will_close:
                connection.close()
            return response.status

        try:
            yield once
        finally:
            connection.close()


_WARMUP = 0.1  # of the budget
_ROUNDS = 4  # of file and endpoint in turn


@dataclass
class _Counts:
    """Latencies of good answers, in seconds, and errors by status."""

    latencies: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def add(self, other: _Counts) -> None:
        self.latencies += other.latencies
        self.errors += other.errors


def bench_endpoint(
    url: str,
    model: str | os.PathLike[str] | None = None,
    *,
    data: str | os.PathLike[str] | Mapping[str, np.ndarray] | None = None,
    batch: int | None = None,
    connections: Sequence[int] = (1, 4),
    rates: Sequence[float] = (),
    budget: float = 2.0,
    seed: int = 0,
    options: SessionOptions = DEFAULT,
) -> EndpointBenchReport:
    """Send requests and time the answers.

    Args:
        url: of a V2 endpoint, see `RemoteRunner`.
        model: the file that it should serve: its answers are held against it, and its time in this process is measured
            in alternation with the endpoint's.
        data: inputs; seeded random ones unless given.
        batch: size of the inputs' first dim; 1 unless given.
        connections: of closed loops.
        rates: requests a second, of open loops.
        budget: seconds for each.
        seed: of the random inputs.
        options: how the file is run.

    Raises:
        InputError: no answer, or the data do not fit.
        UsageError: not a URL.
    """
    if any(r <= 0 for r in rates):
        raise UsageError("--rate takes numbers above 0.")
    remote = RemoteRunner(url)
    local = None if model is None else OnnxRunner.open(Path(model), replace(options, spinning="always"))
    feeds = _feeds(local or remote, data, batch, seed)
    answer = remote.run(feeds)
    equal = None
    if local is not None:
        equal = not compare_runners(local, remote, [feeds], Tolerance(1e-3, 1e-5)).differs
    exchange = Exchange(remote.endpoint, feeds, os.environ)
    results = []
    with progress.task("sending requests", len(connections) + len(rates)) as task:
        first, alone = _in_turn(exchange, local, feeds, budget)
        if alone is not None:
            results.append(_result("session", 1, None, alone))
        for count in dict.fromkeys((1, *connections)):
            counts = first if count == 1 else _closed(exchange, count, budget)
            results.append(_result("closed", count, None, counts))
            task.advance()
        for rate in rates:
            results.append(_result("open", _open_connections(rate, first), rate, _open(exchange, rate, first, budget)))
            task.advance()
    closed = [r for r in results if r.loop == "closed"]
    base = results[0] if local is not None else None
    return EndpointBenchReport(
        url=url,
        model=None if model is None else str(model),
        equal=equal,
        request_bytes=exchange.body_bytes,
        response_bytes=sum(np.asarray(a).nbytes for a in answer.values()),
        results=tuple(results),
        latency_ratio=closed[0].median / base.median if base else None,
        overhead=closed[0].median - base.median if base else None,
        throughput_ratio=max(r.throughput for r in closed) / base.throughput if base else None,
        cpu=cpu.model_name(),
        cores=cpu.usable_cores(),
    )


def _feeds(
    runner: OnnxRunner | RemoteRunner,
    data: str | os.PathLike[str] | Mapping[str, np.ndarray] | None,
    batch: int | None,
    seed: int,
) -> Feeds:
    if data is None:
        return runnable_feeds(runner, runner.inputs, seed, batch=batch or 1)[0]
    feeds = read_feeds(data, runner.inputs).joined()
    rows = batch or 1
    return {
        s.name: feeds[s.name][:rows] if s.shape and not isinstance(s.shape[0], int) else feeds[s.name]
        for s in runner.inputs
    }


def _in_turn(
    exchange: Exchange, local: OnnxRunner | None, feeds: Mapping[str, np.ndarray], budget: float
) -> tuple[_Counts, _Counts | None]:
    """One connection and the file, in alternation, so that a slow moment of the machine hits both."""
    remote, alone = _Counts(), _Counts()
    for _ in range(_ROUNDS):
        part = _closed(exchange, 1, budget / _ROUNDS)
        remote.add(part)
        remote.seconds += part.seconds
        if local is not None:
            _loop(lambda: local.session.run(None, dict(feeds)), budget / _ROUNDS, alone)
    return remote, alone if local is not None else None


def _loop(call: Callable[[], object], seconds: float, counts: _Counts) -> None:
    until = time.perf_counter() + seconds * _WARMUP
    while time.perf_counter() < until:
        call()
    began = now = time.perf_counter()
    while now < began + seconds:
        call()
        then, now = now, time.perf_counter()
        counts.latencies.append(now - then)
    counts.seconds += now - began


def _closed(exchange: Exchange, connections: int, seconds: float) -> _Counts:
    """Every connection sends its next request when it has the answer to the last one."""
    begin = time.perf_counter() + seconds * _WARMUP
    end = begin + seconds

    def work(counts: _Counts) -> None:
        with exchange.connect() as once:
            now = time.perf_counter()
            while now < end:
                status = once()
                then, now = now, time.perf_counter()
                if then >= begin:
                    _count(counts, status, now - then)

    counts = _on_threads(connections, work)
    counts.seconds = seconds
    return counts


def _open_connections(rate: float, first: _Counts) -> int:
    """Enough that a request that is due finds one free, unless the endpoint falls behind."""
    usual = float(np.median(first.latencies)) if first.latencies else 0.01
    return min(64, max(4, int(rate * usual * 4) + 1))


def _open(exchange: Exchange, rate: float, first: _Counts, seconds: float) -> _Counts:
    """Requests are due at random times, `rate` a second; latency counts from when a request is due, so that an
    endpoint that stalls does not hide what it delays.

    Source: Tene 2013, "How not to measure latency" (coordinated omission).
    """
    gaps = np.random.default_rng(0).exponential(1 / rate, max(1, int(rate * seconds)))
    due = (time.perf_counter() + 0.05 + np.cumsum(gaps)).tolist()
    pending: Iterator[float] = iter(due)
    lock = threading.Lock()

    def work(counts: _Counts) -> None:
        with exchange.connect() as once:
            while True:
                with lock:
                    at = next(pending, None)
                if at is None:
                    return
                time.sleep(max(0.0, at - time.perf_counter()))
                status = once()
                _count(counts, status, time.perf_counter() - at)

    counts = _on_threads(_open_connections(rate, first), work)
    counts.seconds = time.perf_counter() - due[0] + float(gaps[0])
    return counts


def _on_threads(number: int, work: Callable[[_Counts], None]) -> _Counts:
    parts = [_Counts() for _ in range(number)]

    def guarded(counts: _Counts) -> None:
        try:
            work(counts)
        except (OSError, InputError):
            counts.errors["none"] += 1

    threads = [threading.Thread(target=guarded, args=(part,), daemon=True) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    whole = _Counts()
    for part in parts:
        whole.add(part)
    return whole


def _count(counts: _Counts, status: int, latency: float) -> None:
    if status == 200:
        counts.latencies.append(latency)
    else:
        counts.errors[str(status)] += 1


def _result(loop: str, connections: int, rate: float | None, counts: _Counts) -> LoadResult:
    points = [0.0] * 5
    with suppress(IndexError):
        points = [float(p) for p in np.percentile(counts.latencies, (50, 90, 99, 99.9, 100))]
    return LoadResult(
        loop,
        connections,
        rate,
        len(counts.latencies) + counts.errors.total(),
        dict(counts.errors),
        counts.seconds,
        len(counts.latencies) / counts.seconds,
        *points,
    )
