"""`check` of several models: files, folders and patterns, one at a time or in worker processes."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onnxtool import progress
from onnxtool.errors import InputError
from onnxtool.lint.check import check_one
from onnxtool.report.check import (
    CheckReport,
    ChecksReport,
    Unreadable,
)


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
            from onnxtool.lint.workers import check_in_workers

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
