"""The steps of one model: which of them are in the cache, which one is to be run next, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from onnxtool.errors import OnnxToolError, UsageError
from onnxtool.report.build import CandidatePoint, ConstraintVerdict, ModelOutcome, StepOutcome
from onnxtool.workflow.constraints import MeasuredFile, verdicts
from onnxtool.workflow.executors import own_processor
from onnxtool.workflow.instances import Instance
from onnxtool.workflow.keys import Digests, changes, make_task
from onnxtool.workflow.lock import Lock, LockedModel, LockedStep
from onnxtool.workflow.remote import (
    RemoteCache,
    RemoteFiles,
    base_name,
    is_remote,
    publish_remotely,
    published_remotely,
    shown,
)
from onnxtool.workflow.run_step import MODEL, Files, StepResult, StepTask, candidates, find_entry
from onnxtool.workflow.steps import STEPS
from onnxtool.workflow.store import Entry, Store, publish, publish_folder, published


@dataclass
class Lookup:
    """What all models of a build share."""

    root: Path
    store: Store
    lock: Lock
    frozen: bool
    dry_run: bool
    chains: Mapping[str, BuildChain]
    processor: Callable[[tuple[str, ...]], str] = own_processor
    remote_cache: RemoteCache | None = None

    def __post_init__(self) -> None:
        self.digests = Digests()
        self.files = RemoteFiles(self.store.folder)

    def find(self, task: StepTask) -> Entry | None:
        """What a step gave before, from the same ingredients."""
        if task.watched and self.remote_cache is not None:
            self.remote_cache.pull_reads(self.store, task.key)
        return find_entry(task, self._entry, self.store)

    def _entry(self, key: str) -> Entry | None:
        entry = self.store.find(key)
        if entry is None and self.remote_cache is not None:
            return self.remote_cache.pull(self.store, key)
        return entry


class BuildChain:
    """One model of a build. `advance` goes through what is in the cache, `take` accepts the result of a step."""

    def __init__(self, instance: Instance, lookup: Lookup) -> None:
        """Begin before the first step."""
        self.instance, self.lookup = instance, lookup
        self.pending: StepTask | None = None
        self.done = False
        self.finished = False  # every step is there, and the output is in its place
        self.model: Files | None = None
        self.reference: Files | None = None
        self.steps: list[StepOutcome] = []
        self.notes: list[str] = []
        self.error, self.exit_code = "", 0
        self._begun = False
        self._made: list[LockedStep] = []
        self._known = MeasuredFile(0)
        self._candidates: tuple[CandidatePoint, ...] = ()
        self._constraints: tuple[ConstraintVerdict, ...] = ()
        self._files: dict[str, str] = {}
        self._folders: dict[str, Files] = {}  # of steps that give one
        self._state = "unchanged"

    @property
    def blocked(self) -> bool:
        """True while the model that this one begins with is not done."""
        upstream = self.instance.upstream
        return upstream is not None and not self.lookup.chains[upstream].done

    def advance(self) -> StepTask | None:
        """The next step that has to be run; None when there is nothing more to do."""
        self.pending = None
        if not self._begun:
            self._begun = True
            self._begin()
        while not self.done and len(self.steps) < len(self.instance.steps):
            try:
                task = self._task()
                entry = self.lookup.find(task)
                self._hold_to_lock(task, entry)
                if entry is None:
                    self._verify_rest()
            except OnnxToolError as error:
                self._fail(str(error), error.exit_code)
                break
            if entry is None:
                if self.lookup.dry_run:
                    self._stale(task)
                    return None
                self.pending = task
                return task
            self._took(entry, "cached", "")
        if not self.done:
            self._finish()
        return None

    def take(self, result: StepResult) -> None:
        """Accept what came of the step that `advance` gave."""
        task = self.pending
        assert task is not None
        self.pending = None
        if result.entry is None:
            if STEPS[task.command].searches and result.report:
                self._candidates = candidates(result.report, self.instance.constraints)
            self._fail(result.error, result.exit_code)
            return
        if self.lookup.frozen and self._locked_step() != self._as_locked(result.entry):
            self._fail(f"{task.command} gives another result than onnxtool.lock has.", 1)
            return
        if self.lookup.remote_cache is not None:
            try:
                self.lookup.remote_cache.push(self.lookup.store, result.entry, task.key)
            except OnnxToolError as error:
                self.notes.append(f"not in the shared cache: {error}")
        self._took(result.entry, "built", self._why(task))

    def outcome(self) -> ModelOutcome:
        """The model's part of the report."""
        instance, known = self.instance, self._known
        return ModelOutcome(
            name=instance.name,
            state="failed" if self.error else self._state,
            output=shown(instance.output) if self.model is not None or self._files else "",
            sha256=self._files.get(base_name(instance.output), ""),
            bytes=known.bytes,
            ratio=known.ratio,
            seconds=known.seconds,
            drop=known.drop,
            memory=known.memory,
            error=self.error,
            exit_code=self.exit_code,
            steps=tuple(self.steps),
            constraints=self._constraints,
            candidates=self._candidates,
            axes={k: str(v) for k, v in instance.axes.items()},
            tags=instance.tags,
            notes=tuple(self.notes),
        )

    def locked(self) -> LockedModel:
        """The model's part of the lock."""
        return LockedModel(shown(self.instance.output), self._files, self._made)

    def _begin(self) -> None:
        upstream = self.instance.upstream
        if upstream is None:
            return
        other = self.lookup.chains[upstream]
        if other.error:
            self._fail(f"{upstream}, which it begins with, failed.", other.exit_code)
        elif other.model is None:
            if self.lookup.dry_run and other._state == "stale":
                self._state = "stale"
                self._wait()
                self.done = True
            else:
                self._fail(f"{upstream}, which it begins with, has no step that gives a model.", 2)
        else:
            self.model = self.reference = other.model

    def _task(self) -> StepTask:
        instance = self.instance
        files, root = self.lookup.files, self.lookup.root
        step = files.local_step(instance.steps[len(self.steps)], root)
        source = None if instance.source is None else files.local(instance.source, root)
        return make_task(
            instance,
            step,
            self.lookup.root,
            self.lookup.store.folder,
            self.lookup.digests,
            source,
            self.model,
            self.reference,
            source if self.reference is None else None,
            self.lookup.processor,
        )

    def _took(self, entry: Entry, state: str, reason: str) -> None:
        limits = self.instance.constraints
        step = self.instance.steps[len(self.steps)]
        said = step.summary(entry.report)
        if step.searches and limits.any_limit:
            self._candidates = candidates(entry.report, limits)
        if step.produces:
            if entry.files:
                self.model = entry.files
                if step.runs_framework and self.reference is None:
                    self.reference = entry.files
            else:
                said = "the float model is kept: it is within the limits, and no candidate is better"
                self.notes.append(said)
        if step.folder:
            self._folders[str(step.options["output"])] = entry.files
        if entry.files or not step.produces:
            self._known = step.figures(self._known, entry.report)
        self.steps.append(StepOutcome(entry.command, state, reason, entry.key, entry.seconds, said))
        self._made.append(self._as_locked(entry))
        if state == "built":
            self._state = "built"

    def _finish(self) -> None:
        """Hold the result to the limits, and put it in its place."""
        self.done = True
        if self.model is not None:
            self._known = replace(self._known, bytes=sum(f.bytes for f in self.model.values()))
        self._constraints = verdicts(self.instance.constraints, self._known)
        missed = [c for c in self._constraints if not c.kept]
        if missed:
            told = ", ".join(f"{c.name} {_shown(c.value)} > {_shown(c.limit)}" for c in missed)
            self._end(f"misses its limits: {told}.", 1)
            return
        if self._folders or (self.model is not None and self._has_output()):
            try:
                if self._has_output():
                    self._publish()
                self._publish_folders()
            except OnnxToolError as error:
                self._end(" ".join(str(error).split()), error.exit_code)
                return
        self.finished = True

    def _has_output(self) -> bool:
        return any(s.produces for s in self.instance.steps)

    def _publish(self) -> None:
        assert self.model is not None
        lookup = self.lookup
        names = {(base_name(self.instance.output) if n == MODEL else n): f for n, f in self.model.items()}
        self._files = {name: file.sha256 for name, file in names.items()}
        output = self.instance.output
        remote = is_remote(output)
        if published_remotely(output, names) if remote else published(lookup.root, output, names):
            return
        if lookup.dry_run:
            self._state = "stale"
            self.notes.append("the output is not there, or was changed")
            return
        if remote:
            publish_remotely(lookup.store, output, names)
        else:
            publish(lookup.store, lookup.root, output, names)
        self._state = "built"

    def _publish_folders(self) -> None:
        lookup = self.lookup
        for output, files in self._folders.items():
            if published(lookup.root, f"{output}/file", files):
                continue
            if lookup.dry_run:
                self._state = "stale"
                self.notes.append(f"{output} is not there, or was changed")
                continue
            publish_folder(lookup.store, lookup.root / output, files)
            self._state = "built"

    def _verify_rest(self) -> None:
        """Judge the options of all steps to come, before the first of them runs."""
        for step in self.instance.steps[len(self.steps) :]:
            try:
                step.verify()
            except UsageError as error:
                raise UsageError(f"{step.command}: {error}") from error

    def _stale(self, task: StepTask) -> None:
        self._state = "stale"
        self.steps.append(StepOutcome(task.command, "stale", self._why(task), task.key))
        self._wait()
        self.done = True

    def _wait(self) -> None:
        for step in self.instance.steps[len(self.steps) :]:
            self.steps.append(StepOutcome(step.command, "waiting", "what it reads is not built yet"))

    def _fail(self, error: str, code: int) -> None:
        steps = self.instance.steps
        if len(self.steps) < len(steps):
            self.steps.append(StepOutcome(steps[len(self.steps)].command, "failed", error))
        for step in steps[len(self.steps) :]:
            self.steps.append(StepOutcome(step.command, "skipped", "a step before it failed"))
        self._end(error, code)

    def _end(self, error: str, code: int) -> None:
        self.error, self.exit_code, self.done = " ".join(error.split()), code, True

    def _locked_step(self) -> LockedStep | None:
        locked = self.lookup.lock.models.get(self.instance.name)
        at = len(self.steps)
        return locked.steps[at] if locked is not None and at < len(locked.steps) else None

    def _hold_to_lock(self, task: StepTask, entry: Entry | None) -> None:
        """With --frozen: nothing may differ from the lock."""
        if not self.lookup.frozen:
            return
        from onnxtool.errors import VerdictError

        locked = self._locked_step()
        if locked is None:
            raise VerdictError(f"{self.instance.name}: onnxtool.lock does not have this {task.command} step.")
        if locked.uses != dict(task.uses):
            raise VerdictError(f"{task.command} differs from onnxtool.lock: {self._why(task)}.")
        if entry is not None and self._as_locked(entry) != locked:
            raise VerdictError(f"{task.command} differs from onnxtool.lock: a file that its code reads changed.")

    def _as_locked(self, entry: Entry) -> LockedStep:
        made = {name: file.sha256 for name, file in entry.files.items()}
        return LockedStep(entry.command, entry.key, dict(entry.uses), made)

    def _why(self, task: StepTask) -> str:
        """Why a step is stale, from what the lock knows of the last build."""
        locked = self._locked_step()
        if locked is None:
            return "new"
        differing = changes(locked.uses, task.uses)
        if differing == ["libraries"]:
            return "libraries changed: " + ", ".join(self.lookup.lock.changed_versions()[:3])
        if not differing:
            return "a file that its code reads changed" if task.watched else "its result is not in the cache"
        return f"{', '.join(differing[:4])} changed"


def _shown(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"
