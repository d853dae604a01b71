"""Classifiers of two classes with a threshold of their own.

Source: scikit-learn, `sklearn.model_selection._classification_threshold`.
"""

from __future__ import annotations

import numpy as np

from onnxtool.conversion.sklearn.converters.members import score_columns
from onnxtool.conversion.sklearn.converters.node_writer import INT64, NodeWriter
from onnxtool.conversion.sklearn.converters.register import classifier, converter_patch


def _convert(write: NodeWriter) -> None:
    model = write.step
    inner = model.estimator_
    methods = ("predict_proba", "decision_function") if model.response_method == "auto" else (model.response_method,)
    scores = score_columns(write, inner, methods)
    chances = hasattr(inner, "predict_proba") and methods[0] == "predict_proba"
    threshold = getattr(model, "best_threshold_", getattr(model, "threshold", "auto"))
    threshold = (0.5 if chances else 0.0) if threshold == "auto" else float(threshold)
    classes = list(model.classes_)
    positive = 1 if getattr(model, "pos_label", None) is None else classes.index(model.pos_label)
    column = write.add("Gather", scores, np.array([1 if not chances else positive]), axis=1)
    if not chances and positive == 0:
        column = write.add("Neg", column)
    above = write.add("GreaterOrEqual", column, threshold)
    above = write.add("Reshape", write.cast(above, INT64), np.array([-1]))
    write.give_labels(write.add("Gather", np.array([1 - positive, positive]), above, axis=0), model.classes_)
    if chances == write.gives_scores:
        scores = score_columns(write, inner, ("decision_function" if chances else "predict_proba",))
    write.give(scores, write.outputs[1])


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 leaves the threshold out",
    classifier("sklearn.model_selection:FixedThresholdClassifier", _convert),
    classifier("sklearn.model_selection:TunedThresholdClassifierCV", _convert),
)
