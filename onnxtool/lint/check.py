"""`check`: is it a sound model, and does it run?"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnxtool.errors import OnnxToolError, UsageError
from onnxtool.lint.catalog import RULES, rule, selected, static_findings
from onnxtool.lint.stages import examine
from onnxtool.model.file import ModelFile
from onnxtool.model.io.in_memory import ModelLike, takes_models
from onnxtool.report.check import (
    CheckReport,
    Finding,
    RuleInfo,
    RulesReport,
    Severity,
    Unreadable,
)
from onnxtool.runtime.providers.resolve import CPU
from onnxtool.runtime.session.session import DEFAULT, SessionOptions, requested_providers


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
        findings=tuple(sorted((f for f in findings if f.id in wanted), key=_order)),
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


def _order(finding: Finding) -> tuple[int, str]:
    return finding.severity.rank, finding.id
