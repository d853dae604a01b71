"""Networks with two labels at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxtool.conversion.sklearn.converters.node_writer import DOUBLE, NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, extension


def _convert(write: NodeWriter, original: Callable[[], None]) -> None:
    network = write.step
    if network.n_outputs_ != 2 or not network._label_binarizer.y_type_.startswith("multilabel"):
        original()
        return
    label, chances = write.outputs
    found, both = write.variable("found", type(label.type)()), write.variable("both", type(chances.type)())
    with write.standing_in(network, [found, both]):
        original()
    write.give(found.full_name, label)
    write.give(write.add("Gather", write.cast(both.full_name, DOUBLE), np.array([2, 3]), axis=1), chances)


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 takes two labels for two classes, and adds the chances against each",
    extension("sklearn.neural_network:MLPClassifier", _convert),
)
