"""What a server tells of itself: structured logs, metrics for Prometheus, traces by OpenTelemetry.

A log has one JSON object a line, on stderr.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

from onnxtool import __version__
from onnxtool.errors import needs_extra

_MOST_LINES = 10_000  # that wait for a slow reader; more are dropped and counted
_FLUSH_SECONDS = 1.0  # at the end, for a reader that does not read


class Log:
    """Writes events. A reader that stalls or has gone, or a full disk, neither ends nor delays the server."""

    def __init__(self, stream: IO[str] | None = None) -> None:
        self._stream = stream
        self._lines = queue.Queue[str | None](_MOST_LINES)
        self._dropped = 0
        self._writer: threading.Thread | None = None

    def event(self, name: str, level: str = "info", **fields: Any) -> None:
        """One line: time (UTC), level, event and its fields. Texts of strangers stay harmless: JSON escapes them."""
        stream = self._stream or sys.stderr
        if isinstance(stream, io.StringIO):  # cannot stall
            stream.write(_line(name, level, fields))
            return
        if self._writer is None:
            self._writer = threading.Thread(target=self._write, args=(stream,), name="log", daemon=True)
            self._writer.start()
            atexit.register(self.close)
        try:
            if self._dropped:
                self._lines.put_nowait(_line("log_dropped", "warning", {"lines": self._dropped}))
                self._dropped = 0
            self._lines.put_nowait(_line(name, level, fields))
        except queue.Full:
            self._dropped += 1

    def close(self) -> None:
        """Wait a moment for what is not written yet."""
        if self._writer is None or not self._writer.is_alive():
            return
        try:
            self._lines.put(None, timeout=_FLUSH_SECONDS)
        except queue.Full:
            return
        self._writer.join(_FLUSH_SECONDS)

    def _write(self, stream: IO[str]) -> None:
        while (line := self._lines.get()) is not None:
            try:
                stream.write(line)
                if self._lines.empty():
                    stream.flush()
            except (OSError, ValueError):
                pass


def _line(name: str, level: str, fields: dict[str, Any]) -> str:
    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
    return json.dumps({"time": stamp, "level": level, "event": name, **fields}, default=str) + "\n"


_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """The metrics of one server, in a registry of their own."""

    def __init__(self) -> None:
        with needs_extra("serve", "prometheus-client", "serve"):
            from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary
        self.registry = CollectorRegistry()
        own: dict[str, Any] = {"registry": self.registry}
        model = ("model", "version")
        self.request = Histogram(
            "onnxtool_request_duration_seconds",
            "From the headers of a request to the end of its answer.",
            ("route", "status"),
            buckets=_SECONDS,
            **own,
        )
        self.model_request = Histogram(
            "onnxtool_model_request_duration_seconds",
            "Waiting and running of a request, by model.",
            (*model, "result"),
            buckets=_SECONDS,
            **own,
        )
        self.inference = Histogram(
            "onnxtool_inference_duration_seconds", "One run of a model.", model, buckets=_SECONDS, **own
        )
        self.queue = Histogram(
            "onnxtool_queue_duration_seconds", "Waiting for a run to begin.", model, buckets=_SECONDS, **own
        )
        self.compute = Summary(
            "onnxtool_compute_duration_seconds", "The run that has answered a request.", model, **own
        )
        self.executions = Counter("onnxtool_executions", "Runs that gave answers.", model, **own)
        told = "Rows of answered requests; requests, where the first dim of the model is no batch."
        self.inferences = Counter("onnxtool_inferences", told, model, **own)
        self.last_inference = Gauge(
            "onnxtool_last_inference_timestamp_seconds", "When the last request has come.", model, **own
        )
        self.batch = Histogram("onnxtool_batch_size", "Requests in one run.", model, buckets=_SIZES, **own)
        self.waiting = Gauge("onnxtool_queue_length", "Requests that wait for a run.", model, **own)
        self.in_flight = Gauge("onnxtool_requests_in_flight", "Requests that have no answer yet.", **own)
        self.errors = Counter("onnxtool_errors", "Requests that failed, by kind.", ("kind",), **own)
        self.reloads = Counter("onnxtool_reloads", "Changed files, by what became of them.", (*model, "result"), **own)
        self.deaths = Counter("onnxtool_worker_deaths", "Processes of a model that ended in a run.", model, **own)
        self.ready = Gauge("onnxtool_ready", "1 when the server takes requests.", **own)

    def value(self, name: str, **labels: str) -> float:
        """One of them; 0 before it was first set."""
        return self.registry.get_sample_value(f"onnxtool_{name}", labels) or 0.0

    def total(self, name: str, **labels: str) -> dict[str, int]:
        """How often something was timed, and its nanoseconds, as Triton's statistics have it."""
        count, seconds = (self.value(f"{name}_duration_seconds_{part}", **labels) for part in ("count", "sum"))
        return {"count": int(count), "ns": round(1e9 * seconds)}

    def text(self) -> bytes:
        """The metrics as Prometheus reads them."""
        from prometheus_client import generate_latest

        return bytes(generate_latest(self.registry))


