"""All hostile files, and how each command is called on one."""

from __future__ import annotations

import zlib
from functools import cache
from pathlib import Path

from tests.command_server import Outcome, kind_for, run
from tests.hostile import damaged_bytes, excess, files, frameworks, graphs, programs
from tests.hostile.cases import Case, unique

# 1 GB that the file may take, the process itself (interpreter, ONNX, runtime; TensorFlow and Keras: 0.6 GB), and what a
# quick allocation takes between two looks at the memory.
BASE_BYTES = 2_000_000_000
# The promise is 10 s in a native call, which may keep two threads busy, and what the command itself does. Held against
# processor time: other work on the machine stretches wall time, which only has to be what such work can explain.
BASE_SECONDS = 30.0
STRETCH = 5.0
IMPORTS = 5.0  # seconds that a framework's imports take, which the process that is forked has done before
KINDS = (damaged_bytes, graphs, excess, files, frameworks, programs)


@cache
def corpus() -> tuple[Case, ...]:
    """Every case."""
    return tuple(unique([c for kind in KINDS for c in kind.cases()]))


def some_commands(case: Case, count: int) -> list[str]:
    """`check` and a choice of the others that differs from case to case, and not from run to run."""
    first = [c for c in ("check", "run") if c in case.commands][:1]
    if case.name.startswith(
        ("pickle", "joblib", "torch", "keras", "skops", "safetensors", "zip", "framework", "folder")
    ):
        first.append("convert")
    rest = [c for c in case.commands if c not in first]
    start = zlib.crc32(case.name.encode()) % max(1, len(rest))
    return first + [rest[(start + i) % len(rest)] for i in range(min(count, len(rest)))]


def arguments(command: str, path: Path, sound: Path, data: bool) -> list[str]:
    """The command line for a file; outputs would go to `out.onnx` in the working folder."""
    model = str(sound if data else path)
    line = {
        "check": ["check", model],
        "inspect": ["inspect", model],
        "optimize": ["optimize", model, "-o", "out.onnx"],
        "quantize": ["quantize", model, "-o", "out.onnx", "--mode", "static" if data else "dynamic"],
        "compare": ["compare", model, str(sound)],
        "run": ["run", model, "-o", "out.npz"],
        "convert": ["convert", model, "-o", "out.onnx"],
        "diff": ["diff", model, str(sound)],
        "bench": ["bench", model, "--budget", "0.05"],
        "verify": ["verify", model],
    }[command]
    return [*line, "--data", str(path)] if data else line


def faults(case: Case, command: str, outcome: Outcome, folder: Path, size: int) -> list[str]:
    """What a command did wrong; nothing when all promises are kept."""
    found = []
    if outcome.code not in case.codes[command]:
        found.append(f"exit {outcome.code}, right would be {sorted(case.codes[command])}")
    if "Traceback" in outcome.stderr + outcome.stdout:
        found.append("a traceback")
    if outcome.code not in (0, 1) and len(outcome.stderr.splitlines()) != 1:
        found.append(f"{len(outcome.stderr.splitlines())} lines of errors")
    if any(c in outcome.stdout + outcome.stderr for c in "\x1b\x07\u202e\u2066"):
        found.append("control characters reach the terminal")
    allowed = BASE_SECONDS - IMPORTS if command in ("convert", "compare") else BASE_SECONDS
    if max(outcome.busy, outcome.seconds / STRETCH) > allowed + size / 5e6:
        found.append(f"took {outcome.seconds:.1f} s, {outcome.busy:.1f} s of them busy")
    if outcome.peak > BASE_BYTES + (403 if command in ("convert", "compare") else 3) * size:
        found.append(f"took {outcome.peak / 1e9:.1f} GB")
    if (folder / files.MARKER).exists():
        found.append("CODE FROM THE FILE RAN")
    left = [p.name for p in folder.iterdir()]
    if outcome.code != 0 and left:
        found.append(f"left {left}")
    if any(b"SSSSSSSS" in p.read_bytes() for p in folder.iterdir() if p.is_file()):
        found.append("a file from outside the model's folder leaked into the output")
    return [f"{command}: {what} | {outcome.stderr[-300:]}" for what in found]


def try_case(case: Case, folder: Path, commands: list[str]) -> list[str]:
    """Write the file and run commands on it; give all faults."""
    source = folder / "source"
    source.mkdir()
    path = case.write(source)
    sound = folder / "sound.onnx"
    sound.write_bytes(graphs.sound().SerializeToString())
    size = path.stat().st_size if path.is_file() else 0
    found = []
    for command in commands:
        work = folder / command
        work.mkdir()
        more = case.options if command == "convert" else ()
        words = [*arguments(command, path, sound, case.data), *more, *case.limit]
        outcome = run(words, work, kind=kind_for(words))
        found += faults(case, command, outcome, work, size)
    return found
