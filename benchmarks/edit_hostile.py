"""Every operation of `edit` on every hostile model file of tests/hostile: one line, the right kind of exit code.

    python benchmarks/edit_hostile.py [PART/OF]

Prints what breaks a promise of docs/security.md, and how many commands were run.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.hostile.corpus import corpus
from tests.hostile.driver import Outcome, run

_SECONDS = 30.0


def lines(path: Path) -> Iterator[list[str]]:
    """Operations that fit the file, as far as it can be read."""
    yield ["--opset", "18", "--doc", "x"]
    yield ["--external-data", "always", "--metadata", "a=b"]
    try:
        graph = onnx.load(path, load_external_data=False).graph
        weights = {t.name for t in graph.initializer}
        given = next(v for v in graph.input if v.name not in weights)
        name, dims = given.name, [str(d.dim_value or 3) for d in given.type.tensor_type.shape.dim]
        output = graph.output[0].name
    except Exception:
        return
    if dims:
        yield ["--set-shape", f"{name}:{','.join(['batch', *dims[1:]])}"]
    for operation, value in (
        ("io-dtype", f"{name}:float16"), ("layout", f"{name}:nhwc"), ("rename-input", f"{name}=other"),
        ("extract", f"{name}:{output}"), ("post", "softmax"), ("pre", f"{name}: u8"), ("append", str(path)),
        ("strip-weights", "w.safetensors"),
    ):  # fmt: skip
        yield [f"--{operation}", value]


def faults(outcome: Outcome, folder: Path) -> list[str]:
    """What a command did wrong."""
    found = []
    if outcome.code not in range(7):
        found.append(f"exit {outcome.code}")
    if "Traceback" in outcome.stderr + outcome.stdout:
        found.append("a traceback")
    if outcome.code and len(outcome.stderr.splitlines()) != 1:
        found.append(f"{len(outcome.stderr.splitlines())} lines of errors")
    if outcome.code and list(folder.iterdir()):
        found.append("something is left")
    if outcome.busy > _SECONDS:
        found.append(f"{outcome.busy:.0f} s")
    if any(c in outcome.stdout + outcome.stderr for c in "\x1b\x07\u202e\u2066"):
        found.append("control characters reach the terminal")
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    part, of = (int(n) for n in (sys.argv[1] if len(sys.argv) > 1 else "0/1").split("/"))
    count = wrong = 0
    for number, case in enumerate(corpus()):
        if case.data or "optimize" not in case.commands or number % of != part:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            source = Path(scratch) / "source"
            source.mkdir()
            path = case.write(source)
            for index, line in enumerate(lines(path)):
                work = Path(scratch) / f"work{index}"
                work.mkdir()
                count += 1
                outcome = run(["edit", str(path), "-o", "out.onnx", *line], work)
                for fault in faults(outcome, work):
                    wrong += 1
                    print(f"{case.name}: {' '.join(line)}: {fault} | {outcome.stderr[-200:].strip()}", flush=True)
    print(f"{count} commands, {wrong} faults")


if __name__ == "__main__":
    main()
