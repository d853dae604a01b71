"""Models whose inputs and outputs are float16 beside the float32 model that they came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxtool.runtime.runner import OnnxRunner


def fit_dtypes(runner: OnnxRunner, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Feeds in the float dtypes that a model takes."""
    wanted = {s.name: s.dtype for s in runner.inputs}
    return {name: _fit(array, wanted.get(name)) for name, array in feeds.items()}


def _fit(array: np.ndarray, dtype: np.dtype | str | None) -> np.ndarray:
    floats = isinstance(dtype, np.dtype) and dtype.kind == "f" and array.dtype.kind == "f"
    return array.astype(dtype) if floats and array.dtype != dtype else array


class CastingRunner(OnnxRunner):
    """Takes float32 feeds and gives float32 outputs, whatever float type the model itself has."""

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """One forward pass; raises as `OnnxRunner.run`."""
        outputs = super().run(fit_dtypes(self, feeds))
        half = np.dtype("float16")
        return {
            name: value.astype(np.float32) if isinstance(value, np.ndarray) and value.dtype == half else value
            for name, value in outputs.items()
        }
