"""`quantize` (auto) on real models with real data: accuracy, latency, size, time and memory, as a table.

    python benchmarks/quantize_zoo.py [--zoo FOLDER] [--only NAME ...] [--peers] [--peer-python PYTHON ...]
                                      [--markdown FILE]

Runs over fixtures/digits_cnn.onnx and over each folder of the zoo (model.onnx, calib.npz, eval.npz, spec.json; left
out when there is none). Calibration data goes in without labels; accuracy is measured afterwards on the evaluation
data. Each quantization runs in a process of its own, for its peak memory. Latency is measured once more, one thread,
in alternation with the float model and, with --peers, with what other quantizers make of it (see quantize_peers.py):
the fastest of those within one point of float counts. Their quantizers run in this interpreter and in each
--peer-python, a virtual environment that has NNCF, say. The last column compares processor seconds of `--mode static`
with those of one static calibration of onnxruntime's on as many samples.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import numpy as np

from onnxtool.runtime.cpu import features
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import SessionOptions
from onnxtool.runtime.timing.timing import clock_for, measure, ratio

ROOT = Path(__file__).resolve().parent.parent
ONE = SessionOptions(threads=1)
BLOCKS = 5
Score = Callable[[Path], float]


@dataclass(frozen=True)
class Subject:
    """One model with its data and its judge."""

    name: str
    model: Path
    calibration: Mapping[str, np.ndarray]
    score: Score


def fixture() -> Subject:
    """The digits CNN of fixtures/."""
    folder = ROOT / "fixtures"
    data = np.load(folder / "eval.npz")

    def score(path: Path) -> float:
        logits = OnnxRunner.open(path).run({"image": data["image"]})["logits"]
        return float((logits.argmax(1) == data["label"]).mean())

    calibration = {"image": np.load(folder / "calib.npz")["image"]}
    return Subject("fixtures/digits_cnn", folder / "digits_cnn.onnx", calibration, score)


def zoo(folder: Path) -> list[Subject]:
    """The models of the zoo; the judge is its own evalkit."""
    kit = _module(folder / "evalkit.py")
    subjects = []
    for place in sorted(p for p in folder.iterdir() if (p / "model.onnx").exists()):
        spec, arrays = kit.load(str(place), "calib")
        feeds = kit.feeds(spec, arrays, 0, kit.count(spec, arrays))
        subjects.append(Subject(place.name, place / "model.onnx", feeds, _scorer(kit, place)))
    return subjects


def _scorer(kit: ModuleType, place: Path) -> Score:
    def score(path: Path) -> float:
        spec, arrays, outputs = kit.run(str(path), str(place))
        return float(kit.score(spec, arrays, outputs)["acc"])

    return score


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def quantize_in_child(subject: Subject, output: Path, scratch: Path) -> dict[str, object]:
    """Run auto in a process of its own; its report, seconds and peak memory."""
    data = scratch / f"{output.stem}_calib.npz"
    np.savez(data, **dict(subject.calibration))
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, __file__, "--child", str(subject.model), str(output), str(data)],
        capture_output=True,
        text=True,
        check=True,
    )
    result: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return result | {"seconds": time.perf_counter() - began}


def child(model: str, output: str, data: str) -> None:
    """What runs in the child."""
    import onnxtool

    report = onnxtool.quantize(model, output, data=data)
    peak = peak_mb()
    tried = len(report.frontier)
    print(
        json.dumps(
            {"ok": report.ok, "summary": report.summary, "quantized": report.quantized, "peak_mb": peak, "tried": tried}
        )
    )


def peak_mb() -> float:
    """Peak resident memory of this process since it was executed (ru_maxrss would count the parent's too)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def plain_peak(subject: Subject) -> float:
    """Peak memory in MB of a process that only runs the float model on a sample."""
    code = (
        "import sys, numpy as np, onnxruntime as ort\n"
        "s = ort.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider'])\n"
        "s.run(None, dict(np.load(sys.argv[2])))\n"
        "print(int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]) / 1024)"
    )
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "one.npz"
        np.savez(data, **first(subject))
        done = subprocess.run(
            [sys.executable, "-c", code, str(subject.model), str(data)], capture_output=True, text=True, check=True
        )
    return float(done.stdout)


def first(subject: Subject) -> dict[str, np.ndarray]:
    """One sample."""
    return {name: array[:1] for name, array in subject.calibration.items()}


def peers(subject: Subject, scratch: Path, pythons: Sequence[str]) -> dict[str, dict[str, object]]:
    """What other quantizers make of the model: configuration -> file, samples and seconds; those that fail are told."""
    data = scratch / "peers_calib.npz"
    np.savez(data, **dict(subject.calibration))
    script = str(Path(__file__).with_name("quantize_peers.py"))
    made: dict[str, dict[str, object]] = {}
    for number, python in enumerate(pythons):
        folder = scratch / f"peers{number}"
        folder.mkdir()
        done = subprocess.run(
            [python, script, str(subject.model), str(data), str(folder)], capture_output=True, text=True, check=False
        )
        found = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {python: {"error": "crashed"}}
        for name, result in found.items():
            try:
                if "error" in result:
                    raise RuntimeError(result["error"])
                OnnxRunner.open(Path(result["file"]), ONE).run(first(subject))
                made[name] = result
            except Exception as error:
                print(f"    peer {name} fails: {str(error)[:100]}", file=sys.stderr)
    return made


def static_cost(subject: Subject, scratch: Path, samples: int) -> float:
    """Processor seconds of `--mode static` in a process of its own, without the import of onnxtool."""
    data = scratch / "static_calib.npz"
    np.savez(data, **dict(subject.calibration))
    code = (
        "import sys, time, onnxtool\n"
        "import onnxtool.quantization.quantize\n"
        "began = time.process_time()\n"
        "onnxtool.quantize(sys.argv[1], sys.argv[2], mode='static', data=sys.argv[3], samples=int(sys.argv[4]))\n"
        "print(time.process_time() - began)"
    )
    arguments = [str(subject.model), str(scratch / "static.onnx"), str(data), str(samples)]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


def latencies(
    subject: Subject, files: Mapping[str, Path], seconds: float = 6.0, blocks: int = BLOCKS
) -> dict[str, tuple[float, float, float]]:
    """Latency ratio to float, all in alternation, one thread: median, lowest and highest of blocks.

    Each block has fresh sessions: where its memory happens to lie gives a session a latency of its own, up to 15 % up
    or down for a model that just fits into a cache.
    """
    feeds = first(subject)
    ratios: list[list[float]] = []
    for _ in range(blocks):
        runners = [OnnxRunner.open(p, ONE) for p in (subject.model, *files.values())]
        calls = [lambda s=r.session: s.run(None, feeds) for r in runners]
        timings = measure(calls, budget=seconds / blocks, minimum=5, clock=clock_for(1))
        ratios.append([ratio(t, timings[0]).value for t in timings[1:]])
    by_file = zip(files, zip(*ratios, strict=True), strict=True)
    return {name: (statistics.median(found), min(found), max(found)) for name, found in by_file}


def row(subject: Subject, pythons: Sequence[str]) -> str:
    """One line of the table."""
    with tempfile.TemporaryDirectory(prefix="quantize-zoo-") as folder:
        scratch = Path(folder)
        output = scratch / "auto.onnx"
        result = quantize_in_child(subject, output, scratch)
        base = subject.score(subject.model)
        memory = f"{result['peak_mb']:.0f} / {plain_peak(subject):.0f}"
        took = f"{result['seconds']:.0f}"
        files = {"auto": output} if result["ok"] else {}
        made = peers(subject, scratch, pythons)
        accurate = {n: p for n, r in made.items() if subject.score(p := Path(str(r["file"]))) >= base - 0.01}
        theirs = made.get("static u8s8 per-tensor")
        static = "-"
        if theirs is not None:
            static = f"{static_cost(subject, scratch, int(theirs['samples'])):.1f} / {theirs['cpu']:.1f}"  # type: ignore[call-overload]
        found = latencies(subject, files | accurate)
        peer = min((n for n in accurate), key=lambda n: found[n][0], default="")
        best = f"{found[peer][0]:.3f} ({peer})" if peer else (f"none of {len(made)}" if pythons else "-")
        if not result["ok"]:
            return (
                f"| {subject.name} | {base:.4f} | nothing written | - | - | - | {took} | {memory} | {best} | {static} |"
            )
        value, low, high = found["auto"]
        size = output.stat().st_size / subject.model.stat().st_size
        recipe = f"{result['summary']}; " + ", ".join(
            f"{d}/{n} {op}" for op, (d, n) in dict(result["quantized"]).items()
        )  # type: ignore[call-overload]
        speed = f"{value:.3f} ({low:.2f}-{high:.2f})"
        cells = (
            subject.name,
            f"{base:.4f}",
            recipe,
            f"{subject.score(output):.4f}",
            speed,
            f"{size:.2f}",
            took,
            memory,
            best,
            static,
        )
        return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path, default=ROOT.parent / "shared" / "zoo")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--peer-python", nargs="*", default=[])
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    subjects = [fixture(), *(zoo(options.zoo) if options.zoo.is_dir() else [])]
    chips = ", ".join(f.name for f in features() if f.present)
    lines = [
        f"{date.today()}, {platform.machine()} with {chips}, one thread; onnxruntime {version('onnxruntime')}, "
        f"onnx {version('onnx')}, Python {platform.python_version()}.",
        "",
        "| model | float accuracy | recipe of auto | accuracy | latency ratio (95 % interval) | size ratio | seconds "
        "| peak MB, auto / plain run | fastest accurate peer | static, processor seconds, ours / peer |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for subject in subjects:
        if options.only and subject.name not in options.only:
            continue
        print(f"  {subject.name} ...", file=sys.stderr)
        lines.append(row(subject, [sys.executable, *options.peer_python] if options.peers else []))
        print(lines[-1], flush=True)
    if options.markdown:
        options.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
