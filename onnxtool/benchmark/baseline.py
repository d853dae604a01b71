"""Hold a measurement against an earlier one: has anything got slower?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from onnxtool.errors import InputError
from onnxtool.model.json_file import read_json
from onnxtool.report.measurement.bench import BenchReport, Latency

_SCHEMA = "onnxtool/bench/"


def against_baseline(report: BenchReport, baseline: Path, max_regression: float) -> BenchReport:
    """The report with what got slower than the baseline allows.

    A setting (model file name, batch, threads) has regressed when its median is more than `max_regression` above the
    baseline's and the two intervals of the medians do not overlap: a busy moment alone is not a regression.

    Args:
        report: the new measurement.
        baseline: what `bench --json FILE` wrote before.
        max_regression: 0.05 allows 5 % more.

    Raises:
        InputError: the file is not a bench report, or has nothing in common with `report`.
    """
    old = _read(baseline)
    known = {_key(item): item for item in old["latencies"]}
    regressions, warnings, met = [], list(report.warnings), 0
    if old.get("cpu") != report.cpu:
        warnings.append(f"the baseline was measured on another processor ({old.get('cpu')}): times do not compare")
    for item in report.latencies:
        before = known.get((Path(item.model).name, item.batch, item.threads))
        if before is None:
            continue
        met += 1
        change = item.median / before["median"] - 1
        if change > max_regression and item.low > before["high"]:
            regressions.append(_told(item, before["median"], change, max_regression))
    if not met:
        raise InputError(f"{baseline}: has none of these models at these batch sizes and threads.")
    return replace(report, regressions=tuple(regressions), warnings=tuple(warnings))


def _told(item: Latency, before: float, change: float, limit: float) -> str:
    setting = f"batch {item.batch}, {item.threads or 'all'} threads"
    return (
        f"{Path(item.model).name} ({setting}): {before * 1e3:.3g} ms before, {item.median * 1e3:.3g} ms now, "
        f"{change:+.1%} where {limit:.1%} is allowed"
    )


def _key(item: dict[str, Any]) -> tuple[str, int, int | None]:
    return Path(item["model"]).name, item["batch"], item["threads"]


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise InputError(f"{path}: no such file. Make one with: onnxtool bench MODEL --json {path}")
    data = read_json(path)
    if not str(data.get("schema", "")).startswith(_SCHEMA):
        raise InputError(f"{path}: is not a report of onnxtool bench.")
    needed = {"model", "batch", "threads", "median", "high"}
    items = data.get("latencies")
    if not isinstance(items, list) or not all(isinstance(i, dict) and needed <= i.keys() for i in items):
        raise InputError(f"{path}: the report of onnxtool bench is damaged.")
    return data
