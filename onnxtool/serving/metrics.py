"""What a server counts and times, in Prometheus's form."""

from __future__ import annotations

from typing import Any

from onnxtool.errors import MissingExtraError

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """The metrics of one server, in a registry of their own."""

    def __init__(self) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
        except ImportError as error:
            raise MissingExtraError("serve", "prometheus-client", "serve") from error
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
        self.batch = Histogram("onnxtool_batch_size", "Requests in one run.", model, buckets=_SIZES, **own)
        self.waiting = Gauge("onnxtool_queue_length", "Requests that wait for a run.", model, **own)
        self.in_flight = Gauge("onnxtool_requests_in_flight", "Requests that have no answer yet.", **own)
        self.errors = Counter("onnxtool_errors", "Requests that failed, by kind.", ("kind",), **own)
        self.reloads = Counter("onnxtool_reloads", "Changed files, by what became of them.", (*model, "result"), **own)
        self.deaths = Counter("onnxtool_worker_deaths", "Processes of a model that ended in a run.", model, **own)
        self.ready = Gauge("onnxtool_ready", "1 when the server takes requests.", **own)

    def total(self, name: str, **labels: str) -> dict[str, int]:
        """How often something was timed, and its nanoseconds, as Triton's statistics have it."""
        count, seconds = (
            self.registry.get_sample_value(f"onnxtool_{name}_duration_seconds_{part}", labels) or 0.0
            for part in ("count", "sum")
        )
        return {"count": int(count), "ns": round(1e9 * seconds)}

    def text(self) -> bytes:
        """The metrics as Prometheus reads them."""
        from prometheus_client import generate_latest

        return bytes(generate_latest(self.registry))
