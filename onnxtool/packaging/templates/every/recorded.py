"""Holds answers against the recorded outputs in golden/*.npz."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent
RTOL, ATOL = 1e-3, 1e-5
Arrays = Mapping[str, np.ndarray]


def differs(expected: np.ndarray, got: np.ndarray) -> bool:
    if expected.dtype.kind != "f":
        return not np.array_equal(got, expected)
    scale = np.abs(expected[np.isfinite(expected)]).max(initial=0)
    return got.shape != expected.shape or not np.allclose(got, expected, RTOL, ATOL * scale, equal_nan=True)


def compare(run: Callable[[Arrays], Arrays]) -> int:
    """0 when all outputs are equal, else 1."""
    for path in sorted(FOLDER.glob("golden/*.npz")):
        arrays = {n: a.astype(object) if a.dtype.kind == "U" else a for n, a in np.load(path).items()}
        got = run({n[6:]: a for n, a in arrays.items() if n.startswith("input/")})
        for name, expected in ((n[7:], a) for n, a in arrays.items() if n.startswith("output/")):
            if differs(expected, got[name]):
                print(f"{path.name}: output {name!r} differs")
                return 1
        print(f"{path.name}: equal")
    return 0
