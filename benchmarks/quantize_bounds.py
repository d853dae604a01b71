"""How often the true loss of accuracy exceeds the bound that `quantize` states.

    python benchmarks/quantize_bounds.py FOLDER [--runs 200] [--samples 64 256 600]

Each model of FOLDER (model.onnx, calib.npz, eval.npz with labels, spec.json) is quantized in several ways, good or bad.
What each loses on all labelled samples is taken for the truth. From these, samples are drawn again
and again, and both bounds are computed: of the labels, and of the float model's own probabilities. At most 5 % of the
runs may have a true loss beyond the bound.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np

import onnxtool
from onnxtool.quantization.evaluation.bounds import paired_bound, resampled_bound
from onnxtool.quantization.evaluation.class_agreement import ClassAgreement
from onnxtool.runtime.runner import OnnxRunner

WAYS = (
    {"mode": "dynamic", "per_channel": False},
    {"mode": "static"},
    {"mode": "static", "per_channel": False, "method": "percentile", "coverage": 0.98},
    {"mode": "static", "per_channel": False, "method": "percentile", "coverage": 0.9},
    {"mode": "int4", "block_size": 128},
)


def outputs(model: Path, feeds: np.ndarray) -> np.ndarray:
    runner = OnnxRunner.open(model)
    name = runner.inputs[0].name
    return np.concatenate([next(iter(runner.run({name: f}).values())) for f in np.array_split(feeds, len(feeds) // 32)])


def exceeded(right: np.ndarray, wrong: np.ndarray, labels: np.ndarray, runs: int, size: int) -> tuple[float, ...]:
    """True loss, and of all runs: shares beyond either bound, and the mean bounds."""
    hits = [v.argmax(-1) == labels for v in (right, wrong)]
    truth = float(hits[0].mean() - hits[1].mean())
    random = np.random.default_rng(size)
    beyond, bounds = np.zeros(2), np.zeros(2)
    for _ in range(runs):
        some = random.integers(0, len(labels), size)
        a, b = hits[0][some], hits[1][some]
        by_labels = paired_bound(a, b) if labels.ndim == 1 else resampled_bound(
            lambda i, a=a, b=b: float(a[i].mean() - b[i].mean()), size
        )  # fmt: skip
        agreement = ClassAgreement()
        agreement.add(right[some], wrong[some])
        found = np.array([by_labels, agreement.drop_at_most(0.95)])
        beyond, bounds = beyond + (truth > found), bounds + found
    return (truth, *(beyond / runs), *(bounds / runs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--samples", type=int, nargs="+", default=[64, 256, 600])
    options = parser.parse_args()
    print("| model | way | samples | true loss | beyond, labels | beyond, float's | bound, labels | bound, float's |")
    print("|---|---|---|---|---|---|---|---|")
    every = []
    for spec_file in sorted(options.folder.glob("*/spec.json")):
        folder, spec = spec_file.parent, json.loads(spec_file.read_text())
        if spec["task"] not in ("cls", "lm"):
            continue
        calib, labelled = (dict(np.load(folder / f"{n}.npz")) for n in ("calib", "eval"))
        name = spec["inputs"][0]
        for arrays in (calib, labelled):
            if spec.get("cast"):
                arrays[name] = arrays[name].astype(spec["cast"]) * np.float32(spec.get("scale", 1))
        right, labels = outputs(folder / "model.onnx", labelled[name]), labelled[spec["label"]]
        for way in WAYS:
            with tempfile.TemporaryDirectory() as scratch:
                report = onnxtool.quantize(folder / "model.onnx", Path(scratch) / "q.onnx", data=calib, **way)
                if not report.ok:
                    continue
                wrong = outputs(Path(scratch) / "q.onnx", labelled[name])
            for size in options.samples if labels.ndim == 1 else [32, 64]:
                found = exceeded(right, wrong, labels, options.runs if labels.ndim == 1 else options.runs // 4, size)
                every.append(found)
                numbers = f"{found[0]:.4f} | {found[1]:.1%} | {found[2]:.1%} | {found[3]:.4f} | {found[4]:.4f}"
                words = " ".join(str(v) for v in way.values())
                print(f"| {folder.name} | {words} | {size} | {numbers} |", flush=True)
    means = np.mean(every, axis=0)
    print(f"| **all** | {len(every)} rows | | | {means[1]:.1%} | {means[2]:.1%} | {means[3]:.4f} | {means[4]:.4f} |")


if __name__ == "__main__":
    main()
