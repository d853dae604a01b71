"""The models of a server, by name and version, and what happens when their files change."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from onnxtool.benchmark.batching import BatchChoice, choose_batch
from onnxtool.options.serve import ServeOptions
from onnxtool.runtime import cpu
from onnxtool.runtime.protocol_v2.tensors import tensor_metadata
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.serving.admission import Signature, admit, succeed, warm_up
from onnxtool.serving.engine import Engine
from onnxtool.serving.faults import HttpError
from onnxtool.serving.logs import Log
from onnxtool.serving.metrics import Metrics
from onnxtool.serving.reload import load_at_rest
from onnxtool.serving.targets import ServeTarget


@dataclass
class Served:
    """One version of one model.

    Attributes:
        target: where it is from.
        engine: what runs it.
        signature: of the file that is loaded.
        refused: of a changed file that was not taken; it is not tried again until it changes once more.
    """

    target: ServeTarget
    engine: Engine
    signature: Signature
    refused: Signature | None = None

    def metadata(self, versions: Sequence[str]) -> dict[str, Any]:
        """As the protocol has it."""
        runner = self.engine.runner
        return {
            "name": self.target.name,
            "versions": list(versions),
            "platform": "onnxruntime_onnx",
            "inputs": tensor_metadata(runner.inputs),
            "outputs": tensor_metadata(runner.outputs),
        }


class Repository:
    """Loads models, finds them by name and version, and takes changed files in."""

    def __init__(self, options: ServeOptions, metrics: Metrics, log: Log) -> None:
        self._options, self._metrics, self._log = options, metrics, log
        self.models: dict[str, dict[str, Served]] = {}

    def load(self, targets: Sequence[ServeTarget]) -> None:
        """Load all models.

        Raises:
            OnnxToolError: one of them cannot be served.
        """
        for target in targets:
            runner, signature = self._admitted(target)
            served = Served(target, self._engine(target, runner), signature)
            self.models.setdefault(target.name, {})[target.version] = served

    def find(self, name: str, version: str | None) -> Served:
        """A model; without a version the highest.

        Raises:
            HttpError: 404.
        """
        versions = self.models.get(name)
        if versions is None:
            known = ", ".join(self.models)
            raise HttpError(404, "unknown_model", f"no model {name[:100]!r} here; there is {known}.")
        if version is None:
            return versions[self.versions(name)[-1]]
        if version not in versions:
            known = ", ".join(versions)
            raise HttpError(404, "unknown_model", f"{name!r} has no version {version[:100]!r}; there is {known}.")
        return versions[version]

    def versions(self, name: str) -> list[str]:
        """The versions of a model in their order, numbers by their value."""
        return sorted(self.models[name], key=lambda v: (v.isdigit(), int(v) if v.isdigit() else 0, v))

    def all(self) -> list[Served]:
        """Every version of every model."""
        return [served for versions in self.models.values() for served in versions.values()]

    async def replace(self, served: Served) -> Engine:
        """Serve what a model's file holds now, if it passes; gives the old engine.

        Raises:
            OnnxToolError: it does not.
        """
        engine, loaded = await asyncio.to_thread(self._replacement, served)
        old, served.engine, served.signature = served.engine, engine, loaded
        return old

    async def end(self, old: Engine) -> None:
        """Close an engine when the requests that it has begun have ended with it."""
        while not old.idle:
            await asyncio.sleep(0.05)
        old.close()

    def _replacement(self, served: Served) -> tuple[Engine, Signature]:
        runner, signature = self._admitted(served.target)
        succeed(served.engine.runner, runner, served.target.path, self._options.reload)
        return self._engine(served.target, runner), signature

    def _admitted(self, target: ServeTarget) -> tuple[OnnxRunner, Signature]:
        return load_at_rest(target, lambda: admit(target.path, self._options.session))

    def _engine(self, target: ServeTarget, runner: OnnxRunner) -> Engine:
        warm_up(runner)
        concurrency = self._options.concurrency or max(1, min(4, cpu.usable_cores()))
        choice = BatchChoice(1, None, "requests are joined with --batching auto alone")
        if self._options.batching == "auto":
            choice = choose_batch(runner, concurrency=concurrency)
        names = {"model": target.name, "version": target.version}
        self._log.event("batching", **names, max_batch=choice.size, reason=choice.reason)
        return Engine(
            runner,
            labels=(target.name, target.version),
            metrics=self._metrics,
            concurrency=concurrency,
            queue=self._options.limits.queue,
            max_batch=choice.size,
        )
