"""TransformedTargetRegressor: the regressor, then the way back."""

from __future__ import annotations

import numpy as np

from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.sklearn.converters.members import predicted
from onnxtool.conversion.sklearn.converters.node_writer import NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, transformer
from onnxtool.conversion.sklearn.patches.numpy_functions import written
from onnxtool.errors import UnsupportedError


def _convert(write: NodeWriter) -> None:
    model = write.step
    # Exponentials of a float32 would lose what the regressor has.
    write.give(_back(write, model.transformer_, predicted(write, model.regressor_, write.inputs, _targets(model))))


def _targets(model: Estimator) -> int:
    return 1 if model._training_dim == 1 else int(model.transformer_.n_features_in_)


def _back(write: NodeWriter, transformer: Estimator, value: str) -> str:
    """What the inverse of a transformer of the target makes of a value.

    Raises:
        UnsupportedError: a transformer, or a function, without an ONNX form here.
    """
    name = type(transformer).__name__
    if name == "FunctionTransformer":
        found = written(write, transformer.inverse_func, value)
        if found is None:
            what = getattr(transformer.inverse_func, "__name__", repr(transformer.inverse_func))
            raise UnsupportedError(f"TransformedTargetRegressor: its inverse_func {what!r} has no ONNX form here.")
        return found
    if name == "StandardScaler":
        scale = np.ones(1) if transformer.scale_ is None else transformer.scale_
        mean = np.zeros(1) if transformer.mean_ is None else transformer.mean_
        return write.add("Add", write.add("Mul", value, np.float64(scale)), np.float64(mean))
    if name == "MinMaxScaler":
        shifted = write.add("Sub", value, np.float64(transformer.min_))
        return write.add("Div", shifted, np.float64(transformer.scale_))
    raise UnsupportedError(f"TransformedTargetRegressor: its transformer {name} has no ONNX form here.")


PATCH = converter_patch(
    "",
    "skl2onnx 1.20 has no converter for it",
    transformer("sklearn.compose:TransformedTargetRegressor", _convert, _targets),
)
