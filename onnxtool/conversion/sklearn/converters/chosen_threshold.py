"""Classifiers of two classes with a threshold of their own -> ONNX. skl2onnx 1.20 leaves the threshold out.

Source: scikit-learn, `sklearn.model_selection._classification_threshold`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from onnxtool.conversion.sklearn.converters.members import score_columns
from onnxtool.conversion.sklearn.converters.node_writer import INT64, NodeWriter
from onnxtool.conversion.sklearn.converters.register import register_classifier


@cache
def register() -> None:
    """Let skl2onnx convert them by this converter."""
    from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV

    for kind in (FixedThresholdClassifier, TunedThresholdClassifierCV):
        register_classifier(kind, _convert)


def _convert(scope: Any, operator: Any, container: Any) -> None:
    model = operator.raw_operator
    inner, write = model.estimator_, NodeWriter(scope, container, "threshold")
    methods = ("predict_proba", "decision_function") if model.response_method == "auto" else (model.response_method,)
    scores = score_columns(scope, operator, container, inner, methods)
    chances = hasattr(inner, "predict_proba") and methods[0] == "predict_proba"
    threshold = getattr(model, "best_threshold_", getattr(model, "threshold", "auto"))
    threshold = (0.5 if chances else 0.0) if threshold == "auto" else float(threshold)
    classes = list(model.classes_)
    positive = 1 if getattr(model, "pos_label", None) is None else classes.index(model.pos_label)
    column = write.add("Gather", scores, write.constant(np.array([1 if not chances else positive])), axis=1)
    if not chances and positive == 0:
        column = write.add("Neg", column)
    above = write.add("GreaterOrEqual", column, write.constant(np.array([threshold])))
    above = write.add("Reshape", write.cast(above, INT64), write.constant(np.array([-1])))
    place = write.add("Gather", write.constant(np.array([1 - positive, positive])), above, axis=0)
    write.give_labels(place, model.classes_, operator.outputs[0])
    if not chances and hasattr(inner, "predict_proba"):
        scores = score_columns(scope, operator, container, inner, ("predict_proba",))
    write.give(scores, operator.outputs[1])
