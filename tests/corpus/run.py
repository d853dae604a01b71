"""Which of the corpus's faults the tool finds, and which of its sound cases it takes.

    python -m tests.corpus.run pairs [--swapped] [--part N] [--only WORD ...] [--json FILE]
    python -m tests.corpus.run sources [--part N] [--only WORD ...] [--json FILE]

Pairs of graphs go through `compare`. With --swapped the second of two different ones is the reference: mostly the one
that decides something. Sources in memory go through their exporter alone and through `convert`. --part takes every Nth.
Ends with 1 where a fault was taken for equal without a word, or a sound pair was refused.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from onnxtool.equality.compare import compare
from onnxtool.errors import OnnxToolError
from onnxtool.model import io
from tests.corpus.pairs import Pair, pairs


def judge(pair: Pair, folder: Path, *, swapped: bool = False) -> str:
    """What `compare` says of a pair, in a word: "certified", "tested", "said" (a warning names where), or "refused"."""
    paths = (folder / "a.onnx", folder / "b.onnx")
    for model, path in zip(pair.models(), reversed(paths) if swapped else paths, strict=True):
        io.save(model, path)
    try:
        report = compare(*paths)
    except OnnxToolError:
        return "refused"
    if not report.ok:
        return "refused"
    said = any("equal where run" in line or "differ" in line for line in report.warnings)
    return "said" if said else report.verdict


def run_pairs(asked: argparse.Namespace) -> int:
    """Judge the pairs and print how many of each kind came out how."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for pair in list(pairs())[:: asked.part]:
            if (asked.swapped and pair.equal) or not _named(pair.name, asked.only):
                continue
            start = time.perf_counter()
            word = judge(pair, Path(folder), swapped=asked.swapped)
            rows.append((pair.name, "equal" if pair.equal else "different", word, time.perf_counter() - start))
    words = ("certified", "tested", "not tested", "said", "refused")
    print("pairs that are | " + " | ".join(words) + " | seconds: median, 90 %")
    for kind in ("different", "equal"):
        found = [row for row in rows if row[1] == kind]
        seconds = [row[3] for row in found] or [0.0]
        counts = " | ".join(str(sum(row[2] == word for row in found)) for word in words)
        print(f"{kind} | {counts} | {np.median(seconds):.2f}, {np.percentile(seconds, 90):.2f}")
    faults = [row for row in rows if row[2] in (("certified", "tested") if row[1] == "different" else ("refused",))]
    for name, kind, word, _ in faults:
        print(f"fault: {kind}, and called {word}: {name}")
    _save(asked, rows)
    return int(bool(faults))


def run_sources(asked: argparse.Namespace) -> int:
    """Convert the sources and print how many of the files are right."""
    from tests.corpus.sources.cases import cases, converted, exported

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for case in list(cases())[:: asked.part]:
            if _named(case.name, asked.only):
                rows.append((case.name, exported(case, Path(folder)), converted(case, Path(folder))))
                print("| {} | {} | {} |".format(*rows[-1]), flush=True)
    for place, what in ((1, "exporter alone"), (2, "onnxtool convert")):
        counts = {v: sum(row[place] == v for row in rows) for v in ("right", "refused", "said", "wrong")}
        print(f"{what}: {counts} of {len(rows)}")
    _save(asked, rows)
    return int(any(row[2] == "wrong" for row in rows))


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["pairs", "sources"])
    parser.add_argument("--swapped", action="store_true")
    parser.add_argument("--part", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    return run_pairs(asked) if asked.kind == "pairs" else run_sources(asked)


def _named(name: str, words: Sequence[str]) -> bool:
    return not words or any(word in name for word in words)


def _save(asked: argparse.Namespace, rows: Sequence[Sequence[object]]) -> None:
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
