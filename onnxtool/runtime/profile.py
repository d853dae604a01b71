"""Time per node and per operator type, from the runtime's own profiler."""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from onnxtool.errors import UsageError
from onnxtool.model.inspect import inspect
from onnxtool.report.profile import NodeTime, OperatorTime, Profile
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session import DEFAULT, SessionOptions

_SUFFIX = "_kernel_time"
_WARMUP = 3


def profile(
    model: Path,
    feeds: Mapping[str, np.ndarray],
    options: SessionOptions = DEFAULT,
    *,
    runs: int = 20,
    trace: Path | None = None,
) -> Profile:
    """Run a model under the profiler.

    Args:
        model: an .onnx file that `read_proto` accepts.
        feeds: its inputs.
        options: how to run it.
        runs: how many runs count.
        trace: where to leave the runtime's events, in the Chrome trace format (chrome://tracing, Perfetto).

    Raises:
        InputError: the model does not load or run.
        UsageError: `trace` cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="onnxtool-") as scratch:
        runner = OnnxRunner.open(model, replace(options, profile_prefix=str(Path(scratch) / "profile")))
        for _ in range(_WARMUP + runs):
            runner.run(feeds)
        written = Path(runner.session.end_profiling())
        events: list[dict[str, Any]] = json.loads(written.read_text(encoding="utf-8", errors="replace"))
        if trace is not None:
            try:
                shutil.copyfile(written, trace)
            except OSError as error:
                raise UsageError(f"--trace {trace}: cannot be written ({error.strerror}).") from error
    return summarise_events(str(model), events, _macs(model, feeds))


def summarise_events(model: str, events: Sequence[Mapping[str, Any]], macs: Mapping[str, int]) -> Profile:
    """Turn the profiler's events into times of nodes and operators.

    Args:
        model: the file, for the report.
        events: kernel events carry the node's name with "_kernel_time", its type and its duration in microseconds.
        macs: multiply-accumulates by node name.
    """
    durations: dict[tuple[str, str], list[float]] = {}
    sizes: dict[tuple[str, str], int] = {}
    for event in events:
        name = str(event.get("name", ""))
        if event.get("cat") != "Node" or not name.endswith(_SUFFIX):
            continue
        arguments = event.get("args", {})
        key = (name.removesuffix(_SUFFIX), str(arguments.get("op_name", "")))
        durations.setdefault(key, []).append(float(event.get("dur", 0)) / 1e6)
        if str(arguments.get("output_size", "")).isdigit():
            sizes[key] = int(arguments["output_size"])
    runs = max((len(d) for d in durations.values()), default=0)
    # A node in a loop's body runs more often than others: its time in one run of the model counts.
    whole = min((len(d) for d in durations.values()), default=0)
    kept = {k: _per_run(d, whole) for k, d in durations.items()}
    total = sum(kept.values())
    nodes = [
        NodeTime(
            node,
            operator,
            seconds,
            seconds / total if total else 0.0,
            macs.get(node.removeprefix("fused ")),
            sizes.get((node, operator)),
        )
        for (node, operator), seconds in kept.items()
    ]
    by_type: dict[str, list[NodeTime]] = {}
    for item in nodes:
        by_type.setdefault(item.operator, []).append(item)
    operators = [
        OperatorTime(op, len(items), sum(i.seconds for i in items), sum(i.share for i in items))
        for op, items in by_type.items()
    ]
    return Profile(
        model=model,
        runs=max(min(runs, whole) - _WARMUP, 0),
        seconds=total,
        nodes=tuple(sorted(nodes, key=lambda n: -n.seconds)),
        operators=tuple(sorted(operators, key=lambda o: -o.seconds)),
    )


def _per_run(durations: Sequence[float], runs: int) -> float:
    """Median time in one run of the model, the first runs left out."""
    repeats = max(1, len(durations) // max(runs, 1))
    sums = [sum(durations[i : i + repeats]) for i in range(0, len(durations) - repeats + 1, repeats)]
    return statistics.median(sums[_WARMUP:] or sums)


def _macs(model: Path, feeds: Mapping[str, np.ndarray]) -> dict[str, int]:
    shapes = [f"{name}:{','.join(map(str, array.shape))}" for name, array in feeds.items() if ":" not in name]
    report = inspect(model, input_shapes=shapes, nodes=True)
    return {node.name: node.macs for node in report.nodes if node.name and node.macs is not None}
