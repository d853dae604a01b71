"""Every command on every hostile file of tests/hostile, and on mutated models; prints what broke a promise.

python benchmarks/hostile.py [--mutations 1000] [--seed 0]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "hostile"))

from hostile_cases import Case, codes, file
from hostile_corpus import corpus, try_case
from hostile_graphs import sound

ANYTHING = codes(0, 1, 3, 4, 5, 6)


def mutated(seed: int) -> bytes:
    """A sound model with a few bytes changed, cut out or put in."""
    generator = np.random.default_rng(seed)
    content = bytearray(sound().SerializeToString())
    for _ in range(int(generator.integers(1, 9))):
        place = int(generator.integers(0, len(content)))
        kind = generator.integers(0, 4)
        if kind == 0:
            content[place] = int(generator.integers(0, 256))
        elif kind == 1:
            del content[place : place + int(generator.integers(1, 9))]
        elif kind == 2:
            content[place:place] = bytes(generator.integers(0, 256, int(generator.integers(1, 9)), dtype=np.uint8))
        else:
            content[place] ^= 1 << int(generator.integers(0, 8))
    return bytes(content)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutations", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="only corpus cases whose name holds this")
    options = parser.parse_args()
    cases = [c for c in corpus() if options.only in c.name]
    commands = ["check", "optimize", "run", "inspect"]
    fuzz = [
        (Case(f"mutation-{s}", file("m.onnx", mutated(s)), ANYTHING), [commands[s % len(commands)]])
        for s in range(options.seed, options.seed + options.mutations)
    ]
    result: Counter[str] = Counter()
    for case, chosen in [*((c, list(c.commands)) for c in cases), *fuzz]:
        with tempfile.TemporaryDirectory() as folder:
            found = try_case(case, Path(folder), chosen)
        group = case.name.split("-")[0]
        result[f"{group}: {'broken' if found else 'kept'}"] += 1
        for line in found:
            print(f"{case.name}: {line}", flush=True)
    for name, count in sorted(result.items()):
        print(f"{name:30} {count}")


if __name__ == "__main__":
    main()
