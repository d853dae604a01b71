"""Stacked estimators: what members predict, side by side, is what the last one sees; and gradient boosting that begins
with an estimator.

Source: scikit-learn, `sklearn.ensemble._stacking._BaseStacking` and `sklearn.ensemble._gb`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxtool.conversion.frameworks import copy_with
from onnxtool.conversion.sklearn.converters.members import classified, logistic_of, predicted
from onnxtool.conversion.sklearn.converters.node_writer import DOUBLE, INT64, NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, extension, number_type


def _convert_regressor(write: NodeWriter, _original: Callable[[], None]) -> None:
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
            label = classified(write, member, write.inputs)[0] if len(getattr(member, "classes_", ())) else ""
            column = write.add("Reshape", write.cast(label, DOUBLE), np.array([-1, 1])) if label else ""
            parts.append(column or predicted(write, member, write.inputs))
            continue
        scores = classified(write, member, write.inputs, raw=method == "decision_function")[1]
        parts.append(write.add("Gather", scores, np.array([-1]), axis=1) if len(model.classes_) == 2 else scores)
    seen = write.variable("seen", number_type(write.inputs[0].type)([None, model.final_estimator_.n_features_in_]))
    write.give(write.columns([*parts, write.joined()] if model.passthrough else parts), seen)
    seen.init_status(is_fed=True)
    return seen


def _convert_boosting(write: NodeWriter, original: Callable[[], None]) -> None:
    """What the sums begin with, and the sum of the trees for each class.

    Of two classes scikit-learn takes the second where the sum is zero, which ONNX's ensembles of trees do not.
    """
    model = write.step
    plain, count = model.init is None or isinstance(model.init, str), model.estimators_.shape[1]
    classifies = hasattr(model, "classes_")
    if plain and (count > 1 or not classifies):
        original()
        return
    columns = [predicted(write, _trees(model, place), write.inputs) for place in range(count)]
    rows = np.zeros((1, model.n_features_in_), np.float32)
    begin = np.asarray(model._raw_predict_init(rows), np.float64) if plain else _begun(write, model)
    sums = write.add("Add", begin, write.columns(columns))
    if not classifies:
        write.give(sums)
        return
    if count > 1:
        write.give_labels(write.add("ArgMax", sums, axis=1, keepdims=0), model.classes_)
        chances = sums if write.asks_scores else write.add("Softmax", sums, axis=1)
    else:
        above = write.cast(write.add("GreaterOrEqual", sums, 0.0), INT64)
        write.give_labels(write.add("Reshape", above, np.array([-1])), model.classes_)
        twice = write.add("Mul", sums, 2.0) if model.loss == "exponential" else sums
        likely = sums if write.asks_scores else logistic_of(write, twice)
        other = write.add("Neg", sums) if write.asks_scores else write.add("Sub", 1.0, likely)
        chances = write.columns([other, likely])
    write.give(chances, write.outputs[1])


def _begun(write: NodeWriter, model: Any) -> str:
    """What the first estimator says of rows in float32: [rows, 1] or [rows, classes]."""
    rows = write.variable("rounded", number_type(write.inputs[0].type)([None, model.n_features_in_]))
    # By Veltkamp's split: a graph of doubles has no casts to float32.
    wide = write.add("Mul", write.joined(), 2.0**29 + 1)
    write.give(write.add("Sub", wide, write.add("Sub", wide, write.joined())), rows)
    rows.init_status(is_fed=True)
    if not hasattr(model, "classes_"):
        return predicted(write, model.init_, [rows])
    least = float(np.finfo(np.float64).eps)
    clipped = write.add("Min", write.add("Max", classified(write, model.init_, [rows])[1], least), 1 - least)
    if model.estimators_.shape[1] > 1:
        logarithms = write.add("Log", clipped)
        return write.add("Sub", logarithms, write.add("ReduceMean", logarithms, axes=[1], keepdims=1))
    second = write.add("Gather", clipped, np.array([1]), axis=1)
    odds = write.add("Sub", write.add("Log", second), write.add("Log", write.add("Sub", 1.0, second)))
    return write.add("Div", odds, 2.0 if model.loss == "exponential" else 1.0)


def _trees(model: Any, place: int) -> Any:
    """The trees for one class, as a regressor whose sum begins with zero."""
    from sklearn.ensemble import GradientBoostingRegressor

    own = model.estimators_[:, place : place + 1]
    trees = GradientBoostingRegressor(init="zero", learning_rate=model.learning_rate)
    return copy_with(
        trees, estimators_=own, n_estimators_=len(own), _loss=model._loss, n_features_in_=model.n_features_in_
    )


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 gives members the first column alone, and the last one both scores of two classes; boosting begins "
    "with numbers alone, and takes the first of two classes where their sum is zero",
    extension("sklearn.ensemble:StackingRegressor", _convert_regressor),
    extension("sklearn.ensemble:StackingClassifier", _convert_classifier),
    extension("sklearn.ensemble:GradientBoostingRegressor", _convert_boosting),
    extension("sklearn.ensemble:GradientBoostingClassifier", _convert_boosting),
)
