"""Networks with two labels at once, which skl2onnx 1.20 takes for two classes: it adds the chances against each."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from onnxtool.conversion.sklearn.converters.node_writer import DOUBLE, NodeWriter
from onnxtool.conversion.sklearn.converters.register import Converter, extend, standing_in


@cache
def register() -> None:
    """Let skl2onnx convert them by this converter."""
    from sklearn.neural_network import MLPClassifier

    extend(MLPClassifier, _convert)


def _convert(original: Converter, scope: Any, operator: Any, container: Any) -> None:
    network = operator.raw_operator
    if network.n_outputs_ != 2 or not network._label_binarizer.y_type_.startswith("multilabel"):
        original(scope, operator, container)
        return
    label, chances = operator.outputs
    found, both = (
        scope.declare_local_variable(name, type(of.type)()) for name, of in (("found", label), ("both", chances))
    )
    with standing_in(operator, network, [found, both]):
        original(scope, operator, container)
    write = NodeWriter(scope, container, "labels")
    write.give(found.full_name, label)
    write.give(
        write.add("Gather", write.cast(both.full_name, DOUBLE), write.constant(np.array([2, 3])), axis=1), chances
    )
