"""Networks of layers, in doubles.

Source: scikit-learn, `sklearn.neural_network`: one chance or several labels are decided at one half.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxtool.conversion.sklearn.converters.members import logistic_of
from onnxtool.conversion.sklearn.converters.node_writer import INT64, NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, extension

_OPERATORS = {"relu": "Relu", "tanh": "Tanh"}


def _layers(write: NodeWriter) -> str:
    """What the last layer gives, [rows, outputs]."""
    network, value = write.step, write.joined()
    kinds = [network.activation] * (len(network.coefs_) - 1) + [network.out_activation_]
    for weights, start, kind in zip(network.coefs_, network.intercepts_, kinds, strict=True):
        product = write.add("MatMul", value, np.asarray(weights, np.float64))
        value = write.add("Add", product, np.asarray(start, np.float64).reshape(1, -1))
        if kind == "logistic":
            value = logistic_of(write, value)
        elif kind == "softmax":
            value = write.add("Softmax", value, axis=1)
        elif kind != "identity":
            value = write.add(_OPERATORS[kind], value)
    return value


def _convert_regressor(write: NodeWriter, _original: Callable[[], None]) -> None:
    write.give(_layers(write))


def _convert_classifier(write: NodeWriter, _original: Callable[[], None]) -> None:
    network, chances = write.step, _layers(write)
    if network.out_activation_ == "softmax":
        write.give_most_likely(chances, network.classes_)
        return
    above = write.cast(write.add("Greater", chances, 0.5), INT64)
    if network._label_binarizer.y_type_.startswith("multilabel"):
        write.give(above)
        write.give(chances, write.outputs[1])
        return
    write.give_labels(write.add("Squeeze", above, np.array([1])), network.classes_)
    write.give(write.columns([write.add("Sub", 1.0, chances), chances]), write.outputs[1])


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 takes two labels of a network for two classes, and adds the chances against each",
    extension("sklearn.neural_network:MLPClassifier", _convert_classifier),
    extension("sklearn.neural_network:MLPRegressor", _convert_regressor, lambda network: network.n_outputs_),
)
