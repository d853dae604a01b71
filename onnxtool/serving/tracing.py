"""Traces of requests by OpenTelemetry, where its SDK is installed and its environment variables ask for them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from onnxtool import __version__
from onnxtool.serving.logs import Log

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
