"""The same choice twice? `quantize` (auto) several times on each model, and what was chosen side by side.

    python benchmarks/quantize_repeat.py [--zoo FOLDER] [--only NAME ...] [--times 3] [--time-limit 100]

Each search runs in a process of its own. The chosen files are then timed in one alternation (one thread, fifteen blocks
with fresh sessions, see `quantize_zoo.py`): what counts is how far apart their latencies are, not their recipes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from quantize_zoo import ROOT, Subject, fixture, latencies, zoo

_BLOCKS = 15  # where memory lies gives each session of a small model a latency of its own
CODE = (
    "import sys, json, time, onnxtool\n"
    "r = onnxtool.quantize(sys.argv[1], sys.argv[2], data=sys.argv[3], time_limit=float(sys.argv[4]))\n"
    "print(json.dumps({'ok': r.ok, 'recipe': r.summary, 'verdict': r.verdict, 'cpu': time.process_time()}))"
)


def row(subject: Subject, times: int, limit: float) -> str:
    """One line of the table."""
    with tempfile.TemporaryDirectory(prefix="quantize-repeat-") as folder:
        data = Path(folder) / "calib.npz"
        np.savez(data, **dict(subject.calibration))
        files, told = {}, []
        for turn in range(times):
            output = Path(folder) / f"{turn}.onnx"
            command = [sys.executable, "-c", CODE, str(subject.model), str(output), str(data), str(limit)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            told.append(json.loads(done.stdout.splitlines()[-1]))
            if output.exists():
                files[str(turn)] = output
        found = latencies(subject, files, blocks=_BLOCKS) if files else {}
    values = [found[str(i)][0] if str(i) in found else None for i in range(times)]
    shown = ", ".join("nothing written" if v is None else f"{v:.3f}" for v in values)
    known = [v for v in values if v is not None]
    apart = "-" if None in values else f"{(max(known) / min(known) - 1) * 100:.1f} %"
    recipes = "; ".join(dict.fromkeys(t["recipe"] or t["verdict"].split(":")[0] for t in told))
    seconds = ", ".join(f"{t['cpu']:.0f}" for t in told)
    return f"| {subject.name} | {shown} | {apart} | {recipes} | {seconds} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path, default=ROOT.parent / "shared" / "zoo")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--time-limit", type=float, default=100.0)
    options = parser.parse_args()
    print("| model | latency of each choice | apart | recipes | processor seconds |\n|---|---|---|---|---|", flush=True)
    for subject in [fixture(), *(zoo(options.zoo) if options.zoo.is_dir() else [])]:
        if not options.only or subject.name in options.only:
            print(row(subject, options.times, options.time_limit), flush=True)


if __name__ == "__main__":
    main()
