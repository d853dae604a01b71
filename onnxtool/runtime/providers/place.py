"""`inspect --placement`: where each node of a model runs."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np
import onnxruntime

from onnxtool.model.file import ModelFile
from onnxtool.model.io.in_memory import ModelLike, takes_models
from onnxtool.report.measurement.placement import PlacementReport
from onnxtool.runtime.providers.placement import placement
from onnxtool.runtime.run import chosen_feeds
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import DEFAULT, SessionOptions


@takes_models("model")
def place(
    model: ModelLike,
    *,
    data: str | os.PathLike[str] | Mapping[str, np.ndarray] | None = None,
    batch: int | None = None,
    seed: int = 0,
    options: SessionOptions = DEFAULT,
    required: bool = False,
) -> PlacementReport:
    """Run a model on the providers asked for, and account for each of its nodes.

    Args:
        model: an .onnx file, or a model in memory.
        data: inputs, as for `run`; seeded random ones unless given.
        batch: size of the first dim of random inputs where it is dynamic.
        seed: of random inputs.
        options: the providers, and how to run the model.
        required: whether a fallback makes the verdict bad.

    Raises:
        InputError, UnsupportedError, UsageError: as `run`.
    """
    file = ModelFile.of(model)
    file.verify()
    plain = SessionOptions(threads=options.threads, custom_op_libraries=options.custom_op_libraries)
    given = chosen_feeds(OnnxRunner.open(file, plain), data, None, batch, seed, "")
    return PlacementReport(
        placement=placement(file, given.feeds[0], options),
        data=given.origin,
        runtime=f"onnxruntime {onnxruntime.__version__}",
        required=required,
    )
