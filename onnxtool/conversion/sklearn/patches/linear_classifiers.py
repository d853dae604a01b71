"""Classifiers by weighted sums of the features, in doubles.

The label is that of the largest score: several chances may be 1.

Source: scikit-learn, `sklearn.linear_model._base.LinearClassifierMixin`, `predict_proba` of each, and `predict` of
RidgeClassifier for several labels.
"""

from __future__ import annotations

import numpy as np

from onnxtool.conversion.sklearn.converters.members import logistic_of
from onnxtool.conversion.sklearn.converters.node_writer import INT64, NodeWriter
from onnxtool.conversion.sklearn.converters.register import classifier, converter_patch


def _convert(write: NodeWriter) -> None:
    model, (label, scores_out) = write.step, write.outputs
    weights = np.atleast_2d(np.asarray(model.coef_, np.float64))
    sums = write.add("MatMul", write.joined(), np.ascontiguousarray(weights.T))
    scores = write.add("Add", sums, np.asarray(model.intercept_, np.float64).reshape(1, -1))
    each = scores
    if getattr(getattr(model, "_label_binarizer", None), "y_type_", "").startswith("multilabel"):
        write.give(write.cast(write.add("Greater", scores, 0.0), INT64), label)
    else:
        each = scores if len(weights) > 1 else write.columns([write.add("Neg", scores), scores])
        write.give_labels(write.add("ArgMax", each, axis=1, keepdims=0), model.classes_)
    if write.gives_scores:
        write.give(each, scores_out)
    elif len(weights) == 1:
        chances = _chances(write, scores)
        write.give(write.columns([write.add("Sub", 1.0, chances), chances]), scores_out)
    elif type(model).__name__ == "SGDClassifier":
        chances = _chances(write, scores)
        total = write.add("ReduceSum", chances, np.array([1]), keepdims=1)
        nothing = write.add("Equal", total, 0.0)
        shares = write.add("Div", chances, write.add("Where", nothing, 1.0, total))
        write.give(write.add("Where", nothing, 1 / len(model.classes_), shares), scores_out)
    else:
        write.give(write.add("Softmax", scores, axis=1), scores_out)


def _chances(write: NodeWriter, scores: str) -> str:
    if getattr(write.step, "loss", "") != "modified_huber":
        return logistic_of(write, scores)
    clipped = write.add("Max", write.add("Min", scores, 1.0), -1.0)
    return write.add("Div", write.add("Add", clipped, 1.0), 2.0)


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 takes labels from chances that are rounded, and several labels of RidgeClassifier for classes",
    *(
        classifier(f"sklearn.{kind}", _convert)
        for kind in (
            *("linear_model:LogisticRegression", "linear_model:LogisticRegressionCV", "linear_model:RidgeClassifier"),
            *("linear_model:RidgeClassifierCV", "linear_model:SGDClassifier", "linear_model:Perceptron"),
            *("linear_model:PassiveAggressiveClassifier", "svm:LinearSVC"),
            "discriminant_analysis:LinearDiscriminantAnalysis",
        )
    ),
)
