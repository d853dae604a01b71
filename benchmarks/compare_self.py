"""A model against itself: no difference may be reported, whatever the inputs.

    python benchmarks/compare_self.py MODEL... [--seeds 200]

For each model and seed: two sessions, random inputs of three batch sizes, the comparison of `onnxtool compare`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from onnxtool.equality.compare_runners import compare_runners, probe_feeds
from onnxtool.model.domains import input_domains
from onnxtool.model.io import load
from onnxtool.runtime.runner import OnnxRunner


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--seeds", type=int, default=200)
    arguments = parser.parse_args()
    failures = 0
    for path in arguments.models:
        a, b = OnnxRunner.open(path), OnnxRunner.open(path)
        domains = input_domains(load(path))
        wrong, largest = 0, 0.0
        for seed in range(arguments.seeds):
            report = compare_runners(a, b, probe_feeds(a.inputs, seed=seed, domains=domains))
            wrong += not report.ok
            largest = max(largest, *(o.max_abs for o in report.outputs))
        failures += wrong
        print(f"{path}: {wrong} false failures over {arguments.seeds} seeds, largest difference {largest:g}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
