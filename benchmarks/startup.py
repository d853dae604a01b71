"""How long the command line takes to start, side by side with what it cannot do without.

    python benchmarks/startup.py [--rounds 15]

Prints, for each pair, the median of both and their ratio; the two take turns. Targets: `onnxtool --help` at most 1.3x
`import typer`; `onnxtool check` of a small model under 3x `import onnx, onnxruntime`.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

MODEL = Path(__file__).parent.parent / "fixtures" / "digits_cnn.onnx"
PAIRS = (
    ("onnxtool --help", ["-m", "onnxtool", "--help"], "import typer", ["-c", "import typer"], 1.3),
    (
        "onnxtool check small.onnx",
        ["-m", "onnxtool", "check", str(MODEL)],
        "import onnx, onnxruntime",
        ["-c", "import onnx, onnxruntime"],
        3.0,
    ),
)


def seconds(arguments: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    missed = 0
    for name, ours, other_name, other, target in PAIRS:
        seconds(ours), seconds(other)  # fills the file cache
        pairs = [(seconds(ours), seconds(other)) for _ in range(rounds)]
        left, right = (statistics.median(side) for side in zip(*pairs, strict=True))
        ratio = statistics.median(a / b for a, b in pairs)
        missed += ratio > target
        print(
            f"{name}: {left * 1e3:.0f} ms; python -c '{other_name}': {right * 1e3:.0f} ms; "
            f"ratio {ratio:.2f} (target {target:g})"
        )
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
