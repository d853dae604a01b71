"""The optimizer beside its peers: nodes, size, latency, time, and whether the file is still right.

    python benchmarks/optimize_vs_peers.py [--models FOLDER] [--zoo FOLDER] [--venv FOLDER] [--only NAME ...]
        [--certify]

Peers (onnxsim, onnxslim, onnxscript, onnxoptimizer, ONNX Runtime's own offline optimization at basic and extended, its
transformer fuser, and onnxscript's fusions for it) run in a virtual environment of their own, which is made on demand
from PyPI. Latencies are ratios to the unoptimized file, at lengths 16, 128 and 512 where a length is dynamic: CPU time
of the one thread, in alternation, the runtime's own optimizations on, the mean of three blocks with fresh sessions
(where its memory happens to lie gives a session a latency of its own, several percent up or down). Nodes are counted
with subgraphs. A result is right when it gives the source's outputs on the runtime without its optimizations, at
several sizes. With --certify, each cell has what `onnxtool compare` says of the file too: certified, tested or
different.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import models as bench_models

from onnxtool.equality.compare import compare
from onnxtool.equality.proof import judge_outputs
from onnxtool.equality.rule.rule import Rule
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.model import io
from onnxtool.model.domains import input_domains
from onnxtool.model.header import read_header
from onnxtool.model.ir.queries import input_specs
from onnxtool.optimization.equivalence import first_fault
from onnxtool.runtime.feeds import random_feeds
from onnxtool.runtime.probes import find_probes
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import EXACT, SessionOptions

PACKAGES = ["onnx", "onnxruntime", "onnxsim", "onnxslim", "onnxscript", "onnxoptimizer", "psutil"]
ONE_THREAD = SessionOptions(threads=1)
PEERS = {
    "onnxsim": "import onnx, onnxsim; m, ok = onnxsim.simplify(onnx.load(a)); assert ok; onnx.save(m, b)",
    "onnxslim": "import onnxslim, onnx; onnx.save(onnxslim.slim(a), b)",
    "onnxscript": "import onnx, onnxscript.optimizer as o; onnx.save(o.optimize(onnx.load(a)), b)",
    "onnxoptimizer": "import onnx, onnxoptimizer as o; onnx.save(o.optimize(onnx.load(a)), b)",
    "runtime-basic": "import onnxruntime as r; s = r.SessionOptions(); s.optimized_model_filepath = b; "
    "s.graph_optimization_level = r.GraphOptimizationLevel.ORT_ENABLE_BASIC; r.InferenceSession(a, s)",
    "runtime-extended": "import onnxruntime as r; s = r.SessionOptions(); s.optimized_model_filepath = b; "
    "s.graph_optimization_level = r.GraphOptimizationLevel.ORT_ENABLE_EXTENDED; r.InferenceSession(a, s)",
    # What its opt_level=1 does, which asks for torch: the runtime's basic level first.
    "transformer-fuser": "import onnxruntime as r; from onnxruntime.transformers.optimizer import optimize_model; "
    "s = r.SessionOptions(); s.optimized_model_filepath = b + '.basic'; "
    "s.graph_optimization_level = r.GraphOptimizationLevel.ORT_ENABLE_BASIC; r.InferenceSession(a, s); "
    "optimize_model(b + '.basic', model_type=kind, opt_level=0).save_model_to_file(b)",
    "ort-fusions": "import onnx_ir as ir; from onnxscript.rewriter.ort_fusions import optimize_for_ort; "
    "ir.save(optimize_for_ort(ir.load(a))[0], b)",
}
# The transformer fuser's own name for a kind of model, by what stands in the file's name; other models it passes over.
FUSER_KINDS = {"bert": "bert", "gpt": "gpt2", "vit": "vit", "llama": "gpt_neox", "t5": "t5", "clip": "clip"}
NOT_PORTABLE = ("runtime-extended", "transformer-fuser", "ort-fusions")
LENGTHS = (16, 128, 512)
_BLOCKS, _ROUNDS, _WARM_UP = 3, 8, 2
_PATIENCE = 60  # seconds for each length
OURS = ("basic", "extended", "all")


@dataclass
class Entry:
    """One tool on one model."""

    model: str
    tool: str
    nodes: int | None = None
    bytes: int | None = None
    seconds: float | None = None
    latency: dict[str, float] | None = None
    fault: str | None = None
    verdict: str = ""


def peer_python(venv: Path) -> Path:
    """The interpreter of the peers' environment, made when it is not there."""
    python = venv / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *PACKAGES], check=True)
    return python


