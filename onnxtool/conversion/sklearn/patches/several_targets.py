"""One estimator for each target: side by side, or a chain of which each sees what those before it predict.

Source: scikit-learn, `sklearn.multioutput._BaseChain`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.sklearn.converters.members import classified, predicted
from onnxtool.conversion.sklearn.converters.node_writer import DOUBLE, FLOAT, INT64, NodeWriter
from onnxtool.conversion.sklearn.converters.register import (
    classifier,
    converter_patch,
    extension,
    number_type,
    transformer,
)
from onnxtool.errors import UnsupportedError


def _convert_each_regressor(write: NodeWriter, _: Callable[[], None]) -> None:
    write.give(write.columns([predicted(write, member, write.inputs) for member in write.step.estimators_]))


def _convert_each_classifier(write: NodeWriter, _: Callable[[], None]) -> None:
    """Labels [rows, targets], and a sequence of the chances of each."""
    found = [classified(write, member, write.inputs) for member in write.step.estimators_]
    labels, scores = write.outputs
    columns = [write.add("Reshape", label, np.array([-1, 1])) for label, _ in found]
    write.add("Concat", *columns, axis=1, name=labels.full_name)
    parts = [write.cast(each, FLOAT) for _, each in found]
    write.add("SequenceConstruct", *parts, name=scores.full_name)


def _convert_regressors(write: NodeWriter) -> None:
    given: list[str] = []
    for member in write.step.estimators_:
        given.append(predicted(write, member, [_seen(write, given)]))
    write.give(_ordered(write, given))


def _convert_classifiers(write: NodeWriter) -> None:
    chain = write.step
    if any(list(classes) != [0, 1] for classes in chain.classes_):
        raise UnsupportedError("ClassifierChain: other labels than 0 and 1 have no ONNX form here.")
    given: list[str] = []
    labels: list[str] = []
    chances: list[str] = []
    for member in chain.estimators_:
        label, scores = classified(write, member, [_seen(write, given)])
        labels.append(write.add("Reshape", write.cast(label, DOUBLE), np.array([-1, 1])))
        chances.append(write.add("Gather", scores, np.array([1]), axis=1))
        given.append(_fed(chain, labels, chances))
    write.cast(_ordered(write, labels), INT64, write.outputs[0].full_name)
    write.give(_ordered(write, chances), write.outputs[1])


def _fed(chain: Estimator, labels: list[str], chances: list[str]) -> str:
    """What those that come later see of the last one."""
    if chain.chain_method_ not in ("predict", "predict_proba"):
        raise UnsupportedError(f"ClassifierChain: chain_method={chain.chain_method_!r} has no ONNX form here.")
    return labels[-1] if chain.chain_method_ == "predict" else chances[-1]


def _seen(write: NodeWriter, given: list[str]) -> Any:
    """The features and what was predicted before, as a variable."""
    kind = number_type(write.inputs[0].type)
    seen = write.variable("seen", kind([None, len(given) + int(write.step.n_features_in_)]))
    write.give(write.columns([write.joined(), *given]), seen)
    seen.init_status(is_fed=True)
    return seen


def _ordered(write: NodeWriter, columns: list[str]) -> str:
    """The columns as the targets stood, which the chain may take in another order."""
    order = list(write.step.order_)
    return write.add("Concat", *(columns[order.index(i)] for i in range(len(columns))), axis=1)


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 has no converter for chains, and gives others the first of several columns alone",
    extension("sklearn.multioutput:MultiOutputRegressor", _convert_each_regressor),
    extension("sklearn.multioutput:MultiOutputClassifier", _convert_each_classifier),
    transformer("sklearn.multioutput:RegressorChain", _convert_regressors, lambda chain: len(chain.estimators_)),
    classifier("sklearn.multioutput:ClassifierChain", _convert_classifiers),
)
