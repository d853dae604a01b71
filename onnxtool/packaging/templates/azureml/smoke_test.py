"""Runs the scoring script as Azure does, and holds its answers against the recorded outputs.

python smoke_test.py
"""

import json
import os
import sys
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent
RTOL, ATOL = 1e-3, 1e-5
os.environ["AZUREML_MODEL_DIR"] = str(FOLDER / "model")
sys.path.insert(0, str(FOLDER / "src"))

import score  # noqa: E402


def run(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    score.init()
    outputs = score.run(json.dumps({"inputs": {n: a.tolist() for n, a in inputs.items()}}))["outputs"]
    types = {o.name: score.DTYPES[o.type] for o in score.session.get_outputs()}
    types = {name: object if kind == "string" else kind for name, kind in types.items()}
    return {n: np.array(json.loads(json.dumps(v)), dtype=types[n]) for n, v in outputs.items()}


def equal(expected: np.ndarray, got: np.ndarray) -> bool:
    if expected.dtype.kind != "f":
        return np.array_equal(got, expected)
    scale = np.abs(expected).max(initial=0)
    return got.shape == expected.shape and np.allclose(got, expected, RTOL, ATOL * scale, equal_nan=True)


def main() -> int:
    for path in sorted(FOLDER.glob("golden/*.npz")):
        arrays = dict(np.load(path))
        got = run({n[6:]: a for n, a in arrays.items() if n.startswith("input/")})
        for name, expected in ((n[7:], a) for n, a in arrays.items() if n.startswith("output/")):
            if not equal(expected, got[name]):
                print(f"{path.name}: output {name!r} differs")
                return 1
        print(f"{path.name}: equal")
    return 0


if __name__ == "__main__":
    sys.exit(main())
