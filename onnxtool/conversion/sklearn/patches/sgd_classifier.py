"""SGDClassifier with chances: its label is that of the largest score, since several chances may be 1.

Source: scikit-learn, `sklearn.linear_model.SGDClassifier.predict_proba`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxtool.conversion.sklearn.converters.members import logistic_of
from onnxtool.conversion.sklearn.converters.node_writer import INT64, NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, extension


def _convert(write: NodeWriter, original: Callable[[], None]) -> None:
    model = write.step
    if model.loss not in ("modified_huber", "log_loss"):
        original()
        return
    weights = np.ascontiguousarray(np.asarray(model.coef_, np.float64).T)
    scores = write.add("Add", write.add("MatMul", write.joined(), weights), np.asarray(model.intercept_, np.float64))
    if model.loss == "log_loss":
        chances = logistic_of(write, scores)
    else:
        clipped = write.add("Max", write.add("Min", scores, 1.0), -1.0)
        chances = write.add("Div", write.add("Add", clipped, 1.0), 2.0)
    if len(model.classes_) == 2:
        places = write.cast(write.add("Greater", scores, 0.0), INT64)
        write.give_labels(write.add("Squeeze", places, np.array([1])), model.classes_)
        write.give(write.columns([write.add("Sub", 1.0, chances), chances]), write.outputs[1])
        return
    write.give_labels(write.add("ArgMax", scores, axis=1, keepdims=0), model.classes_)
    total = write.add("ReduceSum", chances, np.array([1]), keepdims=1)
    nothing = write.add("Equal", total, 0.0)
    shares = write.add("Div", chances, write.add("Where", nothing, 1.0, total))
    write.give(write.add("Where", nothing, 1 / len(model.classes_), shares), write.outputs[1])


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 takes the label of the first of several chances of 1",
    extension("sklearn.linear_model:SGDClassifier", _convert),
)
