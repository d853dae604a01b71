"""One classifier for each class, for each pair of classes, or for each bit of a code: scores choose the label.

Of chances, those of one class and another may both be one. Source: scikit-learn, `sklearn.multiclass`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxtool.conversion.sklearn.converters.members import classified, score_columns, scores_of_pairs
from onnxtool.conversion.sklearn.converters.node_writer import DOUBLE, INT64, NodeWriter
from onnxtool.conversion.sklearn.converters.register import classifier, converter_patch, extension


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
    if not write.gives_scores:
        scores = _columns(write, "predict_proba")
    if len(model.estimators_) == 1:
        other = write.add("Neg", scores) if write.gives_scores else write.add("Sub", 1.0, scores)
        scores = write.columns([other, scores])
    elif not write.gives_scores:
        total = write.add("ReduceSum", scores, np.array([1]), keepdims=1)
        scores = write.add("Div", scores, write.add("Where", write.add("Equal", total, 0.0), 1.0, total))
    write.give(scores, write.outputs[1])


def _columns(write: NodeWriter, *methods: str) -> str:
    """[rows, members]: each one's score of its class; some members give another against it."""
    columns = []
    for member in write.step.estimators_:
        if type(member).__name__ == "_ConstantPredictor":  # of a class that all rows had, or none
            columns.append(write.on_all_rows(np.full((1, 1), float(member.y_[0]))))
        else:
            columns.append(write.add("Gather", score_columns(write, member, methods), np.array([-1]), axis=1))
    return write.columns(columns)


def _convert_pairs(write: NodeWriter, _original: Callable[[], None]) -> None:
    last, labels, sums = np.array([-1]), [], []
    for estimator in write.step.estimators_:
        label, scores = classified(write, estimator, write.inputs, raw=hasattr(estimator, "decision_function"))
        labels.append(write.cast(write.add("Reshape", label, np.array([-1, 1])), DOUBLE))
        sums.append(write.add("Gather", scores, last, axis=1))
    classes = write.step.classes_
    write.give_most_likely(scores_of_pairs(write, write.columns(labels), write.columns(sums), len(classes)), classes)


def _convert_codes(write: NodeWriter) -> None:
    """The class whose code is nearest to what the members say."""
    model = write.step
    codes = np.asarray(model.code_book_, np.float64)
    # As scikit-learn has it, without the squares of what they say: codes may be equally near.
    products = write.add("MatMul", _columns(write, "decision_function", "predict_proba"), -2 * codes.T)
    apart = write.add("Add", products, (codes**2).sum(axis=1)[None])
    write.give_labels(write.add("ArgMin", apart, axis=1, keepdims=0), model.classes_)
    write.give(write.add("Neg", apart), write.outputs[1])


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 chooses by chances, and takes the scores of linear machines for one column, and pairs have no texts",
    extension("sklearn.multiclass:OneVsRestClassifier", _convert),
    extension("sklearn.multiclass:OneVsOneClassifier", _convert_pairs),
    classifier("sklearn.multiclass:OutputCodeClassifier", _convert_codes),
)
