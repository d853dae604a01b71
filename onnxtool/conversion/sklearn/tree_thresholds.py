"""Which thresholds of trees the proof cannot try: those that no input is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

_TREES = ("TreeEnsembleClassifier", "TreeEnsembleRegressor", "TreeEnsemble")
_MOVES = (
    *("Identity", "Cast", "Concat", "Reshape", "Flatten", "Gather", "Slice", "Squeeze", "Unsqueeze", "Transpose"),
    *("ArrayFeatureExtractor", "FeatureVectorizer", "Split", "Constant", "Shape"),
)
_LEFT_OUT = "not tested at the trees' thresholds; rows may differ"


def left_out(proto: onnx.ModelProto) -> str:
    """What the proof leaves out of a graph with trees, in words; "" where they get the inputs as they are.

    The thresholds of the graph are numbers that its inputs are tried at. Behind a step that computes, they are numbers
    of another space.

    Args:
        proto: as it was exported, with trees of any library.
    """
    makers = {name: node for node in proto.graph.node for name in node.output}
    trees = [node for node in proto.graph.node if node.op_type in _TREES]
    computed = any(_is_computed(name, makers) for node in trees for name in node.input[:1])
    return _LEFT_OUT if trees and computed else ""


def _is_computed(name: str, makers: Mapping[str, onnx.NodeProto]) -> bool:
    """Whether a tensor is anything but inputs of the graph, moved about."""
    pending, seen = [name], {name}
    while pending:
        node = makers.get(pending.pop())
        if node is None:
            continue
        if node.op_type not in _MOVES:
            return True
        pending += [n for n in node.input if n not in seen]
        seen.update(node.input)
    return False