def fuser_kind(name: str) -> str | None:
    """What the transformer fuser calls this kind of model; None for what is not a transformer."""
    return next((kind for part, kind in FUSER_KINDS.items() if part in name), None)


def run_tool(tool: str, source: Path, target: Path, python: Path) -> tuple[float, str | None]:
    """Seconds of the whole process, and why there is no result."""
    if tool in OURS:
        command = [sys.executable, "-m", "onnxtool", "optimize", str(source), "-o", str(target), "--level", tool, "-q"]
        command += ["--no-bench"] if tool != "all" else []
    else:
        kind = fuser_kind(source.stem if source.stem != "model" else source.parent.name) or "bert"
        command = [str(python), "-c", f"a, b, kind = {str(source)!r}, {str(target)!r}, {kind!r}; {PEERS[tool]}"]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    seconds = time.perf_counter() - start
    if done.returncode or not target.exists():
        lines = done.stderr.strip().splitlines() or ["no output"]
        return seconds, lines[-1][:120]
    return seconds, None


def examine(
    name: str, source: Path, tools: Sequence[str], python: Path, folder: Path, *, certify: bool = False
) -> list[Entry]:
    """All tools on one model."""
    model = io.load(source)
    specs, domains = input_specs(model), input_domains(model)
    reference = OnnxRunner.open(source, EXACT)
    probes = find_probes(reference, specs, 0, domains)
    header = read_header(io.read_proto(source))
    entries = [Entry(name, "source", header.nodes, source.stat().st_size, latency={})]
    files = [(entries[0], source)]
    for tool in tools:
        if tool == "transformer-fuser" and fuser_kind(name) is None:
            continue
        target = folder / f"{name}.{tool}.onnx"
        entry = Entry(name, tool, latency={})
        entries.append(entry)
        entry.seconds, entry.fault = run_tool(tool, source, target, python)
        if entry.fault is not None:
            continue
        try:
            report = judge_outputs(OnnxRunner.open(target, EXACT), probes, Rule(Tolerance(1e-3, 1e-4)))
            entry.fault = None if report.ok else first_fault(report)[:120]
            entry.nodes = read_header(io.read_proto(target)).nodes
            entry.bytes = io.total_bytes(target)
            entry.verdict = compare(source, target, effort="quick").verdict if certify else ""
            files.append((entry, target))
        except Exception as error:  # a peer's file may be broken in any way
            entry.fault = str(error).splitlines()[0][:120]
    dynamic = any(isinstance(d, str) for s in specs for d in (s.shape or ())[1:])
    for length in LENGTHS if dynamic else LENGTHS[:1]:
        feeds = random_feeds(specs, 0, batch=1, length=length, domains=domains)
        _time(files, feeds if _runs(reference, feeds) else probes[0].feeds, str(length) if dynamic else "-")
    return entries


def _runs(runner: OnnxRunner, feeds: dict[str, np.ndarray]) -> bool:
    try:
        runner.run(feeds)
    except Exception:
        return False
    return True