EndSpan = Callable[[str, str, int], None]
_EXPORTERS = "opentelemetry_traces_exporter"  # entry points of packages that send traces


class Tracing:
    """Makes a span of each request, below that of its client (header traceparent), and one of its model's run.

    OTEL_TRACES_EXPORTER names exporters (otlp, console), as for any other service; an OTLP endpoint alone means otlp.
    """

    def __init__(self, log: Log) -> None:
        self._tracer: Any = None
        self._provider: Any = None
        endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
        wanted = os.environ.get("OTEL_TRACES_EXPORTER") or ("otlp" if any(map(os.environ.get, endpoints)) else "none")
        if wanted == "none" or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
            return
        try:
            self._begin([name.strip() for name in wanted.split(",")])
        except (ImportError, StopIteration) as error:
            reason = f"traces to {wanted} need opentelemetry-sdk (extra tracing) and that exporter ({error})"
            log.event("not_traced", "warning", reason=reason)

    def _begin(self, exporters: list[str]) -> None:
        from importlib.metadata import entry_points

        from opentelemetry import propagate, trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        named = {"service.version": __version__}
        if not os.environ.get("OTEL_SERVICE_NAME"):
            named["service.name"] = "onnxtool"
        provider = TracerProvider(resource=Resource.create(named))
        for name in exporters:
            exporter = next(iter(entry_points(group=_EXPORTERS, name=name))).load()
            provider.add_span_processor(BatchSpanProcessor(exporter()))
        self._provider, self._trace, self._extract = provider, trace, propagate.extract
        self._tracer = provider.get_tracer("onnxtool.serving", __version__)

    @contextmanager
    def request(self, headers: Mapping[bytes, bytes]) -> Iterator[EndSpan]:
        """The span of a request; what it gives takes the method, the route and the status at its end."""
        if self._tracer is None:
            yield lambda *_: None
            return
        carrier = {key.decode("latin-1"): value.decode("latin-1") for key, value in headers.items()}
        how = {"kind": self._trace.SpanKind.SERVER, "record_exception": False, "set_status_on_exception": False}
        with self._tracer.start_as_current_span("request", self._extract(carrier), **how) as span:

            def end(method: str, route: str, status: int) -> None:
                span.update_name(f"{method} {route}")
                span.set_attributes(
                    {"http.request.method": method, "http.route": route, "http.response.status_code": status}
                )
                if status >= 500:
                    span.set_status(self._trace.StatusCode.ERROR)

            yield end

    @contextmanager
    def run(self, labels: Mapping[str, str]) -> Iterator[None]:
        """The span of waiting for a model and running it."""
        if self._tracer is None:
            yield
            return
        with self._tracer.start_as_current_span(f"run {labels['model']}", attributes=dict(labels)):
            yield

    def close(self) -> None:
        """Send what is not sent yet."""
        if self._provider is not None:
            self._provider.shutdown()
