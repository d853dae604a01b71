"""What the watching parent costs on a good small model: the same command with and without, in turns.

python benchmarks/isolation_cost.py [--rounds 20]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FIXTURES = Path(__file__).parents[1] / "fixtures"


def seconds(arguments: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "onnxtool", *arguments, "-q"], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    model = str(FIXTURES / "digits_cnn.onnx")
    with tempfile.TemporaryDirectory() as folder:
        for line in (["check", model], ["optimize", model, "-o", f"{folder}/out.onnx"]):
            watched, free = [], []
            for _ in range(options.rounds):
                watched.append(seconds(line))
                free.append(seconds([*line, "--no-isolation"]))
            differences = [(a - b) * 1e3 for a, b in zip(watched, free, strict=True)]
            print(
                f"{line[0]:10} watched {statistics.median(watched) * 1e3:.0f} ms, --no-isolation "
                f"{statistics.median(free) * 1e3:.0f} ms; median difference {statistics.median(differences):.0f} ms, "
                f"fastest against fastest {(min(watched) - min(free)) * 1e3:.0f} ms",
                flush=True,
            )


if __name__ == "__main__":
    main()
