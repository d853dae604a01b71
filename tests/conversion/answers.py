"""What a converted file gives for rows, whatever its precision."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from onnxtool.runtime.runner import OnnxRunner


def outputs(path: Path, rows: np.ndarray) -> list[np.ndarray]:
    """All outputs, in order; rows of float32 are widened where the file takes float64."""
    runner = OnnxRunner.open(path)
    return list(runner.run({runner.inputs[0].name: rows}).values())
