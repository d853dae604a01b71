"""Every command on every hostile file of tests/hostile; prints what broke a promise. For mutated models see fuzz.py.

python benchmarks/hostile.py [--only TEXT] [--part 1/2]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.hostile.corpus import corpus, try_case


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="only cases whose name holds this")
    parser.add_argument("--part", default="1/1", metavar="I/N", help="every Nth case, beginning with the Ith")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    cases = [c for c in corpus() if options.only in c.name][part - 1 :: parts]
    kept: Counter[str] = Counter()
    pairs = 0
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            found = try_case(case, Path(folder), list(case.commands))
        pairs += len(case.commands)
        kept[f"{case.name.split('-')[0]}: {'broken' if found else 'kept'}"] += 1
        for line in found:
            print(f"{case.name}: {line}", flush=True)
    for name, count in sorted(kept.items()):
        print(f"{name:30} {count}")
    print(f"{len(cases)} files, {pairs} pairs of a file and a command")


if __name__ == "__main__":
    main()
