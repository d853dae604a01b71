"""Bagging of classifiers without chances: each member has one vote.

Source: scikit-learn, `sklearn.ensemble.BaggingClassifier`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxtool.conversion.sklearn.converters.members import classified
from onnxtool.conversion.sklearn.converters.node_writer import DOUBLE, INT64, NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, extension, number_type


def _convert(write: NodeWriter, original: Callable[[], None]) -> None:
    model = write.step
    if hasattr(model.estimators_[0], "predict_proba"):
        original()
        return
    given, whole = write.inputs[0], np.arange(model.n_features_in_)
    votes = ""
    for member, columns in zip(model.estimators_, model.estimators_features_, strict=True):
        seen: Any = given
        if not np.array_equal(columns, whole):
            seen = write.variable("member_columns", number_type(given.type)([None, len(columns)]))
            write.add("Gather", given.full_name, np.asarray(columns, np.int64), axis=1, name=seen.full_name)
        labels = write.add("Reshape", classified(write, member, [seen])[0], np.array([-1, 1]))
        # Members know the classes by their places.
        vote = write.cast(write.add("Equal", labels, np.arange(len(model.classes_))[None]), INT64)
        votes = write.add("Add", votes, vote) if votes else vote
    chances = write.add("Div", write.cast(votes, DOUBLE), float(len(model.estimators_)))
    write.give_most_likely(chances, model.classes_)


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 takes the most frequent vote of all rows together",
    extension("sklearn.ensemble:BaggingClassifier", _convert),
)
