"""Chains of estimators of which each sees what those before it predict -> ONNX, which skl2onnx 1.20 lacks.

Source: scikit-learn, `sklearn.multioutput._BaseChain`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from onnxtool.conversion.sklearn.converters.members import classified, predicted
from onnxtool.conversion.sklearn.converters.node_writer import DOUBLE, INT64, NodeWriter
from onnxtool.conversion.sklearn.converters.register import number_type, register_classifier, register_transformer
from onnxtool.errors import UnsupportedError


@cache
def register() -> None:
    """Let skl2onnx convert them by these converters."""
    from sklearn.multioutput import ClassifierChain, RegressorChain

    register_transformer(RegressorChain, _convert_regressors, lambda chain: len(chain.estimators_))
    register_classifier(ClassifierChain, _convert_classifiers)


def _convert_regressors(scope: Any, operator: Any, container: Any) -> None:
    chain, write = operator.raw_operator, NodeWriter(scope, container, "chain")
    given: list[str] = []
    for member in chain.estimators_:
        seen = _seen(scope, write, operator, given)
        given.append(predicted(scope, container, member, [seen]))
    write.give(_ordered(write, chain, given), operator.outputs[0])


def _convert_classifiers(scope: Any, operator: Any, container: Any) -> None:
    chain, write = operator.raw_operator, NodeWriter(scope, container, "chain")
    if any(list(classes) != [0, 1] for classes in chain.classes_):
        raise UnsupportedError("ClassifierChain: other labels than 0 and 1 have no ONNX form here.")
    given: list[str] = []
    labels: list[str] = []
    chances: list[str] = []
    column, place = write.constant(np.array([1])), write.constant(np.array([-1, 1]))
    for member in chain.estimators_:
        seen = _seen(scope, write, operator, given)
        label, scores = classified(scope, container, member, [seen])
        labels.append(write.add("Reshape", write.cast(label, DOUBLE), place))
        chances.append(write.add("Gather", scores, column, axis=1))
        given.append(_fed(chain, labels, chances))
    write.cast(_ordered(write, chain, labels), INT64, operator.outputs[0].full_name)
    write.give(_ordered(write, chain, chances), operator.outputs[1])


def _fed(chain: Any, labels: list[str], chances: list[str]) -> str:
    """What those that come later see of the last one."""
    if chain.chain_method_ not in ("predict", "predict_proba"):
        raise UnsupportedError(f"ClassifierChain: chain_method={chain.chain_method_!r} has no ONNX form here.")
    return labels[-1] if chain.chain_method_ == "predict" else chances[-1]


def _seen(scope: Any, write: NodeWriter, operator: Any, given: list[str]) -> Any:
    """The features and what was predicted before, as a variable."""
    kind = number_type(operator.inputs[0].type)
    width = len(given) + int(operator.raw_operator.n_features_in_)
    seen = scope.declare_local_variable("seen", kind([None, width]))
    features = write.joined(operator.inputs)
    write.give(write.add("Concat", features, *given, axis=1) if given else features, seen)
    seen.init_status(is_fed=True)
    return seen


def _ordered(write: NodeWriter, chain: Any, columns: list[str]) -> str:
    """The columns as the targets stood, which the chain may take in another order."""
    return write.add("Concat", *(columns[list(chain.order_).index(i)] for i in range(len(columns))), axis=1)
