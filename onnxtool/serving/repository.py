"""The models and bundles of a server, by name and version, and what happens when their files change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import onnx

from onnxtool.errors import InputError, OnnxToolError
from onnxtool.model.spec import TensorSpec
from onnxtool.options.serve import ServeOptions
from onnxtool.runtime import cpu
from onnxtool.runtime.protocol_v2.tensors import BYTES, tensor_metadata
from onnxtool.runtime.runner import OnnxRunner, closing
from onnxtool.runtime.worker.errors import WorkerDiedError
from onnxtool.runtime.worker.worker import Worker
from onnxtool.serving.admission import (
    BundleTexts,
    PrivateCopy,
    Signature,
    admit,
    file_signature,
    remove_lost_copies,
    succeed,
    succeed_bundle,
    verify_equal,
    verify_protocol,
    warm_up,
)
from onnxtool.serving.engine import Engine
from onnxtool.serving.faults import HttpError
from onnxtool.serving.served_model import (
    LocalModel,
    LocalTexts,
    ServingRunner,
    WorkerPool,
    empty_inputs_tried,
    measured_pool,
)
from onnxtool.serving.targets import ServeTarget
from onnxtool.serving.telemetry import Log, Metrics


@dataclass(eq=False)
class Served:
    """One version of one model, or a bundle.

    Attributes:
        target: where it is from.
        engine: what runs it.
        copy: the files that it runs from.
        texts: of a bundle; None for a model.
        users: requests that have found it, and have no answer yet.
    """

    target: ServeTarget
    engine: Engine
    copy: PrivateCopy
    texts: BundleTexts | None
    users: int = 0

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
        """As Triton's extension has it: a count of 0 is of what is not measured here.

        Source: Triton's extension_statistics.md.
        """
        model = self.target.labels
        found = {result: metrics.total("model_request", **model, result=result) for result in ("success", "fail")}
        found |= {"queue": metrics.total("queue", **model), "compute_infer": metrics.total("compute", **model)}
        found |= {name: {"count": 0, "ns": 0} for name in ("compute_input", "compute_output", "cache_hit")}
        return {
            "name": self.target.name,
            "version": self.target.version,
            "last_inference": round(1e3 * metrics.value("last_inference_timestamp_seconds", **model)),
            "inference_count": int(metrics.value("inferences_total", **model)),
            "execution_count": int(metrics.value("executions_total", **model)),
            "inference_stats": found,
        }


@dataclass(eq=False)
class _Slot:
    """What has become of one target; nothing else knows it.

    Attributes:
        target: where it is from.
        served: what answers; None for nothing.
        seen: its files at the last look.
        refused: its files when they were not taken; they are not tried again until they change once more.
        reason: why nothing is served.
        unloaded: a request has asked for that.
        changes: held by who changes it.
    """

    target: ServeTarget
    served: Served | None = None
    seen: Signature = ()
    refused: Signature | None = None
    reason: str = "loading"
    unloaded: bool = False
    changes: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def known(self) -> Signature:
        """The files that are served; none where their copy is gone, without which no process starts anew."""
        return () if self.served is None or not self.served.copy.path.exists() else self.served.copy.signature


class Repository:
    """Loads models and bundles, finds them by name and version, and takes changed files in."""

    def __init__(
        self,
        options: ServeOptions,
        metrics: Metrics,
        log: Log,
        find: Callable[[Sequence[ServeTarget]], Sequence[ServeTarget]],
    ) -> None:
        """Take what models are loaded with; `find` gives what is to be served now, from what was so before."""
        self._options, self._metrics, self._log, self._find = options, metrics, log, find
        self._slots: dict[ServeTarget, _Slot] = {}
        self._ends = set[asyncio.Future[None]]()

    def load(self, targets: Sequence[ServeTarget]) -> None:
        """Load models, several at a time. One that cannot be served is told in the log, and left.

        Raises:
            OnnxToolError: none of them can be served; the first one's error.
        """
        remove_lost_copies()
        self._slots = {target: _Slot(target) for target in targets}
        with ThreadPoolExecutor(max(1, min(len(targets), cpu.usable_cores()))) as threads:
            errors = [error for error in threads.map(self._load, self._slots.values()) if error is not None]
        if errors and len(errors) == len(targets):
            raise errors[0]

    async def watch(self) -> None:
        """Look at the files until cancelled; what is at rest between two looks is taken in."""
        while True:
            await asyncio.sleep(self._options.reload_seconds)
            for slot, now in (await self._look()).items():
                if now and now == slot.seen and now not in (slot.known, slot.refused) and not slot.unloaded:
                    await self._take(slot)
                slot.seen = now

    async def _look(self, name: str | None = None) -> dict[_Slot, Signature]:
        """What is to be served now, of one name or of all, with its files; what is so no longer is removed."""

        def find(last: Sequence[ServeTarget]) -> dict[ServeTarget, Signature]:
            return {target: file_signature(target.path) for target in self._find(last) if name in (None, target.name)}

        seen = await asyncio.to_thread(find, list(self._slots))
        for target in [t for t in self._slots if name in (None, t.name) and t not in seen]:
            self._remove(self._slots.pop(target))
        return {self._slots.setdefault(target, _Slot(target)): now for target, now in seen.items()}

    async def _take(self, slot: _Slot) -> OnnxToolError | None:
        """Serve what the files of a slot hold now, if it passes; else what was served before."""
        async with slot.changes:
            if slot.unloaded:
                return None
            old, names = slot.served, slot.target.labels
            error = await asyncio.to_thread(self._load, slot)
            if self._slots.get(slot.target) is not slot:  # no longer there
                self._remove(slot)
            elif old is None and error is None:
                self._log.event("model_added", **names)
            elif old is not None:
                self._metrics.reloads.labels(*names.values(), "taken" if error is None else "refused").inc()
            if old is not None and error is None:
                self._log.event("reloaded", **names, path=str(slot.target.path))
                self._end(old)
            return error

    def _load(self, slot: _Slot) -> OnnxToolError | None:
        """Load what there is now, hold it against what is served, and serve it."""
        before, old = file_signature(slot.target.path), slot.served
        try:
            try:
                slot.served = self._loaded(slot.target, old)
            except WorkerDiedError:  # `check` has run the model: somebody else may have ended its process
                slot.served = self._loaded(slot.target, old)
        except Exception as error:
            told = isinstance(error, OnnxToolError)
            slot.refused, slot.reason = before, str(error) if told else f"{type(error).__name__}: {error}"
            event = ("model_refused", "error") if old is None else ("reload_refused", "warning")
            self._log.event(*event, **slot.target.labels, reason=slot.reason)
            return error if isinstance(error, OnnxToolError) else OnnxToolError(slot.reason)
        slot.refused = None
        return None

    def _remove(self, slot: _Slot) -> None:
        if slot.served is not None:
            self._log.event("model_removed", **slot.target.labels)
            self._end(slot.served)
            slot.served = None

    def statistics(self, name: str | None = None, version: str | None = None) -> list[dict[str, Any]]:
        """Those of one version, of all versions of a model, or of all models; errors as of `use`."""
        if name is not None:
            self.find(name, version)
        wanted = [s for s in self.all() if name in (None, s.target.name) and version in (None, s.target.version)]
        return [s.statistics(self._metrics) for s in wanted]

    def index(self, *, ready: bool) -> list[dict[str, str]]:
        """Every model that was named, or those that are ready, as Triton's extension has it.

        Source: extension_model_repository.md.
        """
        found = []
        for slot in self._slots.values():
            state = {"state": "READY"}
            if slot.served is None:
                state = {"state": "UNAVAILABLE", "reason": "unloaded" if slot.unloaded else slot.reason}
            found.append({"name": slot.target.name, "version": slot.target.version, **state})
        return [entry for entry in found if not ready or entry["state"] == "READY"]

    async def load_again(self, name: str) -> None:
        """Serve what the files of a model hold now, also if it was unloaded or refused.

        Raises:
            HttpError: 404.
            InputError: it cannot be served.
        """
        self._named(name)
        for slot, now in (await self._look(name)).items():
            slot.unloaded = False
            if slot.served is None or slot.known != now:
                error = await self._take(slot)
                if error is not None:
                    raise InputError(f"{name!r} cannot be served: {error}")

    async def unload(self, name: str) -> None:
        """Serve a model no more, until it is loaded again; what it has begun is answered.

        Raises:
            HttpError: 404.
        """
        for slot in self._named(name):
            slot.unloaded = True
            async with slot.changes:
                if slot.unloaded:
                    self._remove(slot)

    def _named(self, name: str) -> list[_Slot]:
        found = [slot for target, slot in self._slots.items() if target.name == name]
        if not found:
            raise HttpError(404, "unknown_model", f"no model {name[:100]!r} was named when the server was started.")
        return found

    @contextmanager
    def use(self, name: str | None, version: str | None = None, *, texts: bool = False) -> Iterator[Served]:
        """What answers a request: it is not ended before that.

        Args:
            name: of the model; None for the only one.
            version: the highest where there is none.
            texts: it is a bundle.

        Raises:
            HttpError: 404.
        """
        served = self.find(name, version, texts=texts)
        served.users += 1
        try:
            yield served
        finally:
            served.users -= 1

    def find(self, name: str | None, version: str | None = None, *, texts: bool = False) -> Served:
        """As of `use`, for the moment."""
        there = self.all(texts=texts)
        names = dict.fromkeys(served.target.name for served in there)
        if name is None and len(names) == 1:
            (name,) = names
        found = {served.target.version: served for served in there if served.target.name == name}
        if not found:
            told = "several models here" if name is None else f"no model {name[:100]!r} here"
            told = f"{told}; there is {', '.join(names)}." if names else "no model is served now."
            raise HttpError(404, "unknown_model", told, param="model")
        if version is None:
            return found[_ordered(found)[-1]]
        if version not in found:
            known = ", ".join(found)
            raise HttpError(404, "unknown_model", f"{name!r} has no version {version[:100]!r}; there is {known}.")
        return found[version]

    def versions(self, *, texts: bool = False) -> dict[str, list[str]]:
        """The models that are served, each with its versions in their order, numbers by their value."""
        found: dict[str, list[str]] = {}
        for served in self.all(texts=texts):
            found.setdefault(served.target.name, []).append(served.target.version)
        return {name: _ordered(versions) for name, versions in found.items()}

    def all(self, *, texts: bool = False) -> list[Served]:
        """Every version of every model, or of every bundle."""
        there = [slot.served for slot in self._slots.values() if slot.served is not None]
        return [served for served in there if (served.texts is not None) == texts]

    def _end(self, served: Served) -> None:
        """Close an engine when the requests that it has begun have ended with it.

        Until then its copy stays: a process that starts anew for one of them loads the model from there.
        """

        async def end() -> None:
            while served.users or not served.engine.idle:
                await asyncio.sleep(0.05)
            served.engine.close()
            served.copy.close()

        task = asyncio.ensure_future(end())
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    def close(self) -> None:
        """End all models."""
        for slot in self._slots.values():
            if slot.served is not None:
                slot.served.engine.close()
                slot.served.copy.close()

    def _loaded(self, target: ServeTarget, old: Served | None) -> Served:
        """Load a model from a copy of its files, and hold it against the one that it is to replace.

        Raises:
            OnnxToolError: it is not to be served.
        """
        options = target.options or self._options
        with ExitStack() as undone:  # where it fails
            copy = PrivateCopy(target.path)
            undone.callback(copy.close)
            texts = BundleTexts(copy.path) if target.is_bundle else None
            admit(target.path, copy.path, options.session)
            model = self._model(target, copy, texts, options)
            undone.callback(model.close)
            if texts is None:
                verify_protocol(target.path, model)
                warm_up(model, options.warm_up)
            if old is not None:
                succeed(old.engine.model, model, target.path)
                if texts is not None and old.texts is not None:
                    succeed_bundle(old.texts, texts, target.path, options.reload)
                if options.reload == "equal" and copy.signature != old.copy.signature:
                    verify_equal(old.copy.path, copy.path, target.path, options.session)
            engine = self._engine(target, model, copy, texts, options)
            undone.pop_all()
            return Served(target, engine, copy, texts)

    def _model(
        self, target: ServeTarget, copy: PrivateCopy, texts: BundleTexts | None, options: ServeOptions
    ) -> ServingRunner:
        session = options.session
        if options.in_process:
            if texts is not None:
                return LocalTexts(copy.path, session)
            with closing(worker := Worker(copy.path, session)):
                taken, _ = empty_inputs_tried(worker)
            return LocalModel(OnnxRunner.open(copy.path, session), taken)
        names = target.labels

        def died(reason: str) -> None:
            self._metrics.deaths.labels(*names.values()).inc()
            self._log.event("worker_died", "error", **names, reason=reason)

        kind: dict[str, Any] = {}
        if texts is not None:
            from onnxtool.generation.text_process import MODULE, text_bytes

            kind = {"module": MODULE, "memory_bytes": text_bytes(texts.bundle)}

        def pool(count: int) -> WorkerPool:
            threads = max(1, cpu.usable_cores() // count) if count > 1 and session.threads is None else session.threads
            seconds = options.limits.run_seconds
            return WorkerPool(copy.path, replace(session, threads=threads), count, seconds, died, **kind)

        if options.workers is not None or texts is not None:
            return pool(options.workers or 1)
        found, gain = measured_pool(pool, cpu.usable_cores())
        self._log.event("workers", **names, count=found.count, gain=gain)
        return found

    def _engine(
        self,
        target: ServeTarget,
        model: ServingRunner,
        copy: PrivateCopy,
        texts: BundleTexts | None,
        options: ServeOptions,
    ) -> Engine:
        concurrency = model.count if isinstance(model, WorkerPool) else 1
        if isinstance(model, LocalModel) and texts is None:
            concurrency = options.concurrency or max(1, min(4, cpu.usable_cores()))
        size, reason = 1, "requests are joined with --batching auto alone"
        if options.batching == "auto" and texts is None:
            from onnxtool.benchmark.batching import choose_batch

            choice = choose_batch(model, onnx.load(copy.path), concurrency=concurrency)
            size, reason = choice.size, choice.reason
        self._log.event("batching", **target.labels, max_batch=size, reason=reason)
        return Engine(
            model,
            labels=(target.name, target.version),
            metrics=self._metrics,
            concurrency=concurrency,
            queue=options.limits.queue,
            max_batch=size,
            max_delay=options.max_delay,
        )


def _ordered(versions: Mapping[str, object] | Sequence[str]) -> list[str]:
    return sorted(versions, key=lambda v: (v.isdigit(), int(v) if v.isdigit() else 0, v))
