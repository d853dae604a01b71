"""Every operation of `edit` on every hostile model file of tests/hostile: one line, the right kind of exit code.

    python benchmarks/edit_hostile.py [PART/OF]

Prints what breaks a promise of docs/security.md, and how many commands were run.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.command_server import run
from tests.hostile.corpus import corpus
from tests.hostile.edits import faults, lines


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