def _time(files: list[tuple[Entry, Path]], feeds: dict[str, np.ndarray], key: str) -> None:
    """CPU time of the one thread, in alternation: unlike the clock's, it holds on a machine with other work."""
    logs: list[dict[str, float]] = []
    orders = np.random.default_rng(0)
    deadline = time.perf_counter() + _PATIENCE
    while len(logs) < _BLOCKS and (not logs or time.perf_counter() < deadline):
        runners: dict[str, OnnxRunner] = {}
        for index in orders.permutation(len(files)):
            entry, path = files[index]
            runner = OnnxRunner.open(path, ONE_THREAD)
            if _runs(runner, feeds):
                runners[entry.tool] = runner
        taken: dict[str, list[float]] = {tool: [] for tool in runners}
        for turn in range(_ROUNDS + _WARM_UP):
            for index in orders.permutation(len(runners)):
                tool = list(runners)[index]
                start = time.thread_time()
                runners[tool].run(feeds)
                if turn >= _WARM_UP:
                    taken[tool].append(time.thread_time() - start)
        medians = {tool: float(np.median(t)) for tool, t in taken.items()}
        logs.append({tool: float(np.log(m / medians["source"])) for tool, m in medians.items()})
    for entry, _ in files:
        found = [log[entry.tool] for log in logs if entry.tool in log]
        if found and entry.latency is not None:
            entry.latency[key] = float(np.exp(np.mean(found)))


def table(entries: list[Entry]) -> str:
    """Markdown: one row for each model, one column for each tool: nodes / latency ratios."""
    tools = [t for t in ("source", *PEERS, *OURS) if any(e.tool == t for e in entries)]
    lines = ["| model | " + " | ".join(tools) + " |", "|---|" + "---|" * len(tools)]
    for model in dict.fromkeys(e.model for e in entries):
        row = {e.tool: e for e in entries if e.model == model}
        correct = [e.nodes for t, e in row.items() if t not in (*OURS, "source", *NOT_PORTABLE) and _good(e)]
        best = min((n for n in correct if n is not None), default=None)
        lines.append(f"| {model} | " + " | ".join(_cell(row.get(t), best) for t in tools) + " |")
    return "\n".join(lines)


def _good(entry: Entry) -> bool:
    return entry.fault is None and entry.nodes is not None


def _cell(entry: Entry | None, best: int | None) -> str:
    if entry is None or entry.nodes is None:
        return "fails" if entry is not None else "-"
    nodes = f"**{entry.nodes}**" if entry.nodes == best and entry.fault is None else str(entry.nodes)
    ratios = "" if entry.tool == "source" else " / " + ", ".join(f"{v:.2f}" for v in (entry.latency or {}).values())
    seconds = "" if entry.seconds is None else f" / {entry.seconds:.1f} s"
    verdict = f" / {entry.verdict}" if entry.verdict else ""
    return nodes + ratios + seconds + verdict + (" WRONG" if entry.fault else "")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    scratch = Path(tempfile.gettempdir()) / "onnxtool-benchmarks"
    parser.add_argument("--models", type=Path, default=scratch / "models")
    parser.add_argument("--zoo", type=Path, default=Path(__file__).parents[2] / "shared" / "zoo")
    parser.add_argument("--venv", type=Path, default=scratch / "peers")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--tools", nargs="*", default=[*PEERS, *OURS])
    parser.add_argument("--certify", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    scratch.mkdir(exist_ok=True)
    paths = bench_models.build_all(arguments.models) | bench_models.zoo(arguments.zoo)
    python = peer_python(arguments.venv)
    entries: list[Entry] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, path in paths.items():
            if arguments.only and not any(o in name for o in arguments.only):
                continue
            entries += examine(name, path, arguments.tools, python, Path(folder), certify=arguments.certify)
            print(table([e for e in entries if e.model == name]).splitlines()[-1], flush=True)
            for file in Path(folder).iterdir():
                file.unlink()
    print(table(entries))
    for entry in entries:
        if entry.fault:
            print(f"{entry.model}, {entry.tool}: {entry.fault}")
    if arguments.markdown:
        arguments.markdown.write_text(table(entries) + "\n", encoding="utf-8")
    if arguments.json:
        arguments.json.write_text(json.dumps([e.__dict__ for e in entries], indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
