"""`check`: is it a sound model, and does it run? Of one file, or of many in worker processes."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnxtool import progress
from onnxtool.errors import InputError, OnnxToolError, UsageError
from onnxtool.lint.catalog import RULES, rule, selected, static_findings
from onnxtool.lint.stages import examine
from onnxtool.model.file import ModelFile
from onnxtool.model.io.in_memory import ModelLike, takes_models
from onnxtool.report.check import (
    CheckReport,
    ChecksReport,
    Finding,
    RuleInfo,
    RulesReport,
    Severity,
    Unreadable,
)
from onnxtool.runtime.providers.resolve import CPU
from onnxtool.runtime.session.session import DEFAULT, SessionOptions, requested_providers
from onnxtool.runtime.worker.tasks import TaskPool, TaskProcessEndedError, run_tasks


@takes_models("model")
def check(
    model: ModelLike,
    *,
    data: str | os.PathLike[str] | None = None,
    seed: int = 0,
    options: SessionOptions = DEFAULT,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    fail_on: Severity = Severity.ERROR,
    require_provider: bool = False,
) -> CheckReport:
    """Check an .onnx file: ONNX checker, strict shape inference, load and run on the embedded runtime.

    Args:
        model: an .onnx file, or a model in memory.
        data: .npz with inputs for the run; seeded random ones unless given.
        seed: of random inputs.
        options: provider, threads and custom-operator libraries of the run.
        select: ids ("OT301"), beginnings of ids ("OT3") or families ("performance") to report; all unless given.
        ignore: likewise, what not to report.
        fail_on: the mildest severity that makes the verdict bad.
        require_provider: nodes that do not run on the provider asked for are errors.

    Raises:
        InputError: the file is missing, no ONNX model or damaged; or `data` cannot be used.
        UnsafeError: external data outside the model's folder.
        ResourceError: beyond the limits of size, time or memory.
        UsageError: `select` or `ignore` name nothing.
    """
    file = ModelFile.of(model)
    wanted = selected(select, ignore)
    requested_providers(options)
    stages, findings = examine(file.path, file.proto, options, data=data, seed=seed)
    findings += static_findings(file.view, sound=stages[0].state == "passed")
    if stages[-1].state == "passed" and requested_providers(options) != (CPU,):
        findings += _fallbacks(file, data, seed, options, require_provider)
    header = file.header
    return CheckReport(
        model=str(file),
        bytes=file.bytes,
        ir_version=header.ir_version,
        opsets=header.opsets,
        producer=header.producer,
        inputs=tuple(s.info() for s in header.inputs),
        outputs=tuple(s.info() for s in header.outputs),
        nodes=header.nodes,
        stages=tuple(stages),
        findings=tuple(sorted((f for f in findings if f.id in wanted), key=lambda f: (f.severity.rank, f.id))),
        fail_on=fail_on,
    )


def check_one(path: Path, options: Mapping[str, Any]) -> CheckReport | Unreadable:
    """Check one of several models; raises UsageError as `check`."""
    try:
        return check(path, **options)
    except UsageError:
        raise
    except OnnxToolError as error:
        return Unreadable(str(path), str(error), error.exit_code)


def _fallbacks(
    file: ModelFile, data: str | os.PathLike[str] | None, seed: int, options: SessionOptions, required: bool
) -> list[Finding]:
    """One finding for each operator and reason."""
    from onnxtool.runtime.providers.place import place  # not for every check: it takes as long as the rules

    groups: dict[tuple[str, str, str], list[str]] = {}
    for node in place(file, data=data, seed=seed, options=options).placement.fallbacks:
        groups.setdefault((node.operator, node.provider, node.reason), []).append(node.node)
    severity = Severity.ERROR if required else RULES["OT116"].severity
    return [
        replace(
            RULES["OT116"].finding(
                f"{len(names)} {operator} node{'s' if len(names) > 1 else ''} on {provider}: {reason}", names[0]
            ),
            severity=severity,
        )
        for (operator, provider, reason), names in groups.items()
    ]


def explain(identifiers: Sequence[str]) -> RulesReport:
    """What findings mean: `explain(["OT301"])`; "all" gives every one.

    Raises:
        UsageError: there is no such finding.
    """
    names = list(RULES) if any(i.lower() == "all" for i in identifiers) else identifiers
    rules = [rule(name) for name in names]
    return RulesReport(tuple(RuleInfo(r.id, r.family, r.severity, r.title, r.explanation, r.fix) for r in rules))


def check_all(paths: Sequence[str | os.PathLike[str]], *, jobs: int = 1, **options: Any) -> ChecksReport:
    """Check several models.

    Args:
        paths: files, folders (every .onnx file below) and patterns ("models/*.onnx").
        jobs: how many to check at a time, each in a process of its own; the order of the report stays.
        options: as for `check`.

    Returns:
        One report; a file that cannot be read is told in it and does not end the others.

    Raises:
        InputError: there is no model at all.
        UsageError: as `check`.
    """
    found = find_models(paths)
    with progress.task("checking", len(found)) as task:
        if jobs > 1 and len(found) > 1:
            outcomes = check_in_workers(found, options, min(jobs, len(found)), task.advance)
        else:
            outcomes = []
            for path in found:
                task.describe(f"checking {path.name}")
                outcomes.append(check_one(path, options))
                task.advance()
    return ChecksReport(
        tuple(o for o in outcomes if isinstance(o, CheckReport)),
        tuple(o for o in outcomes if isinstance(o, Unreadable)),
    )


def find_models(paths: Sequence[str | os.PathLike[str]]) -> list[Path]:
    """Files as they are; all .onnx files below a folder; what a pattern fits. Each once, in order.

    Raises:
        InputError: a folder or pattern holds none.
    """
    found: dict[Path, None] = {}
    for given in paths:
        if not os.fspath(given):
            raise InputError("'': a model without a name; a variable may be empty.")
        path = Path(given)
        if path.is_dir():
            hits = sorted(p for p in path.rglob("*.onnx") if p.is_file())
        elif not path.exists() and any(c in str(given) for c in "*?["):
            hits = sorted(Path(p) for p in glob.glob(str(given), recursive=True))
        else:
            hits = [path]
        if not hits:
            raise InputError(f"{given}: there is no .onnx file.")
        found.update(dict.fromkeys(hits))
    return list(found)


Outcome = CheckReport | Unreadable


def check_in_workers(
    paths: Sequence[Path], options: Mapping[str, Any], jobs: int, done: Callable[[], None]
) -> list[Outcome]:
    """Check models in `jobs` processes.

    Args:
        paths: the models.
        options: as for `check`.
        jobs: how many at a time.
        done: called after each model, in no order.

    Returns:
        One outcome for each model, in the order of `paths`. A model that crashes its worker, or takes it over the
        limits, is unreadable, and ends no other.

    Raises:
        UsageError: as `check`.
    """
    workers = TaskPool("onnxtool.lint.check", dict(options), jobs)

    def one(path: Path) -> Outcome:
        try:
            outcome: Outcome | UsageError = workers.run(path)
        except TaskProcessEndedError as error:
            outcome = Unreadable(str(path), str(error), abs(error.code))
        done()
        if isinstance(outcome, UsageError):
            raise outcome
        return outcome

    try:
        return list(workers.threads.map(one, paths))
    finally:
        workers.close()


def _checker(options: Mapping[str, Any]) -> Callable[[Path], Outcome | UsageError]:
    """In a worker: what checks one model."""

    def run(path: Path) -> Outcome | UsageError:
        try:
            return check_one(path, options)
        except UsageError as error:
            return error

    return run


if __name__ == "__main__":
    run_tasks(_checker)
