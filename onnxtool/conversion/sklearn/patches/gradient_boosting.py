"""Sums of gradient boosting: what they begin with, and the exponential that they stand for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import numpy_helper

from onnxtool.conversion.sklearn.converters.node_writer import NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, extension, number_type


def _convert(write: NodeWriter, original: Callable[[], None]) -> None:
    start, model = len(write.container.nodes), write.step
    if type(model).__name__ == "HistGradientBoostingRegressor" and model.loss in ("poisson", "gamma"):
        sums = write.variable("sums", number_type(write.inputs[0].type)())
        with write.standing_in(model, [sums]):
            original()
        write.give(write.add("Exp", sums.full_name))
    else:
        original()
    begin = np.asarray(getattr(model, "_baseline_prediction", 0.0), np.float64).ravel()
    for node in write.container.nodes[start:]:
        for attribute in [a for a in node.attribute if a.name == "base_values_as_tensor"]:
            numbers = numpy_helper.to_array(attribute.t)
            if not numbers.any():
                node.attribute.remove(attribute)
            elif np.array_equal(np.float32(numbers), np.float32(begin)):
                attribute.t.CopyFrom(numpy_helper.from_array(begin, attribute.t.name))


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 writes one zero to begin at for several classes, rounds what the sums begin with to float32, and "
    "stops at the sum of leaves",
    *(
        extension(f"sklearn.ensemble:{kind}GradientBoosting{of}", _convert)
        for kind in ("", "Hist")
        for of in ("Classifier", "Regressor")
    ),
)
