"""What the ONNX file of an estimator gives, mostly without the proof: tests hold it against scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from onnxtool.conversion.convert import convert
from onnxtool.runtime.runner import OnnxRunner


def run_converted(
    model: Any, folder: Path, *inputs: np.ndarray, prove: bool = False, **settings: Any
) -> list[np.ndarray]:
    """The file's outputs for inputs in their order; with `prove` the proof has to hold as well."""
    report = convert(model, folder / "out.onnx", verify_result=prove, effort="quick", **settings)
    assert report.ok
    runner = OnnxRunner.open(folder / "out.onnx")
    assert len(inputs) == len(runner.inputs)
    feeds = {spec.name: rows for spec, rows in zip(runner.inputs, inputs, strict=True)}
    return list(runner.run(feeds).values())
