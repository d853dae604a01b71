"""What the watching parent costs on a good small model: the same command with and without, in turns.

python benchmarks/isolation_cost.py [--rounds 20]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FIXTURES = Path(__file__).parents[1] / "fixtures"


def cost(arguments: list[str]) -> tuple[float, float]:
    """Wall seconds, which other work on the machine stretches, and processor seconds of the command and its child."""
    began = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-m", "onnxtool", *arguments, "-q"], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    model = str(FIXTURES / "digits_cnn.onnx")
    with tempfile.TemporaryDirectory() as folder:
        for line in (["check", model], ["optimize", model, "-o", f"{folder}/out.onnx"]):
            pairs = [(cost(line), cost([*line, "--no-isolation"])) for _ in range(options.rounds)]
            for index, kind in enumerate(("wall", "processor")):
                watched = [a[index] * 1e3 for a, _ in pairs]
                free = [b[index] * 1e3 for _, b in pairs]
                difference = statistics.median(a - b for a, b in zip(watched, free, strict=True))
                print(
                    f"{line[0]:10} {kind:10} watched {statistics.median(watched):.0f} ms, --no-isolation "
                    f"{statistics.median(free):.0f} ms; median difference {difference:.0f} ms",
                    flush=True,
                )


if __name__ == "__main__":
    main()
