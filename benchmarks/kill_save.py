"""Kill -9 a process that saves models without pause, again and again; every time a whole file must be left.

python benchmarks/kill_save.py [--kills 200]
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from onnxtool.model import io
from tests.model.io.test_atomic import held, saver, weights_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    generator = random.Random(options.seed)
    for kind in ("inline", "external"):
        whole = 0
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            models = (weights_model(folder / "one.onnx", 1.0), weights_model(folder / "two.onnx", 2.0))
            (folder / "out").mkdir()
            output = folder / "out" / "m.onnx"
            io.save(io.load(models[0]), output, external=kind == "external")
            for _ in range(options.kills // 2):
                child = saver(output, models, kind, 1_000_000)
                time.sleep(generator.uniform(0.0, 0.15))
                child.send_signal(signal.SIGKILL)
                child.wait()
                whole += held(output) in (1.0, 2.0)
            left = sorted(p.name for p in output.parent.iterdir())
            io.save(io.load(models[0]), output)
            swept = sorted(p.name for p in output.parent.iterdir())
        print(
            f"{kind:10} whole {whole} of {options.kills // 2}; files left {len(left)}, after one more save {len(swept)}"
        )


if __name__ == "__main__":
    main()
