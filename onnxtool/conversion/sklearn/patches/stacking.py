"""Stacked estimators: what members predict, side by side, is what the last one sees.

Source: scikit-learn, `sklearn.ensemble._stacking._BaseStacking`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxtool.conversion.sklearn.converters.members import classified, predicted
from onnxtool.conversion.sklearn.converters.node_writer import DOUBLE, INT64, NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, extension, number_type


def _convert_regressor(write: NodeWriter, original: Callable[[], None]) -> None:
    if any(hasattr(member, "classes_") for member in write.step.estimators_):
        original()
        return
    write.give(predicted(write, write.step.final_estimator_, [_seen(write)]))


def _convert_classifier(write: NodeWriter, original: Callable[[], None]) -> None:
    model = write.step
    if isinstance(model.classes_, list):
        original()
        return
    raw = not hasattr(model, "predict_proba")
    label, chances = classified(write, model.final_estimator_, [_seen(write)], raw=raw)
    write.give_labels(write.add("Reshape", write.cast(label, INT64), np.array([-1])), model.classes_)
    write.give(chances, write.outputs[1])


def _seen(write: NodeWriter) -> Any:
    """What the last estimator is given, as a variable."""
    model = write.step
    parts = []
    for member, method in zip(model.estimators_, model.stack_method_, strict=True):
        if method == "predict":  # of classifiers the places of classes
            label = classified(write, member, write.inputs)[0] if hasattr(member, "classes_") else ""
            column = write.add("Reshape", write.cast(label, DOUBLE), np.array([-1, 1])) if label else ""
            parts.append(column or predicted(write, member, write.inputs))
            continue
        scores = classified(write, member, write.inputs, raw=method == "decision_function")[1]
        parts.append(write.add("Gather", scores, np.array([-1]), axis=1) if len(model.classes_) == 2 else scores)
    seen = write.variable("seen", number_type(write.inputs[0].type)([None, model.final_estimator_.n_features_in_]))
    write.give(write.columns([*parts, write.joined()] if model.passthrough else parts), seen)
    seen.init_status(is_fed=True)
    return seen


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 gives members the first column alone, and the last one both scores of two classes",
    extension("sklearn.ensemble:StackingRegressor", _convert_regressor),
    extension("sklearn.ensemble:StackingClassifier", _convert_classifier),
)
