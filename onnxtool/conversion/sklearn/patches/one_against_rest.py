"""One classifier for each class, or for each pair of classes: scores choose the label.

Of chances, those of one class and another may both be one. Source: scikit-learn, `sklearn.multiclass`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxtool.conversion.sklearn.converters.members import classified, logistic_of, score_columns, scores_of_pairs
from onnxtool.conversion.sklearn.converters.node_writer import DOUBLE, INT64, NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, extension


def _convert(write: NodeWriter, original: Callable[[], None]) -> None:
    model = write.step
    if model.multilabel_ or not all(hasattr(member, "decision_function") for member in model.estimators_):
        original()
        return
    scores = _columns(write, "decision_function")
    if len(model.estimators_) == 1:
        above = write.cast(write.add("Greater", scores, 0.0), INT64)
        write.give_labels(write.add("Reshape", above, np.array([-1])), model.classes_)
    else:
        write.give_labels(write.add("ArgMax", scores, axis=1, keepdims=0), model.classes_)
    if hasattr(model, "predict_proba"):
        scores = _columns(write, "predict_proba")
    if len(model.estimators_) == 1:
        other = write.add("Sub", 1.0, scores) if hasattr(model, "predict_proba") else write.add("Neg", scores)
        scores = write.columns([other, scores])
    elif hasattr(model, "predict_proba"):
        total = write.add("ReduceSum", scores, np.array([1]), keepdims=1)
        scores = write.add("Div", scores, write.add("Where", write.add("Equal", total, 0.0), 1.0, total))
    write.give(scores, write.outputs[1])


def _columns(write: NodeWriter, method: str) -> str:
    """[rows, members]: each one's score of its class; some members give another against it."""
    last, columns = np.array([-1]), []
    for member in write.step.estimators_:
        # The runtime's chances are float32: those of rows far from all classes would be 0.
        logistic = method == "predict_proba" and type(member).__name__ == "LogisticRegression"
        scores = score_columns(write, member, ("decision_function" if logistic else method,))
        column = write.add("Gather", scores, last, axis=1)
        columns.append(logistic_of(write, column) if logistic else column)
    return write.columns(columns)


def _convert_pairs(write: NodeWriter, _original: Callable[[], None]) -> None:
    last, labels, sums = np.array([-1]), [], []
    for estimator in write.step.estimators_:
        label, scores = classified(write, estimator, write.inputs, raw=hasattr(estimator, "decision_function"))
        labels.append(write.cast(write.add("Reshape", label, np.array([-1, 1])), DOUBLE))
        sums.append(write.add("Gather", scores, last, axis=1))
    classes = write.step.classes_
    write.give_most_likely(scores_of_pairs(write, write.columns(labels), write.columns(sums), len(classes)), classes)


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 chooses by chances, and takes the scores of linear machines for one column, and pairs have no texts",
    extension("sklearn.multiclass:OneVsRestClassifier", _convert),
    extension("sklearn.multiclass:OneVsOneClassifier", _convert_pairs),
)
