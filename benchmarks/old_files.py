"""Files of opsets 1 to 6 that come with the onnx package, with its own data, through check, run, edit and optimize.

    python benchmarks/old_files.py [--opset 17]

PyTorch wrote them in 2017. Each must be valid, run, be written in a later operator set and be optimized, and give the
recorded outputs each time. Prints how many do, and each that does not; exit 1 when there are any.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

import onnxtool
from onnxtool.errors import OnnxToolError
from onnxtool.model.io import old_opset
from onnxtool.runtime.runner import OnnxRunner

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"


def arrays(folder: Path, kind: str) -> list[np.ndarray]:
    """The inputs or outputs that a folder holds, in their order."""
    found = sorted(folder.glob(f"{kind}_*.pb"))
    return [numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes())) for path in found]


def is_right(path: Path, folders: list[Path]) -> bool:
    """Whether a file gives the recorded outputs."""
    runner = OnnxRunner.open(path)
    for folder in folders:
        feeds = dict(zip((i.name for i in runner.inputs), arrays(folder, "input"), strict=True))
        found = zip(runner.run(feeds).values(), arrays(folder, "output"), strict=True)
        if not all(np.allclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True) for a, b in found):
            return False
    return True


def tries(source: Path, out: Path, opset: int) -> Iterator[tuple[str, Callable[[], bool]]]:
    """What is done with a file, and whether it is right then."""
    folders = sorted(source.parent.glob("test_data_set_*"))
    yield "check", lambda: onnxtool.check(source).ok
    yield "run", lambda: is_right(source, folders)
    yield "edit", lambda: bool(onnxtool.edit(source, out, [f"opset={opset}"])) and is_right(out, folders)
    yield "optimize", lambda: onnxtool.optimize(source, out, bench=False).ok and is_right(out, folders)


def main() -> int:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--opset", type=int, default=17)
    asked = parser.parse_args()
    counts: Counter[str] = Counter()
    sources = [path for path in sorted(DATA.glob("*/*/model.onnx")) if old_opset(path)]
    with tempfile.TemporaryDirectory() as folder:
        for source in sources:
            for what, go in tries(source, Path(folder) / "out.onnx", asked.opset):
                try:
                    right, why = go(), "wrong"
                except OnnxToolError as error:
                    right, why = False, str(error)
                counts[what] += right
                if not right:
                    print(f"{source.parent.name}: {what}: {why}")
    print("| | right |\n|---|---|")
    for what in ("check", "run", "edit", "optimize"):
        print(f"| {what} | {counts[what]} of {len(sources)} |")
    return int(any(count < len(sources) for count in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
