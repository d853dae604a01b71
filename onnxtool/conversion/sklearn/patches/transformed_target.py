"""TransformedTargetRegressor: the regressor, then the way back."""

from __future__ import annotations

import numpy as np

from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.sklearn.converters.members import predicted
from onnxtool.conversion.sklearn.converters.node_writer import NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, transformer
from onnxtool.conversion.sklearn.converters.traced_functions import traced
from onnxtool.conversion.sklearn.patches.exact_columns import scaler_steps
from onnxtool.conversion.sklearn.patches.isotonic import on_lines
from onnxtool.conversion.sklearn.patches.numpy_functions import written
from onnxtool.conversion.sklearn.patches.quantiles import normal_share
from onnxtool.conversion.sklearn.source_columns import SCALERS
from onnxtool.errors import UnsupportedError

_INVERSES = {"Add": "Sub", "Sub": "Add", "Mul": "Div", "Div": "Mul"}


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
        function = transformer.inverse_func
        return value if function is None else traced(write, function, value, written)
    if name == "Pipeline":
        for _, step in reversed(transformer.steps):
            value = _back(write, step, value)
        return value
    if name == "PowerTransformer":
        value = _back(write, transformer._scaler, value) if transformer.standardize else value
        return _powered_back(write, transformer, value)
    if name == "QuantileTransformer":
        value = normal_share(write, value) if transformer.output_distribution == "normal" else value
        quantiles = np.ascontiguousarray(np.asarray(transformer.quantiles_, np.float64).T)
        return on_lines(write, value, np.broadcast_to(transformer.references_, quantiles.shape), quantiles)
    if name in SCALERS:
        for kind, numbers in reversed(scaler_steps(transformer)):
            value = write.add(_INVERSES[kind], value, numbers)
        return value
    raise UnsupportedError(f"TransformedTargetRegressor: its transformer {name} has no ONNX form here.")


def _powered_back(write: NodeWriter, transformer: Estimator, value: str) -> str:
    """The numbers whose powers, less one and over the exponent, are a value; exponentials where an exponent is zero."""
    lambdas = np.asarray(transformer.lambdas_, np.float64)
    if transformer.method == "box-cox":
        return _root(write, value, lambdas)
    above = write.add("Sub", _root(write, value, lambdas), 1.0)
    below = write.add("Sub", 1.0, _root(write, write.add("Neg", value), 2 - lambdas))
    return write.add("Where", write.add("GreaterOrEqual", value, 0.0), above, below)


def _root(write: NodeWriter, value: str, exponents: np.ndarray) -> str:
    zero = np.abs(exponents) < np.spacing(1.0)
    some = np.where(zero, 1.0, exponents)
    power = write.add("Pow", write.add("Add", write.add("Mul", value, some), 1.0), 1 / some)
    return write.add("Where", zero, write.add("Exp", value), power) if zero.any() else power


PATCH = converter_patch(
    "",
    "skl2onnx 1.20 has no converter for it",
    transformer("sklearn.compose:TransformedTargetRegressor", _convert, _targets),
)
