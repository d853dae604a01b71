"""Execution providers on real models: the same answer, the fastest setting, every node placed.

    python benchmarks/providers.py MODEL_OR_FOLDER... [--provider NAME ...] [--threads 1,2] [--budget 1]
                                   [--ep-library FILE]

A folder is searched for .onnx files; a calib.npz beside a model gives its inputs. For each model: the matrix of `bench`
(the CPU's default, each provider with its defaults and, where it has the option, in full precision), the placement on
each provider, and whether a silent change of precision was named. The truth of the latter is measured apart from the
tool: outputs with the provider's defaults against outputs of the same provider in full precision.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from onnxtool.benchmark.bench import bench_feeds
from onnxtool.benchmark.matrix import bench_matrix
from onnxtool.errors import OnnxToolError
from onnxtool.model import io
from onnxtool.report.measurement.bench import BenchMatrixReport
from onnxtool.runtime.data.read_feeds import read_feeds
from onnxtool.runtime.feeds import flatten
from onnxtool.runtime.providers.known import FULL_PRECISION
from onnxtool.runtime.providers.placement import placement
from onnxtool.runtime.providers.spec import parse_provider, short_name
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.fused_node_names import all_nodes
from onnxtool.runtime.session.session import SessionOptions

_STATES = {"runs", "compiled", "fused", "folded", "unused"}
# Two answers of one provider are of different precision when they are further apart than float32 sums can be.
_REDUCED = 3e-5


def models(paths: list[Path]) -> Iterator[Path]:
    """The .onnx files."""
    for path in paths:
        yield from sorted(path.rglob("*.onnx")) if path.is_dir() else [path]


def main() -> None:
    """Print a table in Markdown, and the totals."""
    parser = argparse.ArgumentParser()
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--provider", action="append")
    parser.add_argument("--ep-library", action="append", default=[])
    parser.add_argument("--threads", default="")
    parser.add_argument("--budget", type=float, default=1.0)
    parser.add_argument("--alone", action="store_true", help="one model, in this process; totals as JSON at the end")
    arguments = parser.parse_args()
    if arguments.alone:
        threads = tuple(int(t) for t in arguments.threads.split(",") if t)
        options = SessionOptions(ep_libraries=tuple(arguments.ep_library))
        totals: Counter[str] = Counter()
        try:
            one(arguments.paths[0], arguments.provider or ["openvino"], threads, arguments.budget, options, totals)
        except OnnxToolError as error:
            print(f"| {name_of(arguments.paths[0])} | {str(error)[:120]} | | | | | | | |")
        print(json.dumps(totals))
        return
    print("| model | setting | load ms | MB | error | latency ms | ratio [95 %] | outputs | precision |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    whole: Counter[str] = Counter()
    rest = [a for a in sys.argv[1:] if a not in map(str, arguments.paths)]
    for path in models(arguments.paths):
        command = [sys.executable, __file__, str(path), "--alone", *rest]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        *rows, last = done.stdout.splitlines() or ["{}"]
        if not last.startswith("{"):  # it crashed before it was done; a crash at its very end loses nothing
            rows, last = [f"| {name_of(path)} | the process ended with {done.returncode} | | | | | | | |"], "{}"
        print("\n".join(rows), flush=True)
        whole.update(json.loads(last))
    print(f"\n{whole['models']} models: the choice is at least 1.2 times as fast on {whole['faster']}, ", end="")
    print(f"slower than the CPU's default (interval) on {whole['slower']}; ", end="")
    print(f"silent changes of precision: {whole['named']} of {whole['reduced']} named, {whole['false']} false alarms; ")
    print(f"nodes accounted for: {whole['nodes'] - whole['lost']} of {whole['nodes']}")


def one(
    path: Path, providers: list[str], threads: tuple[int, ...], budget: float, options: SessionOptions, totals: Any
) -> None:
    """One model: its rows, and what they add to the totals."""
    candidates = [text for p in providers for text in (p, exact(p)) if text is not None]
    data = path.with_name("calib.npz")
    given = data if data.exists() else None
    report = bench_matrix(path, candidates, data=given, threads=threads, budget=budget, options=options)
    for row in report.rows:
        load = "" if row.load is None else f"{row.load.seconds * 1e3:.0f}"
        memory = "" if row.load is None or row.load.model_bytes is None else f"{row.load.model_bytes / 1e6:.0f}"
        error = "" if row.proof is None or row.proof.error is None else f"{row.proof.error:.0e}"
        latency = "" if row.median is None else f"{row.median * 1e3:.3g}"
        ratio = "" if row.ratio is None else f"{row.ratio:.2f} [{row.ratio_low:.2f}, {row.ratio_high:.2f}]"
        chosen = "**" if row.name == report.best.name else ""
        precision = "" if row.proof is None else row.proof.precision
        cells = (name_of(path), f"{chosen}{row.name}{chosen}", load, memory, error, latency, ratio)
        print(f"| {' | '.join(cells)} | {row.verdict} | {precision or row.failure[:60]} |", flush=True)
    totals["models"] += 1
    totals["faster"] += report.best.ratio <= 1 / 1.2
    totals["slower"] += report.best.ratio_low > 1
    feeds = inputs(path, given)
    for provider in providers:
        precision_of(path, provider, feeds, report, options, totals)
        placed(path, provider, feeds, options, totals)


def name_of(path: Path) -> str:
    """A model by its file, or by its folder where the file has a common name."""
    return path.parent.name if path.stem == "model" else path.stem


def exact(provider: str) -> str | None:
    """The same provider in full precision; None where no option is known."""
    spec = parse_provider(provider)
    switch = FULL_PRECISION.get(short_name(spec.name))
    return None if switch is None else str(spec.having(switch.key, switch.value))


def inputs(path: Path, data: Path | None) -> dict[str, np.ndarray]:
    """The inputs that the matrix used."""
    runner = OnnxRunner.open(path)
    return bench_feeds(path, runner, None if data is None else read_feeds(data, runner.inputs).joined(), None, 0)


def precision_of(
    path: Path,
    provider: str,
    feeds: dict[str, np.ndarray],
    report: BenchMatrixReport,
    options: SessionOptions,
    totals: Any,
) -> None:
    """Whether the provider changes its precision unasked, measured apart from the tool, and whether that was said."""
    full = exact(provider)
    rows = [r for r in report.rows if r.provider == provider and r.proof is not None and not r.failure]
    if full is None or not rows:
        return
    usual, true = (flatten(OnnxRunner.open(path, replace(options, provider=p)).run(feeds)) for p in (provider, full))
    apart = max((distance(true[n], usual[n]) for n in true), default=0.0)
    said = all(r.proof is not None and r.proof.reduced and r.proof.option for r in rows)
    if apart > _REDUCED:
        totals["reduced"] += 1
        totals["named"] += said
    elif any(r.proof is not None and r.proof.reduced for r in rows):
        totals["false"] += 1


def distance(a: Any, b: Any) -> float:
    """Root mean square of the difference over that of `a`; 0 for what is no float."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind != "f" or a.shape != b.shape or not a.size:
        return 0.0
    kept = np.isfinite(a) & np.isfinite(b)
    scale = float(np.sqrt(np.mean(np.square(a[kept], dtype=np.float64)))) if kept.any() else 0.0
    return float(np.sqrt(np.mean(np.square((a - b)[kept], dtype=np.float64)))) / scale if scale else 0.0


def placed(path: Path, provider: str, feeds: dict[str, np.ndarray], options: SessionOptions, totals: Any) -> None:
    """Count the nodes of the file that the placement accounts for."""
    try:
        found = placement(path, feeds, replace(options, provider=provider))
    except OnnxToolError:
        return
    wanted = sum(1 for _ in all_nodes(io.read_proto(path).graph))
    known = [n for n in found.nodes if n.state in _STATES and bool(n.provider) == (n.state not in ("folded", "unused"))]
    explained = [n for n in known if n.provider in ("", *found.requested) or n.reason]
    totals["nodes"] += wanted
    totals["lost"] += wanted - len(explained)


if __name__ == "__main__":
    main()
