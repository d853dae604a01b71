"""Time per node and per operator type, from the runtime's own profiler; and what the machine reaches at best."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxtool.errors import OnnxToolError, UsageError
from onnxtool.model.file import ModelFile
from onnxtool.model.inspect import inspect
from onnxtool.model.operators.table import lookup
from onnxtool.report.measurement.profile import NodeTime, OperatorTime, Peaks, Profile
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import DEFAULT, SessionOptions
from onnxtool.runtime.timing.node_costs import Key, NodeCost, event_key, node_costs, profiled_events

# Runs of less than a millisecond: on a busy machine one of them is left alone.
_ROWS, _WIDTH = 256, 512
# 32 MB in and 32 MB out: beyond the caches of most machines.
_ELEMENTS = 1 << 23
_SECONDS, _FEWEST = 0.25, 5


def measure_peaks(options: SessionOptions = DEFAULT) -> Peaks:
    """Measure a large float32 product and a large copy, about half a second in all.

    Args:
        options: provider and threads as for the model that is held against them.

    Source: Williams, Waterman, Patterson 2009, "Roofline: an insightful visual performance model".
    """
    plain = replace(options, spinning="always", profile_prefix=None, optimized_path=None, custom_op_libraries=())
    generator = np.random.default_rng(0)
    weight = numpy_helper.from_array(generator.standard_normal((_WIDTH, _WIDTH), np.float32), "w")
    product = _best("MatMul", ["x", "w"], [weight], generator.standard_normal((_ROWS, _WIDTH), np.float32), plain)
    copy = _best("Neg", ["x"], [], np.ones(_ELEMENTS, np.float32), plain)
    return Peaks(2 * _ROWS * _WIDTH * _WIDTH / product / 1e9, 2 * 4 * _ELEMENTS / copy / 1e9)


def _best(
    operator: str, inputs: list[str], weights: list[TensorProto], x: np.ndarray, options: SessionOptions
) -> float:
    """Seconds of the fastest run."""
    dims = list(x.shape)
    graph = helper.make_graph(
        [helper.make_node(operator, inputs, ["y"])],
        "peak",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, dims)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = OnnxRunner.open(model, options).session
    feeds: Mapping[str, np.ndarray] = {"x": x}
    best, began, runs = np.inf, time.perf_counter(), 0
    while runs < _FEWEST or time.perf_counter() - began < _SECONDS:
        start = time.perf_counter()
        session.run(None, feeds)
        best = min(best, time.perf_counter() - start)
        runs += 1
    return float(best)


_WARMUP = 3
# The runtime writes its own graph as one protobuf message, which cannot be larger than 2 GB.
_LARGEST = 1_800_000_000


def profile(
    model: str | os.PathLike[str],
    feeds: Mapping[str, np.ndarray],
    options: SessionOptions = DEFAULT,
    *,
    runs: int = 20,
    trace: Path | None = None,
    peaks: Peaks | None = None,
) -> Profile:
    """Run a model under the profiler.

    Args:
        model: an .onnx file that `read_proto` accepts.
        feeds: its inputs.
        options: how to run it.
        runs: how many runs count.
        trace: where to leave the runtime's events, in the Chrome trace format (chrome://tracing, Perfetto), with the
            original nodes, operations and bytes of each.
        peaks: of the machine, to tell what limits each node.

    Raises:
        InputError: the model does not load or run.
        UsageError: `trace` cannot be written.
    """
    file = ModelFile.of(model)
    options = replace(options, spinning="always")
    with tempfile.TemporaryDirectory(prefix="onnxtool-") as scratch:
        graph = Path(scratch) / "graph.onnx" if file.bytes < _LARGEST else None
        prefix = str(Path(scratch) / "profile")
        try:
            runner = OnnxRunner.open(file, replace(options, profile_prefix=prefix, optimized_path=graph))
        except OnnxToolError as error:
            if "compiled nodes" not in str(error):
                raise
            runner = OnnxRunner.open(file, replace(options, profile_prefix=prefix))  # it has no graph to write
        for _ in range(_WARMUP + runs):
            runner.run(feeds)
        events = profiled_events(runner.session)
        run = onnx.load(graph, load_external_data=False) if graph is not None and graph.exists() else None
    costs = {} if run is None else node_costs(file.proto, run, events, feeds, macs_by_label(file, feeds))
    if trace is not None:
        _write_trace(trace, events, costs)
    return summarise_events(str(file), events, costs, peaks)


def summarise_events(
    model: str, events: Sequence[Mapping[str, Any]], costs: Mapping[Key, NodeCost], peaks: Peaks | None = None
) -> Profile:
    """Turn the profiler's events into times of nodes and operators.

    Args:
        model: the file, for the report.
        events: kernel events carry the node's name with "_kernel_time", its type and its duration in microseconds.
        costs: what each node computes and moves, as far as known.
        peaks: of the machine.
    """
    durations: dict[Key, list[float]] = {}
    sizes: dict[Key, int] = {}
    inside = _inside(events)
    for event in events:
        key = event_key(event)
        if key is None:
            continue
        durations.setdefault(key, []).append((float(event.get("dur", 0)) - inside.get(id(event), 0.0)) / 1e6)
        size = str(event.get("args", {}).get("output_size", ""))
        if size.isdigit():
            sizes[key] = int(size)
    runs = max((len(d) for d in durations.values()), default=0)
    # A node in a loop's body runs more often than others: its time in one run of the model counts.
    whole = min((len(d) for d in durations.values()), default=0)
    kept = {k: _per_run(d, whole) for k, d in durations.items()}
    total = sum(kept.values())
    nodes = [
        _node_time(key, seconds, total, max(len(durations[key]) // max(whole, 1), 1), costs, sizes.get(key), peaks)
        for key, seconds in kept.items()
    ]
    by_type: dict[str, list[NodeTime]] = {}
    for item in nodes:
        by_type.setdefault(item.operator, []).append(item)
    return Profile(
        model=model,
        runs=max(min(runs, whole) - _WARMUP, 0),
        seconds=total,
        nodes=tuple(sorted(nodes, key=lambda n: -n.seconds)),
        operators=tuple(sorted((_operator(o, n) for o, n in by_type.items()), key=lambda o: -o.seconds)),
        peaks=peaks,
    )


def _inside(events: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """Microseconds of an event that belong to other nodes: those of the graphs inside an If, Loop or Scan."""
    found: dict[int, float] = {}
    open_: list[Mapping[str, Any]] = []
    kernels = [e for e in events if event_key(e) is not None and "ts" in e]
    for event in sorted(kernels, key=lambda e: (float(e["ts"]), -float(e.get("dur", 0)))):
        while open_ and float(event["ts"]) >= float(open_[-1]["ts"]) + float(open_[-1].get("dur", 0)):
            open_.pop()
        if open_:
            found[id(open_[-1])] = found.get(id(open_[-1]), 0.0) + float(event.get("dur", 0))
        if lookup(str(event.get("args", {}).get("op_name", ""))).has_bodies:
            open_.append(event)
    return found


def _node_time(
    key: Key,
    seconds: float,
    total: float,
    turns: int,
    costs: Mapping[Key, NodeCost],
    output_bytes: int | None,
    peaks: Peaks | None,
) -> NodeTime:
    """One node; `turns` is how often it runs in one run of the model."""
    cost = costs.get(key, NodeCost())
    flops = None if cost.flops is None else cost.flops * turns
    moved = None if cost.bytes is None else cost.bytes * turns
    bound, attained = _roof(flops, moved, seconds, peaks)
    return NodeTime(
        node=key[0],
        operator=key[1],
        seconds=seconds,
        share=seconds / total if total else 0.0,
        macs=None if cost.macs is None else cost.macs * turns,
        output_bytes=output_bytes,
        originals=cost.originals,
        flops=flops,
        bytes=moved,
        bound=bound,
        attained=attained,
    )


def _roof(flops: int | None, moved: int | None, seconds: float, peaks: Peaks | None) -> tuple[str, float | None]:
    """Which peak limits a node, and how near it came."""
    if peaks is None or moved is None or seconds <= 0:
        return "", None
    computing, moving = (flops or 0) / (peaks.gflops * 1e9), moved / (peaks.gbs * 1e9)
    return ("compute" if computing > moving else "memory"), max(computing, moving) / seconds


def _operator(operator: str, nodes: Sequence[NodeTime]) -> OperatorTime:
    flops = [n.flops for n in nodes if n.flops is not None]
    moved = [n.bytes for n in nodes if n.bytes is not None]
    return OperatorTime(
        operator=operator,
        nodes=len(nodes),
        seconds=sum(n.seconds for n in nodes),
        share=sum(n.share for n in nodes),
        flops=sum(flops) if flops else None,
        bytes=sum(moved) if moved else None,
    )


def _write_trace(path: Path, events: Sequence[dict[str, Any]], costs: Mapping[Key, NodeCost]) -> None:
    """The runtime's events, with what is known of each node among its arguments."""
    for event in events:
        key = event_key(event)
        if key is not None and key in costs:
            cost = costs[key]
            event["args"] |= {"original_nodes": list(cost.originals), "flops": cost.flops, "bytes": cost.bytes}
    try:
        path.write_text(json.dumps(events), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--trace {path}: cannot be written ({error.strerror}).") from error


def _per_run(durations: Sequence[float], runs: int) -> float:
    """Median time in one run of the model, the first runs left out."""
    repeats = max(1, len(durations) // max(runs, 1))
    sums = [sum(durations[i : i + repeats]) for i in range(0, len(durations) - repeats + 1, repeats)]
    return statistics.median(sums[_WARMUP:] or sums)


def macs_by_label(model: ModelFile, feeds: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Multiply-accumulates of the file's nodes by their labels."""
    shapes = [f"{name}:{','.join(map(str, array.shape))}" for name, array in feeds.items() if ":" not in name]
    report = inspect(model, input_shapes=shapes, nodes=True)
    return {n.name or next(filter(None, n.outputs), ""): n.macs for n in report.nodes if n.macs is not None}
