"""The models of a server, by name and version, and what happens when their files change."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

import onnx

from onnxtool.benchmark.batching import BatchChoice, choose_batch
from onnxtool.errors import InputError, OnnxToolError
from onnxtool.model.spec import TensorSpec
from onnxtool.options.serve import ServeOptions
from onnxtool.runtime import cpu
from onnxtool.runtime.protocol_v2.tensors import BYTES, tensor_metadata
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.serving.admission import (
    PrivateCopy,
    Signature,
    admit,
    file_signature,
    succeed,
    verify_equal,
    verify_protocol,
    warm_up,
)
from onnxtool.serving.engine import Engine
from onnxtool.serving.faults import HttpError
from onnxtool.serving.logs import Log
from onnxtool.serving.metrics import Metrics
from onnxtool.serving.reload import load_at_rest
from onnxtool.serving.served_model import HAS_WORKERS, LocalModel, ServingRunner, WorkerPool
from onnxtool.serving.targets import ServeTarget


@dataclass(eq=False)
class Served:
    """One version of one model.

    Attributes:
        target: where it is from.
        engine: what runs it.
        copy: the files that it runs from.
        signature: of the file that is loaded.
        refused: of a changed file that was not taken; it is not tried again until it changes once more.
    """

    target: ServeTarget
    engine: Engine
    copy: PrivateCopy
    signature: Signature
    refused: Signature | None = None

    def metadata(self, versions: Sequence[str]) -> dict[str, Any]:
        """As the protocol has it."""
        model = self.engine.model
        return {
            "name": self.target.name,
            "versions": list(versions),
            "platform": "onnxruntime_onnx",
            "inputs": tensor_metadata(model.inputs),
            "outputs": tensor_metadata(model.outputs),
        }

    def configuration(self) -> dict[str, Any]:
        """As Triton's extension has it; with a max_batch_size of 0 all dims are the model's.

        Source: Triton's extension_model_configuration.md, model_config.proto.
        """

        def tensors(specs: Sequence[TensorSpec]) -> list[dict[str, Any]]:
            found = tensor_metadata(specs)
            return [
                {"name": t["name"], "data_type": f"TYPE_{t['datatype']}".replace(BYTES, "STRING"), "dims": t["shape"]}
                for t in found
            ]

        model, group = self.engine.model, {"kind": "KIND_CPU", "count": self.engine.concurrency}
        names = {"name": self.target.name, "platform": "onnxruntime_onnx", "backend": "onnxruntime"}
        ends = {"input": tensors(model.inputs), "output": tensors(model.outputs)}
        return {**names, "max_batch_size": 0, **ends, "instance_group": [group]}

    def statistics(self, metrics: Metrics) -> dict[str, Any]:
        """As Triton's extension has it. Source: Triton's extension_statistics.md."""
        model = {"model": self.target.name, "version": self.target.version}
        found = {result: metrics.total("model_request", **model, result=result) for result in ("success", "fail")}
        found |= {"queue": metrics.total("queue", **model), "compute_infer": metrics.total("inference", **model)}
        runs = {"inference_count": found["success"]["count"], "execution_count": found["compute_infer"]["count"]}
        return {"name": self.target.name, "version": self.target.version, **runs, "inference_stats": found}


class Repository:
    """Loads models, finds them by name and version, and takes changed files in."""

    def __init__(self, options: ServeOptions, metrics: Metrics, log: Log) -> None:
        self._options, self._metrics, self._log = options, metrics, log
        self.models: Mapping[str, Mapping[str, Served]] = {}
        self._lock = Lock()
        self._targets: Sequence[ServeTarget] = ()
        self._refused: dict[ServeTarget, tuple[Signature, str]] = {}
        self._unloaded = set[str]()  # by request
        self._changes = asyncio.Lock()
        self._ends = set[asyncio.Future[None]]()

    def load(self, targets: Sequence[ServeTarget]) -> None:
        """Load models, several at a time. One that cannot be served is told in the log, and left.

        Raises:
            OnnxToolError: none of them can be served; the first one's error.
        """
        self._targets = targets
        if not targets:
            return
        with ThreadPoolExecutor(min(len(targets), cpu.usable_cores())) as threads:
            errors = [error for error in threads.map(self._load, targets) if error is not None]
        if len(errors) == len(targets):
            raise errors[0]

    def _load(self, target: ServeTarget) -> OnnxToolError | None:
        signature = file_signature(target.path)
        try:
            engine, copy, signature = self._loaded(target)
        except OnnxToolError as error:
            self._refused[target] = signature, str(error)
            names = {"model": target.name, "version": target.version}
            self._log.event("model_refused", "error", **names, reason=str(error))
            return error
        self._refused.pop(target, None)
        served = Served(target, engine, copy, signature)
        with self._lock:
            versions = {**self.models.get(target.name, {}), target.version: served}
            self.models = {**self.models, target.name: versions}
        return None

    async def follow(self, targets: Sequence[ServeTarget]) -> None:
        """Serve these: versions that are new are loaded, others are no longer served."""
        async with self._changes:
            self._targets = targets
            wanted = [t for t in targets if t.name not in self._unloaded]
            known = {served.target for served in self.all()}
            for target in wanted:
                if target not in known and file_signature(target.path) != self._refused.get(target, ((), ""))[0]:
                    await self._add(target)
            for served in self.all():
                if served.target not in wanted:
                    self._remove(served)

    async def _add(self, target: ServeTarget) -> OnnxToolError | None:
        error = await asyncio.to_thread(self._load, target)
        if error is None:
            self._log.event("model_added", model=target.name, version=target.version)
        return error

    def _remove(self, served: Served) -> None:
        left = {v: s for v, s in self.models[served.target.name].items() if s is not served}
        self.models = {n: v for n, v in {**self.models, served.target.name: left}.items() if v}
        self._log.event("model_removed", model=served.target.name, version=served.target.version)
        task = asyncio.ensure_future(self.end(served))
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    def index(self) -> list[dict[str, str]]:
        """Every model that was named, as Triton's extension has it. Source: extension_model_repository.md."""
        served, found = {s.target for s in self.all()}, []
        for target in self._targets:
            reason = "unloaded" if target.name in self._unloaded else self._refused.get(target, ((), "loading"))[1]
            state = {"state": "READY"} if target in served else {"state": "UNAVAILABLE", "reason": reason}
            found.append({"name": target.name, "version": target.version, **state})
        return found

    async def load_again(self, name: str) -> None:
        """Serve a model that was unloaded or refused.

        Raises:
            HttpError: 404.
            InputError: it cannot be served.
        """
        async with self._changes:
            targets, served = self._named(name), {s.target for s in self.all()}
            self._unloaded.discard(name)
            for target in targets:
                if target not in served and (error := await self._add(target)) is not None:
                    raise InputError(f"{name!r} cannot be served: {error}")

    async def unload(self, name: str) -> None:
        """Serve a model no more, until it is loaded again; what it has begun is answered.

        Raises:
            HttpError: 404.
        """
        async with self._changes:
            self._named(name)
            self._unloaded.add(name)
            for served in list(self.models.get(name, {}).values()):
                self._remove(served)

    def _named(self, name: str) -> list[ServeTarget]:
        found = [t for t in self._targets if t.name == name]
        if not found:
            raise HttpError(404, "unknown_model", f"no model {name[:100]!r} was named when the server was started.")
        return found

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

    async def replace(self, served: Served) -> Served:
        """Serve what a model's file holds now, if it passes; gives what was served before.

        Raises:
            OnnxToolError: it does not.
        """
        engine, copy, loaded = await asyncio.to_thread(self._replacement, served)
        if served not in self.all():
            engine.close()
            raise InputError("the model is no longer served.")
        old = replace(served)
        served.engine, served.copy, served.signature = engine, copy, loaded
        return old

    async def end(self, old: Served) -> None:
        """Close an engine when the requests that it has begun have ended with it.

        Until then its copy stays: a process that starts anew for one of them loads the model from there.
        """
        while not old.engine.idle:
            await asyncio.sleep(0.05)
        old.engine.close()

    def close(self) -> None:
        """End all models."""
        for served in self.all():
            served.engine.close()

    def _replacement(self, served: Served) -> tuple[Engine, PrivateCopy, Signature]:
        engine, copy, signature = self._loaded(served.target)
        try:
            succeed(served.engine.model, engine.model, served.target.path)
            if self._options.reload == "equal":
                verify_equal(served.copy.path, copy.path, served.target.path, self._options.session)
        except OnnxToolError:
            engine.close()
            raise
        return engine, copy, signature

    def _loaded(self, target: ServeTarget) -> tuple[Engine, PrivateCopy, Signature]:
        copy, signature = load_at_rest(target, lambda: PrivateCopy(target.path))
        with ExitStack() as undone:  # where it fails
            undone.callback(copy.close)
            admit(target.path, copy.path, self._options.session)
            model = self._model(target, copy.path)
            undone.callback(model.close)
            verify_protocol(target.path, model)
            warm_up(model)
            engine = self._engine(target, model, copy.path)
            undone.pop_all()
            return engine, copy, signature

    def _model(self, target: ServeTarget, path: Path) -> ServingRunner:
        if self._options.in_process or not HAS_WORKERS:
            return LocalModel(OnnxRunner.open(path, self._options.session))
        names = {"model": target.name, "version": target.version}

        def died(reason: str) -> None:
            self._metrics.deaths.labels(*names.values()).inc()
            self._log.event("worker_died", "error", **names, reason=reason)

        count = self._options.workers
        session = self._options.session
        if count > 1 and session.threads is None:
            session = replace(session, threads=max(1, cpu.usable_cores() // count))
        return WorkerPool(path, session, count, self._options.limits.run_seconds, died)

    def _engine(self, target: ServeTarget, model: ServingRunner, path: Path) -> Engine:
        concurrency = self._options.workers
        if isinstance(model, LocalModel):
            concurrency = self._options.concurrency or max(1, min(4, cpu.usable_cores()))
        choice = BatchChoice(1, None, "requests are joined with --batching auto alone")
        if self._options.batching == "auto":
            choice = choose_batch(model, onnx.load(path), concurrency=concurrency)
        names = {"model": target.name, "version": target.version}
        self._log.event("batching", **names, max_batch=choice.size, reason=choice.reason)
        return Engine(
            model,
            labels=(target.name, target.version),
            metrics=self._metrics,
            concurrency=concurrency,
            queue=self._options.limits.queue,
            max_batch=choice.size,
        )
