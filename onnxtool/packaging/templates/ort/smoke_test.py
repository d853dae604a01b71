"""Runs the model of this folder and holds its answers against the recorded outputs.

python smoke_test.py
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort

FOLDER = Path(__file__).parent
RTOL, ATOL = 1e-3, 1e-5


def run(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = ort.InferenceSession(str(FOLDER / "model.ort"), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def equal(expected: np.ndarray, got: np.ndarray) -> bool:
    if expected.dtype.kind != "f":
        return np.array_equal(got, expected)
    scale = np.abs(expected).max(initial=0)
    return got.shape == expected.shape and np.allclose(got, expected, RTOL, ATOL * scale, equal_nan=True)


def main() -> int:
    for path in sorted(FOLDER.glob("golden/*.npz")):
        arrays = {n: a.astype(object) if a.dtype.kind == "U" else a for n, a in np.load(path).items()}
        got = run({n[6:]: a for n, a in arrays.items() if n.startswith("input/")})
        for name, expected in ((n[7:], a) for n, a in arrays.items() if n.startswith("output/")):
            if not equal(expected, got[name]):
                print(f"{path.name}: output {name!r} differs")
                return 1
        print(f"{path.name}: equal")
    return 0


if __name__ == "__main__":
    sys.exit(main())
