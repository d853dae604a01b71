"""What the proof of equality finds: pairs of models that differ on some inputs only, and pairs that are equal.

    python benchmarks/proof_matrix.py [--swapped] [--json FILE]

With --swapped the second of two wrong ones is the reference: mostly the one that decides something. Prints how many
of the wrong pairs are accepted, how many of the sound ones are refused, and the time of both. It needs nothing of
onnxtool but `compare`, so that PYTHONPATH may name an older version.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from proof_pairs import Pair, graph, sound_pairs, wrong_pairs
from proof_pairs_further import pairs as further_pairs
from proof_pairs_hidden import hidden_pairs
from proof_pairs_layers import layers
from proof_pairs_lists import lists
from proof_pairs_numbers import numbers
from proof_pairs_operators import further_operators
from proof_pairs_outside import outside

import onnxtool
from onnxtool.equality.compare import compare
from onnxtool.errors import OnnxToolError
from onnxtool.model import io

logging.getLogger("onnx_ir").setLevel(logging.CRITICAL)


def verdict(pair: Pair, folder: Path, *, swapped: bool = False) -> tuple[str, float]:
    """Whether the two are accepted as equal without a word, are refused, or what is said; and the seconds that took."""
    names = ("b.onnx", "a.onnx") if swapped else ("a.onnx", "b.onnx")
    first, second = folder / names[0], folder / names[1]
    changed, imports = {**pair.weights, **pair.changed}, pair.imports_b or pair.imports
    io.save(graph(pair.head, pair.a, pair.weights, pair.imports, pair.functions), first)
    io.save(graph(pair.head, pair.b, changed, imports, pair.functions), second)
    paths = (folder / "a.onnx", folder / "b.onnx")
    onnx.checker.check_model(str(paths[0]))
    start = time.perf_counter()
    try:
        report = compare(*paths)
    except OnnxToolError:
        return "refused", time.perf_counter() - start
    said = any("equal where run" in line or "differ" in line for line in report.warnings)
    return "refused" if not report.ok else "said" if said else "equal", time.perf_counter() - start


def main() -> None:
    """Run all pairs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--swapped", action="store_true")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results: dict[str, list[tuple[str, str, float]]] = {"wrong": [], "sound": []}
        later = (*outside(), *numbers(), *layers(), *lists())
        wrong, twins = zip(*further_pairs(), *further_operators(), *later, strict=True)
        groups = {"wrong": [*wrong_pairs(), *hidden_pairs(), *wrong], "sound": [*sound_pairs(), *twins]}
        for kind, pairs in groups.items():
            for pair in pairs if kind == "wrong" or not chosen.swapped else ():
                results[kind].append((pair.name, *verdict(pair, Path(folder), swapped=chosen.swapped)))
    accepted = [name for name, found, _ in results["wrong"] if found == "equal"]
    refused = [name for name, found, _ in results["sound"] if found == "refused"]
    said = {kind: [name for name, found, _ in rows if found == "said"] for kind, rows in results.items()}
    print(f"onnxtool {onnxtool.__version__}")
    print(f"wrong pairs accepted in silence: {len(accepted)} of {len(results['wrong'])}  {accepted}")
    print(f"sound pairs refused:             {len(refused)} of {len(results['sound'])}  {refused}")
    for kind, names in said.items():
        print(f"{kind} pairs accepted with a warning: {len(names)}  {names}")
    for kind, rows in ((k, r) for k, r in results.items() if r):
        seconds = [s for *_, s in rows]
        print(f"{kind}: median {np.median(seconds):.3f} s, 90th percentile {np.percentile(seconds, 90):.3f} s")
    if chosen.json:
        chosen.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
