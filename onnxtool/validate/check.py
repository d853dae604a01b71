"""`check`: is it a sound model, and does it run?"""

from __future__ import annotations

import os
from pathlib import Path

from onnxtool.model.header import read_header
from onnxtool.model.io import read_proto, total_bytes
from onnxtool.report.check import CheckReport, Finding, Severity, Stage
from onnxtool.runtime.session import DEFAULT, SessionOptions, provider_name
from onnxtool.validate.check_catalog import rule
from onnxtool.validate.check_stages import examine


def check(
    model: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | None = None,
    seed: int = 0,
    options: SessionOptions = DEFAULT,
    fail_on: Severity = Severity.ERROR,
) -> CheckReport:
    """Check an .onnx file: ONNX checker, strict shape inference, load and run on the embedded runtime.

    Args:
        model: the file.
        data: .npz with inputs for the run; seeded random ones unless given.
        seed: of random inputs.
        options: provider, threads and custom-operator libraries of the run.
        fail_on: the mildest severity that makes the verdict bad.

    Raises:
        InputError: the file is missing, no ONNX model or damaged; or `data` cannot be used.
        UnsafeError: external data outside the model's folder.
        ResourceError: beyond the limits of size, time or memory.
    """
    path = Path(model)
    provider_name(options.provider)
    proto = read_proto(path)
    header = read_header(proto)
    size = total_bytes(path)
    del proto
    outcome = examine(
        str(path),
        provider=options.provider,
        threads=options.threads,
        custom_op_libraries=[str(p) for p in options.custom_op_libraries],
        data=None if data is None else str(data),
        seed=seed,
    )
    findings = [rule(f["id"]).finding(f["message"], f["where"]) for f in outcome["findings"]]
    return CheckReport(
        model=str(path),
        bytes=size,
        ir_version=header.ir_version,
        opsets=header.opsets,
        producer=header.producer,
        inputs=tuple(s.info() for s in header.inputs),
        outputs=tuple(s.info() for s in header.outputs),
        nodes=header.nodes,
        stages=tuple(Stage(**s) for s in outcome["stages"]),
        findings=tuple(sorted(findings, key=_order)),
        fail_on=fail_on,
    )


def _order(finding: Finding) -> tuple[int, str]:
    return finding.severity.rank, finding.id
