"""Mutated models through every command: no crash, no hang, no traceback, nothing run, nothing left, known exit codes.

    python benchmarks/fuzz.py [--count 10000 | --minutes N] [--seed 0] [--kind onnx|frameworks] [--keep FOLDER]

The models are those of the ONNX project's own backend tests (every operator, subgraphs, functions, sequences, strings,
quantized ones), the bundled ones, and ones with external data. Prints what broke a promise with the number that makes
it again (`--seed N --count 1`), and leaves the file in FOLDER.

Every command runs in a process forked from one that has imported its libraries, the frameworks among them: importing
is not work on the file, and takes ten times as long as all that is. The limits of a command begin after its imports
anyway.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.command_server import Outcome, run
from tests.hostile.cases import Case, codes
from tests.hostile.corpus import arguments, faults
from tests.hostile.graphs import sound
from tests.hostile.mutations import change_bytes, mutated

ROOT = Path(__file__).parents[1]
ANYTHING = codes(0, 1, 3, 4, 5, 6)
# Weights alone need --factory, a traced model its --input-shape.
ANYTHING_WITH_QUESTIONS = codes(0, 1, 2, 3, 4, 5, 6)
COMMANDS = ("check", "optimize", "run", "inspect", "compare", "quantize", "bench", "diff", "verify", "convert")
SHARES = (0.25, 0.23, 0.12, 0.07, 0.08, 0.08, 0.05, 0.05, 0.04, 0.03)


@dataclass(frozen=True)
class Seed:
    """A valid model: its files by name, the first one being the model."""

    name: str
    files: dict[str, bytes]


def onnx_seeds() -> list[Seed]:
    """Models of every operator, and of every way to store weights."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tests = [c for c in collect_testcases(None) if c.model is not None]
    found = [Seed(c.name, {"m.onnx": c.model.SerializeToString()}) for c in tests]
    digits = (ROOT / "fixtures" / "digits_cnn.onnx").read_bytes()
    often = [Seed("sound", {"m.onnx": sound().SerializeToString()}), Seed("digits", {"m.onnx": digits}), *stored()]
    return found + often * 60  # about one in five is one of these


def stored() -> list[Seed]:
    """The digits model with external data, in int8, and in float16, as onnxtool itself writes them."""
    from onnxtool.cli.app import app
    from onnxtool.model import io

    source = ROOT / "fixtures" / "digits_cnn.onnx"
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        io.save(io.load(source), folder / "external.onnx", external=True)
        for mode, rest in (("static", ["--data", ROOT / "fixtures" / "calib.npz"]), ("float16", [])):
            line = ["quantize", source, "-o", folder / f"{mode}.onnx", "--mode", mode, *rest, "-q"]
            app(args=[str(a) for a in line], standalone_mode=False)
        for model in sorted(folder.glob("*.onnx")):
            files = {p.name: p.read_bytes() for p in (model, *folder.glob(f"{model.name}.*"))}
            found.append(Seed(model.stem, files))
    return found


def framework_seeds() -> list[Seed]:
    """The bundled files of other frameworks, and small ones of the kinds that are not bundled."""
    from tests.hostile.seeds import seeds

    bundled = [p for p in (ROOT / "fixtures").glob("digits_*") if p.suffix in (".pt", ".joblib", ".skops", ".keras")]
    return [Seed(p.name, {p.name: p.read_bytes()}) for p in bundled] + [Seed(next(iter(f)), f) for f in seeds()]


def write(seed: Seed, folder: Path, generator: np.random.Generator) -> Path:
    """The seed's files with one of them changed; the path of the model."""
    names = list(seed.files)
    target = names[0] if len(names) == 1 or generator.random() < 0.8 else names[int(generator.integers(1, len(names)))]
    for name, content in seed.files.items():
        change: Callable[[bytes, np.random.Generator], bytes] = change_bytes
        if name.endswith(".onnx"):
            change = mutated
        elif name == names[0]:
            from tests.hostile.seeds import change_named

            change = partial(change_named, name)
        changed = change(content, generator) if name == target else content
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(changed)
    return folder if names[0] == "config.json" else folder / names[0]


def attempt(number: int, seeds: list[Seed], kind: str, keep: Path | None) -> tuple[str, Outcome, list[str]]:
    """One mutation of one seed through one command."""
    generator = np.random.default_rng(number)
    seed = seeds[int(generator.integers(0, len(seeds)))]
    command = "convert" if kind == "frameworks" else str(generator.choice(COMMANDS, p=SHARES))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("source", "original", "work"):
            (folder / part).mkdir()
        path = write(seed, folder / "source", generator)
        for file, content in seed.files.items():
            (folder / "original" / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / "original" / file).write_bytes(content)
        original = folder / "original" / path.name
        line, kind_of_server = arguments(command, path, original, data=False), ""
        if kind == "frameworks":
            from tests.hostile.seeds import OPTIONS, server

            line += OPTIONS.get(seed.name, ())
            kind_of_server = "pytorch" if seed.name == "config.json" else server(seed.name)
        outcome = run(line, folder / "work", limit=180.0, kind=kind_of_server)
        size = sum(p.stat().st_size for p in (folder / "source").rglob("*") if p.is_file())
        right = ANYTHING_WITH_QUESTIONS if kind == "frameworks" else ANYTHING
        found = faults(Case(seed.name, lambda f: f, right), command, outcome, folder / "work", size)
        if found and keep is not None:
            shutil.copytree(folder / "source", keep / f"{number}-{command}-{seed.name}", dirs_exist_ok=True)
    return f"{seed.name} {command}", outcome, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=["onnx", "frameworks"], default="onnx")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    count = options.count or (1 << 40 if options.minutes else 10_000)
    until = time.monotonic() + 60 * options.minutes if options.minutes else float("inf")
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    seeds = onnx_seeds() if options.kind == "onnx" else framework_seeds()
    result: Counter[str] = Counter()
    broken = done = 0
    for number in range(options.seed, options.seed + count):
        if time.monotonic() > until:
            break
        what, outcome, found = attempt(number, seeds, options.kind, options.keep)
        done += 1
        broken += bool(found)
        result[f"{what.split()[-1]}: exit {outcome.code}"] += 1
        for line in found:
            print(f"{number} {what}: {line}", flush=True)
        if done % 500 == 0:
            print(f"-- {done} done, {broken} broken", flush=True)
    for name, times in sorted(result.items()):
        print(f"{name:24} {times}")
    print(f"{done} mutated models, {broken} broke a promise")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
