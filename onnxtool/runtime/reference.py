"""The ONNX project's reference implementation as a Runner: slow, independent of the runtime."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxtool.errors import UnsupportedError
from onnxtool.model.file import ModelFile

_LARGEST = 1 << 30


class ReferenceRunner:
    """An ONNX model evaluated by `onnx.reference`, node by node, with numpy."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open a model.

        Raises:
            InputError: it cannot be read.
            UnsupportedError: it is too large, or has operators that the reference implementation lacks.
        """
        from onnx.reference import ReferenceEvaluator

        file = ModelFile(path)
        file.verify()
        if file.bytes > _LARGEST:
            raise UnsupportedError(f"{path}: larger than 1 GB, which the reference implementation cannot handle.")
        self.inputs, self.outputs = file.inputs, file.outputs
        try:
            self._evaluator = ReferenceEvaluator(str(file))
        except Exception as error:
            raise _lacking(path, error) from error
        self._path = path

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """One forward pass.

        Raises:
            UnsupportedError: an operator that the reference implementation lacks or fails on.
        """
        try:
            with np.errstate(all="ignore"):
                values = self._evaluator.run(None, dict(feeds))
        except Exception as error:
            raise _lacking(self._path, error) from error
        return {spec.name: value for spec, value in zip(self.outputs, values, strict=True)}


def _lacking(path: str | os.PathLike[str], error: Exception) -> UnsupportedError:
    told = " ".join(str(error).split())[:300] or type(error).__name__
    return UnsupportedError(f"{path}: the reference implementation cannot run it: {told}")
