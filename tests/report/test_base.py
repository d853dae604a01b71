"""Reports as plain data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onnxtool.report import Report, TensorInfo


@dataclass(frozen=True)
class Sample(Report):
    kind = "sample"
    version = 3
    value: Any


def test_everything_becomes_json() -> None:
    value = {
        "path": Path("a/b"),
        "scalar": np.float32(0.5),
        "array": np.arange(3),
        "nan": float("nan"),
        "inf": -np.inf,
        "spec": TensorInfo("x", "float32", (1, "n", None)),
        "bytes": b"\x01\xff",
        "set": (True, None),
    }
    plain = json.loads(json.dumps(Sample(value).to_dict(), allow_nan=False))
    assert plain["schema"] == "onnxtool/sample/3"
    assert plain["ok"] is True
    assert plain["value"] == {
        "path": "a/b",
        "scalar": 0.5,
        "array": [0, 1, 2],
        "nan": "NaN",
        "inf": "-Infinity",
        "spec": {"name": "x", "dtype": "float32", "shape": [1, "n", None]},
        "bytes": "01ff",
        "set": [True, None],
    }
