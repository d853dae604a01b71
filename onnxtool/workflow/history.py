"""The builds of a file: one line for each, in the cache's folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from onnxtool.model.io.atomic import write_atomic
from onnxtool.report.build import BuildHistoryReport, BuildReport, PastBuild
from onnxtool.workflow.digests import text_digest
from onnxtool.workflow.store import Store

_MOST = 1000  # builds that are kept


def record(store: Store, file: Path, report: BuildReport) -> None:
    """Add a build; a history that cannot be written ends no build."""
    line = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "ok": report.ok,
        "built": report.count("built"),
        "cached": report.count("cached"),
        "failed": sum(m.state == "failed" for m in report.models),
        "seconds": round(report.seconds, 3),
        "outputs": {m.name: [m.sha256, m.bytes, m.seconds] for m in report.models if m.sha256},
    }
    path = _path(store, file)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a", encoding="utf-8") as lines:
            lines.write(json.dumps(line, sort_keys=True) + "\n")
        _shorten(path)


def read_history(store: Store, file: Path) -> BuildHistoryReport:
    """All builds of a file that are remembered, the latest last."""
    return BuildHistoryReport(file.name, tuple(_builds(_path(store, file))))


def _builds(path: Path) -> Iterator[PastBuild]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        with suppress(ValueError, TypeError, KeyError):  # a line that was cut off
            entry = json.loads(line)
            outputs = {name: (str(v[0]), int(v[1]), v[2]) for name, v in entry.pop("outputs").items()}
            yield PastBuild(outputs=outputs, **entry)


def _shorten(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    if len(lines) > 2 * _MOST:
        write_atomic(path, "".join(lines[-_MOST:]).encode())


def _path(store: Store, file: Path) -> Path:
    return store.folder / "history" / f"{text_digest(str(file.resolve()))[:24]}.jsonl"
